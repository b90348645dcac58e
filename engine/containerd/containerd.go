// Package containerd supervises the container runtime: one containerd process of our own, beside which any
// other on the laptop (Docker's, say) lives undisturbed. The server starts it and waits for its socket.
//
// It must never stop a container: containerd runs in a session of its own and outlives a killed server, the
// next server adopts it; and when containerd itself is restarted, containers live on under their shims.
package containerd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/base/process"
)

var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// Runtime is a supervised containerd.
type Runtime struct {
	opts Options
	log  *slog.Logger
	env  []string
}

// New prepares to supervise; nothing happens before Run.
func New(opts Options, log *slog.Logger) *Runtime {
	// The shim, runc, and the plugins call each other and iptables, mount, modprobe by name.
	path := opts.RuntimeDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	env := []string{"PATH=" + path, "HOME=/root", "LANG=C.UTF-8"}
	for _, name := range proxies { // images come through the company's proxy, where there is one
		for _, name := range []string{name, strings.ToLower(name)} {
			if value, set := os.LookupEnv(name); set {
				env = append(env, name+"="+value)
			}
		}
	}
	return &Runtime{opts: opts, log: log, env: env}
}

// Run adopts or starts containerd and starts it again whenever it dies, until ctx ends; then it leaves it
// running. It returns early only when containerd cannot be started at all.
func (r *Runtime) Run(ctx context.Context) error {
	for _, d := range []string{r.opts.DataDir, r.opts.StateDir} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return fmt.Errorf("folder of containerd: %w", err)
		}
	}
	conf, err := r.opts.render()
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.opts.config(), conf, 0o600); err != nil {
		return fmt.Errorf("configuration of containerd: %w", err)
	}
	want, err := r.fingerprint(conf)
	if err != nil {
		return err
	}
	p, err := r.adopt(ctx, want)
	if err != nil {
		return err
	}
	trimming, stop := context.WithCancel(ctx)
	defer stop()
	go r.trimLogs(trimming)
	for failures := 0; ; {
		if p == nil {
			if p, err = r.start(want); err != nil {
				return err
			}
		}
		began := time.Now()
		ended := p.Wait(ctx)
		if p.Close(); !ended {
			return nil
		}
		p = nil
		if time.Since(began) > time.Minute {
			failures = 0
		}
		pause := min(time.Second<<min(failures, 5), 30*time.Second)
		failures++
		r.log.Warn("containerd ended; its containers live on, starting it again", "in", pause, "log", r.logFile())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Socket is where containerd answers.
func (r *Runtime) Socket() string { return r.opts.Socket() }

// Root is the folder of containerd's images and snapshots.
func (r *Runtime) Root() string { return r.opts.root() }

// WaitReady returns when containerd answers on its socket.
func (r *Runtime) WaitReady(ctx context.Context) error {
	var why error
	if wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		c, err := net.DialTimeout("unix", r.opts.Socket(), time.Second)
		if why = err; err == nil {
			c.Close()
		}
		return err == nil, nil
	}) != nil {
		return fmt.Errorf("containerd does not answer on %s (%w); see %s", r.opts.Socket(), why, r.logFile())
	}
	return nil
}

func (r *Runtime) logFile() string { return filepath.Join(r.opts.DataDir, "containerd.log") }

// fingerprint changes when a running containerd must be replaced: another program or another configuration.
func (r *Runtime) fingerprint(conf []byte) (string, error) {
	h := sha256.New()
	h.Write(conf)
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		st, err := os.Stat(r.opts.program(name))
		if err != nil {
			return "", fmt.Errorf("%s is missing: %w; build it with `make build`, or give --runtime-dir", name, err)
		}
		fmt.Fprintln(h, name, st.Size(), st.ModTime().UnixNano())
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12]), nil
}

// adopt takes over the containerd that an earlier server started. One that is not what is wanted is ended
// first, so that two never share one folder.
func (r *Runtime) adopt(ctx context.Context, want string) (*process.Process, error) {
	p, startedAs := process.Find(r.opts.pidFile())
	if p == nil {
		return nil, nil
	}
	if startedAs == want && r.answers() {
		r.log.Info("adopted the running containerd", "pid", p.PID)
		return p, nil
	}
	defer p.Close()
	r.log.Info("replacing the running containerd, its containers live on", "pid", p.PID)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := p.End(ctx, patience); err != nil {
		return nil, fmt.Errorf("old containerd %d does not end: %w; reboot", p.PID, err)
	}
	return nil, nil
}

// patience is how long an old containerd has to end, when asked to and again when killed.
const patience = 10 * time.Second

func (r *Runtime) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return r.WaitReady(ctx) == nil
}

func (r *Runtime) start(fingerprint string) (*process.Process, error) {
	out, err := process.OpenLog(r.logFile())
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(r.opts.program("containerd"), "--config", r.opts.config())
	cmd.Env = r.env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	p, err := process.Hold(cmd, r.opts.pidFile(), fingerprint)
	if errors.Is(err, process.ErrEnded) {
		return nil, fmt.Errorf("containerd ended at once, see %s", r.logFile())
	} else if err != nil {
		return nil, fmt.Errorf("pid file of containerd: %w", err)
	}
	return p, nil
}

const (
	logLimit = 8 << 20
	// logEvery is how often a log is looked at. A pod's life is 7 kB in it, and containerd runs for months.
	logEvery = 10 * time.Minute
)

// trimLogs bounds the log of a containerd that runs, until ctx ends.
func (r *Runtime) trimLogs(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		if err := process.TrimLog(r.logFile(), logLimit); err != nil {
			r.log.Warn("the log of containerd grows", "log", r.logFile(), "err", err)
		}
	}, logEvery)
}

// hasAppArmor tells whether profiles can be loaded: containers of a system with AppArmor should be confined.
func hasAppArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !strings.HasPrefix(string(b), "Y") {
		return false
	}
	_, err = exec.LookPath("apparmor_parser")
	return err == nil
}
