package pid1

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The commands on the control socket: one line there, one line back, "ok" or the reason why not.
const (
	Restart = "restart" // stop, then start at once; answered when it runs again
	Stop    = "stop"    // and do not start again; answered when it is gone
	Start   = "start"   //
	Kill    = "kill"    // SIGKILL, as a crash; it comes back after RestartAfter
)

type request struct {
	command string
	answer  chan string
}

func (s *supervisor) listen() error {
	dir := Inside
	if s.spec.Disk == "" {
		dir = s.spec.State
	}
	path := filepath.Join(dir, SocketFile)
	_ = os.Remove(path) // of the boot before
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("open control socket: %w", err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return nil
}

func (s *supervisor) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * StopAfter))
	line, err := bufio.NewReaderSize(c, 64).ReadSlice('\n')
	if err != nil {
		return
	}
	r := request{command: strings.TrimSpace(string(line)), answer: make(chan string, 1)}
	s.requests <- r
	fmt.Fprintln(c, <-r.answer)
}

// handle begins what a request asks for. Only one stop or restart can be under way.
func (s *supervisor) handle(r request) {
	st := &s.status
	switch {
	case st.Daemon == DaemonNone:
		r.answer <- "this laptop has no daemon"
	case st.Daemon == DaemonStopping:
		r.answer <- "the daemon is stopping already"
	case r.command == Kill:
		if st.PID != 0 {
			_ = unix.Kill(st.PID, unix.SIGKILL)
		}
		r.answer <- "ok"
	case r.command == Start && st.Daemon == DaemonRunning:
		r.answer <- "ok"
	case r.command == Stop && st.Daemon == DaemonStopped:
		r.answer <- "ok"
	case r.command == Start, r.command == Restart, r.command == Stop:
		s.waiting = &r
		if st.PID == 0 {
			s.timer.Stop()
			s.stopped()
			return
		}
		st.Daemon = DaemonStopping
		s.killed = false
		_ = unix.Kill(st.PID, unix.SIGTERM)
		s.timer.Reset(StopAfter)
	default:
		r.answer <- fmt.Sprintf("unknown command %q: use %s, %s, %s or %s", r.command, Restart, Stop, Start, Kill)
	}
}

// stopped ends a request: the daemon is gone, and starts again unless it was to stop.
func (s *supervisor) stopped() {
	s.status.Daemon = DaemonStopped
	r := s.waiting
	s.waiting = nil
	if r.command != Stop {
		if err := s.start(); err != nil {
			s.status.Daemon = DaemonWaiting // as systemd, which goes on trying
			s.timer.Reset(RestartAfter)
			r.answer <- err.Error()
			return
		}
		s.status.Restarts++
	}
	if s.killed {
		r.answer <- fmt.Sprintf("the daemon did not stop within %s and was killed", StopAfter)
		return
	}
	r.answer <- "ok"
}
