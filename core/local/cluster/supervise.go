package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/core/base/process"
	"kith.dev/core/base/sysmon"
)

// pace is how fast the supervisor does things.
type pace struct {
	asking   time.Duration // between questions while it is not ready
	watching time.Duration // between questions while it is
	patience int           // unanswered questions in a row until it is restarted
	pause    time.Duration // before it is started again, doubled with every failure
	most     time.Duration // longest pause
	settled  time.Duration // alive this long, earlier failures are forgotten
	goodbye  time.Duration // from asking it to end to killing it
}

var usualPace = pace{
	asking: 100 * time.Millisecond, watching: 15 * time.Second, patience: 8,
	pause: time.Second, most: 30 * time.Second, settled: time.Minute, goodbye: 30 * time.Second,
}

// hopeless is after how many failures in a row the phase is Failed; it is still tried again.
const hopeless = 4

// child is a Kubernetes that runs as a child of this process in a session of its own, so that it outlives this process; the next one
// adopts it. The functions must be set before Run.
type child struct {
	*status
	what            string // as sentences have it: "the built-in Kubernetes"
	kind            string // the same without an article
	name            string // of its program, with which its last words begin
	program         string // its path
	node            string // name of its node
	dataDir, runDir string
	log             *slog.Logger
	pace            pace

	args     func() []string             // arguments; the engine is restarted if they differ from those it was started with
	also     func() []string             // further arguments, whose change does not restart it
	settings func() string               // any text; the engine is restarted if it changes
	prepare  func() error                // what must be done before it starts
	probe    func(context.Context) error // nil when the API server is ready
	converge func(context.Context) error // called while it is ready, to make it as wanted; errAnew restarts it
	lieDown  func(context.Context) error // ends what the engine left running, when it is to sleep; nil: it cannot sleep
	api      string                      // address of its API server that it inherits as a socket; "": it listens by itself

	running  string           // fingerprint of the engine that runs; of Run's goroutine alone
	doorstep *net.TCPListener // the API server's socket, which engines inherit; of Run's goroutine alone
	deciding deciding
	news     chan struct{} // holds a token when what is wanted has changed
}

// errAnew says that the running engine must be restarted, for another program, other arguments or other settings.
var errAnew = errors.New("it is started anew")

func newChild(log *slog.Logger) *child {
	return &child{
		status: newStatus(Stopped, "not started yet"), log: log, pace: usualPace, news: make(chan struct{}, 1),
		also: func() []string { return nil }, settings: func() string { return "" }, prepare: func() error { return nil },
	}
}

// Run adopts or starts the engine, watches it, and starts it again when it ends.
func (c *child) Run(ctx context.Context) error {
	if err := os.MkdirAll(c.runDir, 0o711); err != nil {
		return err
	}
	lock, err := process.Lock(c.path("engine.lock"))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another kithd looks after the engine in %s; stop it first", c.runDir)
	} else if err != nil {
		return err
	}
	defer lock.Close()
	defer c.leaveDoorstep()
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errAnew) {
			continue
		}
		if c.sleeps() || errors.Is(err, errSleeps) {
			c.rest(ctx)
			failures = 0
			continue
		}
		if time.Since(began) > c.pace.settled {
			failures = 0
		}
		pause := min(c.pace.pause<<min(failures, 16), c.pace.most)
		pause = pause*4/5 + time.Duration(rand.Int64N(int64(pause)*2/5+1))
		failures++
		phase := Starting
		if failures >= hopeless {
			phase = Failed
		}
		c.set(phase, fmt.Sprintf("%v; trying again, failures in a row: %d", err, failures))
		c.log.Warn(c.what+" ended; pods run on, it is started again", "err", err, "in", pause.Round(time.Millisecond))
		c.sleep(ctx, pause)
	}
	return nil
}

// once adopts or starts the engine and watches it until it ends; the error says why it ended.
func (c *child) once(ctx context.Context) error {
	fingerprint, err := c.fingerprint()
	if err != nil {
		return err
	}
	p, startedAs := process.Find(c.pidFile())
	if p != nil {
		c.shareDoorstep(p)
	}
	if p != nil && startedAs != fingerprint {
		err := c.retire(ctx, p)
		p.Close()
		if err != nil {
			return err
		}
		p = nil
	}
	if p != nil {
		c.log.Info("adopted the running "+c.kind, "pid", p.PID)
	} else if p, err = c.start(fingerprint); err != nil {
		return err
	}
	defer p.Close()
	c.running = fingerprint
	return c.watch(ctx, p)
}

// retire ends a running engine that is not what is wanted.
func (c *child) retire(ctx context.Context, p *process.Process) error {
	c.set(Starting, "ending the running one, to start it as it is wanted now")
	c.log.Info("ending the running "+c.kind+"; pods run on", "pid", p.PID)
	return p.End(ctx, c.pace.goodbye)
}

