package pid1

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RestartAfter is the pause before a daemon that died is started again: RestartSec=1 of its systemd unit.
const RestartAfter = time.Second

// StopAfter is how long a daemon asked to stop may take before it is killed: TimeoutStopSec of its systemd unit.
const StopAfter = 30 * time.Second

// supervisor keeps the daemon as systemd does: Restart=always, KillMode=process, so what the daemon started lives on
// when it dies. All its state belongs to the one goroutine in run.
type supervisor struct {
	spec     Spec
	log      *slog.Logger
	status   Status
	requests chan request
	// waiting is the request to answer when the daemon has stopped (and, for a restart, runs again).
	waiting *request
	killed  bool // the daemon that was to stop did not within StopAfter
	timer   *time.Timer
}

func newSupervisor(spec Spec, log *slog.Logger) *supervisor {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &supervisor{spec: spec, log: log, requests: make(chan request), timer: t}
}

// boot starts the daemon for the first time.
func (s *supervisor) boot() error {
	s.status = Status{Up: time.Now(), Daemon: DaemonNone}
	if len(s.spec.Daemon) == 0 {
		return s.save()
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.save()
}

func (s *supervisor) start() error {
	if err := os.MkdirAll(filepath.Dir(DaemonLog), 0o755); err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	out, err := os.OpenFile(DaemonLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer null.Close()
	// Not os/exec: its Wait and the reaper below would both want the exit status.
	pid, err := syscall.ForkExec(s.spec.Daemon[0], s.spec.Daemon, &syscall.ProcAttr{
		Dir: "/", Env: s.spec.Env, Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start daemon %s: %w", s.spec.Daemon[0], err)
	}
	s.status.Daemon, s.status.PID, s.status.Started = DaemonRunning, pid, time.Now()
	s.log.Info("daemon started", "pid", pid)
	return nil
}

func (s *supervisor) run(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	// Nobody reads these. What is ignored instead, the daemon ignores, too, until it has handlers of its own: told to stop right after its start it
	// would go on.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGTERM)
	for {
		s.reap()
		if err := s.save(); err != nil {
			s.log.Error("status not written", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-children:
		case r := <-s.requests:
			s.handle(r)
		case <-s.timer.C:
			s.timeout()
		}
	}
}

// reap takes the exit status of every dead child, most of them orphans.
func (s *supervisor) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid == s.status.PID {
			s.died(ws)
		}
	}
}

func (s *supervisor) died(ws unix.WaitStatus) {
	how := fmt.Sprintf("exit status %d", ws.ExitStatus())
	if ws.Signaled() {
		how = "signal: " + ws.Signal().String()
	}
	s.log.Info("daemon ended", "pid", s.status.PID, "how", how)
	s.status.PID, s.status.LastExit = 0, how
	if s.status.Daemon == DaemonStopping {
		s.timer.Stop()
		s.stopped()
		return
	}
	s.status.Daemon = DaemonWaiting
	s.timer.Reset(RestartAfter)
}

// timeout is due when a pause before a start is over, or the patience with a daemon that should stop.
func (s *supervisor) timeout() {
	switch s.status.Daemon {
	case DaemonWaiting:
		s.status.Restarts++
		if err := s.start(); err != nil {
			s.log.Error("daemon not started", "err", err)
			s.timer.Reset(RestartAfter)
		}
	case DaemonStopping:
		s.log.Warn("daemon did not stop in time and is killed", "pid", s.status.PID)
		s.killed = true
		_ = unix.Kill(s.status.PID, unix.SIGKILL)
	}
}

// save replaces the status file in one step, so that a reader never sees half of it.
func (s *supervisor) save() error {
	b, err := json.MarshalIndent(s.status, "", "  ")
	if err != nil {
		return err
	}
	dir := Inside
	if s.spec.Disk == "" {
		dir = s.spec.State
	}
	tmp := filepath.Join(dir, StatusFile+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return os.Rename(tmp, filepath.Join(dir, StatusFile))
}
