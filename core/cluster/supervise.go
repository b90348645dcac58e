package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/core/process"
)

// pace is how fast the supervisor does things.
type pace struct {
	asking   time.Duration // between questions while it is not ready
	watching time.Duration // between questions while it is
	patience int           // unanswered questions until it is started anew
	pause    time.Duration // before it is started again, doubled with every failure
	most     time.Duration // longest pause
	settled  time.Duration // alive this long, earlier failures are forgotten
	goodbye  time.Duration // from asking it to end to killing it
}

var usualPace = pace{
	asking: 100 * time.Millisecond, watching: 15 * time.Second, patience: 8,
	pause: time.Second, most: 30 * time.Second, settled: time.Minute, goodbye: 30 * time.Second,
}

// hopeless is how many failures in a row make it failed; it is tried again all the same.
const hopeless = 4

// Run adopts or starts the engine, watches it, and starts it again when it ends.
func (b *Builtin) Run(ctx context.Context) error {
	if err := os.MkdirAll(b.cfg.RunDir, 0o711); err != nil {
		return err
	}
	lock, err := process.Lock(b.path("engine.lock"))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another kithd looks after the engine in %s; stop it first", b.cfg.RunDir)
	} else if err != nil {
		return err
	}
	defer lock.Close()
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := b.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > b.pace.settled {
			failures = 0
		}
		pause := min(b.pace.pause<<min(failures, 16), b.pace.most)
		pause = pause*4/5 + time.Duration(rand.Int64N(int64(pause)*2/5+1))
		failures++
		phase := Starting
		if failures >= hopeless {
			phase = Failed
		}
		b.set(phase, fmt.Sprintf("%v; trying again, failures in a row: %d", err, failures))
		b.cfg.Log.Warn("the built-in Kubernetes ended; pods run on, it is started again", "err", err, "in", pause.Round(time.Millisecond))
		b.sleep(ctx, pause)
	}
	return nil
}

// once looks after one life of the engine: from adopting or starting it to its end, which the error explains.
func (b *Builtin) once(ctx context.Context) error {
	fingerprint, err := b.fingerprint()
	if err != nil {
		return err
	}
	p, startedAs := process.Find(b.pidFile())
	if p != nil && startedAs != fingerprint {
		err := b.retire(ctx, p)
		p.Close()
		if err != nil {
			return err
		}
		p = nil
	}
	if p != nil {
		b.cfg.Log.Info("adopted the running built-in Kubernetes", "pid", p.PID)
	} else if p, err = b.start(fingerprint); err != nil {
		return err
	}
	defer p.Close()
	return b.watch(ctx, p)
}

// retire ends a running engine that is not what is wanted.
func (b *Builtin) retire(ctx context.Context, p *process.Process) error {
	b.set(Starting, "ending the running one, to start it as it is wanted now")
	b.cfg.Log.Info("ending the running built-in Kubernetes; pods run on", "pid", p.PID)
	return p.End(ctx, b.pace.goodbye)
}

// watch asks for readiness, and tells what is wanted, until the process ends, or must end because it does not answer, or ctx ends.
// While all is well it wakes four times a minute.
func (b *Builtin) watch(ctx context.Context, p *process.Process) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		if p.Wait(inner) {
			close(ended)
		}
	}()
	if b.State().Phase != Failed {
		b.set(Starting, "waiting for its API server")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	b.deciding.unknown() // one that is adopted may do either
	for wasReady, unanswered := false, 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return fmt.Errorf("kith-k8s ended: %s", b.lastWords())
		case <-b.wake:
		case <-timer.C:
		}
		err := b.probe(inner)
		if err == nil {
			err = b.converge(inner)
		}
		switch {
		case err == nil:
			unanswered, wasReady = 0, true
			if b.set(Ready, "") {
				b.cfg.Log.Info("the built-in Kubernetes is ready", "node", b.cfg.NodeName)
			}
			_ = process.TrimLog(b.logFile(), logLimit) // again in a moment
			timer.Reset(b.pace.watching)
		case !wasReady:
			if b.State().Phase != Failed {
				b.set(Starting, err.Error())
			}
			timer.Reset(b.pace.asking)
		default:
			unanswered++
			b.set(Degraded, err.Error())
			if unanswered >= b.pace.patience {
				if err := b.retire(ctx, p); err != nil {
					return err
				}
				return fmt.Errorf("%w, %d times in a row, so it was ended", err, unanswered)
			}
			timer.Reset(b.pace.watching)
		}
	}
}

func (b *Builtin) start(fingerprint string) (*process.Process, error) {
	if err := os.MkdirAll(b.cfg.DataDir, 0o711); err != nil {
		return nil, err
	}
	out, err := process.OpenLog(b.logFile())
	if err != nil {
		return nil, fmt.Errorf("log of the built-in Kubernetes: %w", err)
	}
	defer out.Close()
	_, _ = fmt.Fprintln(out, startMark) // a full disk takes none
	b.set(Starting, "starting "+b.program)
	cmd := exec.Command(b.program, append(b.args(), fmt.Sprintf("--deciding=%t", b.Decides()))...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w; is it built and complete?", b.program, err)
	}
	p, err := process.Hold(cmd, b.pidFile(), fingerprint)
	if errors.Is(err, process.ErrEnded) {
		return nil, fmt.Errorf("kith-k8s ended at once: %s", b.lastWords())
	} else if err != nil {
		return nil, fmt.Errorf("pid file of the built-in Kubernetes: %w", err)
	}
	return p, nil
}

// fingerprint changes when the running engine is not the one wanted: another program, other arguments.
func (b *Builtin) fingerprint() (string, error) {
	st, err := os.Stat(b.program)
	if err != nil {
		return "", fmt.Errorf("the built-in Kubernetes is missing: %w; install it, or set engine to kubeconfig", err)
	}
	text := fmt.Sprintln(b.program, st.Size(), st.ModTime().UnixNano(), b.args())
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:24], nil
}

func (b *Builtin) path(name string) string { return filepath.Join(b.cfg.RunDir, name) }
func (b *Builtin) pidFile() string         { return b.path("engine.pid") }
func (b *Builtin) logFile() string         { return filepath.Join(b.cfg.DataDir, "server.log") }

// sleep returns after d, when something else is wanted, or when ctx ends.
func (b *Builtin) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.wake:
	case <-ctx.Done():
	}
}

// startMark is a line of the log before those of each start.
const startMark = "--- " + Program + " is started"

// lastWords is why the engine ended, from the end of its log: it says so itself in a line with its name, and the Go
// runtime says of what it crashed. A log without either is of a process that was killed.
func (b *Builtin) lastWords() string {
	f, err := os.Open(b.logFile())
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
	text = text[max(0, bytes.LastIndex(text, []byte(startMark))):] // not of an earlier one
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last, ok := strings.CutPrefix(lines[len(lines)-1], Program+": "); ok {
		return bounded(last)
	}
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "it crashed: " + bounded(line) + "; see " + b.logFile()
		}
	}
	return "it was killed; its log is " + b.logFile()
}

func bounded(line string) string {
	if len(line) > 400 {
		line = strings.ToValidUTF8(line[:400], "") + "…"
	}
	return line
}

const logLimit = 32 << 20