// watch asks for readiness, and tells what is wanted, until the process ends, or must end because it does not answer, or ctx ends.
// While all is well it wakes four times a minute.
func (c *child) watch(ctx context.Context, p *process.Process) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		if p.Wait(inner) {
			close(ended)
		}
	}()
	if c.State().Phase != Failed {
		c.set(Starting, "waiting for its API server")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	c.deciding.unknown() // an adopted engine may have them on or off
	for wasReady, unanswered := false, 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return fmt.Errorf("%s ended: %s", c.name, c.lastWords())
		case <-c.news:
		case <-timer.C:
		}
		if c.sleeps() {
			return errors.Join(errSleeps, c.retire(ctx, p))
		}
		err := c.probe(inner)
		if err == nil {
			err = c.converge(inner)
		}
		switch {
		case errors.Is(err, errAnew):
			return errors.Join(err, c.retire(ctx, p))
		case err == nil:
			unanswered, wasReady = 0, true
			if c.set(Ready, "") {
				c.log.Info(c.what+" is ready", "node", c.node)
			}
			_ = process.TrimLog(c.logFile(), logLimit) // again in a moment
			timer.Reset(c.pace.watching)
		case !wasReady:
			if c.State().Phase != Failed {
				c.set(Starting, err.Error())
			}
			timer.Reset(c.pace.asking)
		default:
			unanswered++
			c.set(Degraded, err.Error())
			if unanswered >= c.pace.patience {
				if err := c.retire(ctx, p); err != nil {
					return err
				}
				return fmt.Errorf("%w, %d times in a row, so it was ended", err, unanswered)
			}
			timer.Reset(c.pace.watching)
		}
	}
}

func (c *child) start(fingerprint string) (*process.Process, error) {
	if err := os.MkdirAll(c.dataDir, 0o711); err != nil {
		return nil, err
	}
	out, err := process.OpenLog(c.logFile())
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", c.what, err)
	}
	defer out.Close()
	_, _ = fmt.Fprintln(out, c.startMark()) // a full disk takes none
	c.set(Starting, "starting "+c.program)
	if err := c.prepare(); err != nil {
		return nil, err
	}
	cmd := exec.Command(c.program, append(c.args(), c.also()...)...)
	cmd.Stdout, cmd.Stderr = out, out
	c.takeDoorstep()
	cmd.ExtraFiles, cmd.Env = c.inherit()
	for _, f := range cmd.ExtraFiles {
		defer f.Close()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sysmon.Exactly(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w; is it built and complete?", c.program, err)
	}
	p, err := process.Hold(cmd, c.pidFile(), fingerprint)
	if errors.Is(err, process.ErrEnded) {
		return nil, fmt.Errorf("%s ended at once: %s", c.name, c.lastWords())
	} else if err != nil {
		return nil, fmt.Errorf("pid file of %s: %w", c.what, err)
	}
	return p, nil
}

// fingerprint identifies the program, arguments and settings wanted: the engine is restarted when it changes.
func (c *child) fingerprint() (string, error) {
	st, err := os.Stat(c.program)
	if err != nil {
		return "", fmt.Errorf("%s is missing: %w; install it, or set another engine", c.what, err)
	}
	text := fmt.Sprintln(c.program, st.Size(), st.ModTime().UnixNano(), c.args(), c.settings())
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:24], nil
}

func (c *child) path(name string) string { return filepath.Join(c.runDir, name) }
func (c *child) pidFile() string         { return c.path("engine.pid") }
func (c *child) logFile() string         { return filepath.Join(c.dataDir, "server.log") }

// sleep returns after d, when something else is wanted, or when ctx ends.
func (c *child) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.news:
	case <-ctx.Done():
	}
}

// startMark is a line of the log before those of each start.
func (c *child) startMark() string { return "--- " + c.name + " is started" }

// lastWords gives the reason why the engine ended, from the end of its log: its own fatal message, or that of the Go runtime. If there
// is neither, the process was killed.
func (c *child) lastWords() string {
	f, err := os.Open(c.logFile())
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	defer f.Close()
	const end = 64 << 10 // the traces of a crash are long
	if st, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, st.Size()-end), io.SeekStart)
	}
	text, err := io.ReadAll(io.LimitReader(f, end))
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	text = text[max(0, bytes.LastIndex(text, []byte(c.startMark()))):] // not of an earlier one
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last, ok := strings.CutPrefix(lines[len(lines)-1], c.name+": "); ok {
		return bounded(last)
	}
	for _, line := range slices.Backward(lines) {
		if _, msg, fatal := strings.Cut(line, " level=fatal msg="); fatal { // K3s' logger
			if text, err := strconv.Unquote(msg); err == nil {
				msg = text
			}
			return bounded(msg)
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "it crashed: " + bounded(line) + "; see " + c.logFile()
		}
	}
	return "it was killed; its log is " + c.logFile()
}

func bounded(line string) string {
	if len(line) > 400 {
		line = strings.ToValidUTF8(line[:400], "") + "…"
	}
	return line
}

const logLimit = 32 << 20
