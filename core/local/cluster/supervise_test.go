package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/base/process"
	"kith.dev/core/net/netplan"
)

// engineDir holds the stand-in for kith-k8s, compiled once.
var engineDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cluster-test-")
	if err != nil {
		panic(err)
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, Program), "./testdata/engine").CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	if err := os.Symlink(Program, filepath.Join(dir, "k3s")); err != nil {
		panic(err)
	}
	engineDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// laptop is where a test's engine lives; daemons come and go on it.
type laptop struct {
	t   *testing.T
	dir string
	api string // where its engines listen; "": nowhere
}

func newLaptop(t *testing.T) laptop {
	l := laptop{t: t, dir: t.TempDir()}
	t.Cleanup(func() { // ends only those that the test started, before its folder goes
		starts := l.starts()
		if p, _ := process.Find(l.path("run/engine.pid")); p != nil { // one so new that it has noted nothing yet
			starts = append(starts, start{pid: p.PID})
			p.Close()
		}
		for _, s := range starts {
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
			eventually(t, "the engine's end", func() bool { return !alive(s.pid) })
		}
	})
	return l
}

func (l laptop) path(name string) string { return filepath.Join(l.dir, name) }

func (l laptop) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

type start struct {
	pid  int
	args string
}

func (l laptop) starts() (starts []start) {
	b, _ := os.ReadFile(l.path("starts"))
	for line := range strings.Lines(string(b)) {
		pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			l.t.Fatalf("starts: %q", line)
		}
		starts = append(starts, start{n, args})
	}
	return starts
}

// daemon is a supervisor at work, as kithd has one.
type daemon struct {
	*Builtin
	stop func()
	told chan bool // what the engine is told
}

func (l laptop) daemon(change func(*BuiltinConfig)) daemon {
	l.t.Helper()
	cfg := BuiltinConfig{Log: slog.New(slog.DiscardHandler), NodeName: "alice", Network: netplan.Usual(), DataDir: l.dir, RunDir: l.path("run"), RuntimeDir: engineDir}
	if change != nil {
		change(&cfg)
	}
	b, err := NewBuiltin(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	b.api = l.api // another Kubernetes of this machine may have the usual one
	b.pace = pace{asking: 5 * time.Millisecond, watching: 20 * time.Millisecond, patience: 3, pause: 10 * time.Millisecond, most: 50 * time.Millisecond, settled: time.Minute, goodbye: 200 * time.Millisecond}
	b.probe = func(context.Context) error {
		b, err := os.ReadFile(l.path("ready"))
		if pid, e := strconv.Atoi(string(b)); err != nil || e != nil || !alive(pid) {
			return errors.New("not ready")
		}
		return nil
	}
	told := make(chan bool, 1000)
	b.tell = func(_ context.Context, on bool) error {
		if _, err := os.Stat(l.path("mute")); err == nil {
			return errors.New("its socket is gone")
		}
		told <- on
		return nil
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	d := daemon{told: told, Builtin: b, stop: func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("Run: %v", err)
		}
		done <- nil
	}}
	l.t.Cleanup(d.stop)
	return d
}

func (d daemon) waitFor(t *testing.T, phase Phase) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := d.status.wait(ctx, func(s State) bool { return s.Phase == phase }); err != nil {
		t.Fatalf("waiting for %s: %v", phase, err)
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// eventually fails the test if what does not come true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestKilledEngineIsStartedAgain(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	first := l.starts()[0].pid
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second start", func() bool { return len(l.starts()) == 2 })
	d.waitFor(t, Ready)
	if alive(first) || !alive(l.starts()[1].pid) {
		t.Errorf("want only the second alive")
	}
}

func TestEngineOutlivesTheDaemonAndIsAdopted(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	d.stop()
	pid := l.starts()[0].pid
	if !alive(pid) {
		t.Fatal("the engine died with its daemon")
	}
	d = l.daemon(nil)
	d.waitFor(t, Ready)
	if n := len(l.starts()); n != 1 {
		t.Fatalf("%d starts, want the first one adopted", n)
	}
	// An adopted engine, which is nobody's child here any more, is watched like any other.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a start after the adopted one ended", func() bool { return len(l.starts()) == 2 })
}

func TestEngineWithOtherArgumentsIsReplaced(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	d.stop()
	d = l.daemon(func(c *BuiltinConfig) { c.Flags = []string{"--pod-mtu=1400"} })
	eventually(t, "a start with the new flag", func() bool {
		s := l.starts()
		return len(s) == 2 && strings.Contains(s[1].args, "--pod-mtu=1400")
	})
	d.waitFor(t, Ready)
	if alive(l.starts()[0].pid) {
		t.Error("the old engine still runs")
	}
}

func TestPidOfAnotherProcessIsLeftAlone(t *testing.T) {
	l := newLaptop(t)
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Process.Kill()
	if err := os.MkdirAll(l.path("run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.path("run/engine.pid"), fmt.Appendf(nil, `{"pid":%d,"born":"1","fingerprint":"old"}`, bystander.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if !alive(bystander.Process.Pid) {
		t.Error("a process that only has the old engine's pid was ended")
	}
	if len(l.starts()) != 1 {
		t.Errorf("%d starts, want 1", len(l.starts()))
	}
}

func TestFailureIsExplainedAndTriedAgain(t *testing.T) {
	l := newLaptop(t)
	l.write("refuse", "port 6443 is taken")
	d := l.daemon(nil)
	d.waitFor(t, Failed)
	if why := d.State().Why; !strings.Contains(why, "port 6443 is taken") {
		t.Errorf("why %q does not say what the engine said", why)
	}
	if n := len(l.starts()); n < hopeless {
		t.Errorf("failed after %d starts", n)
	}
	if err := os.Remove(l.path("refuse")); err != nil {
		t.Fatal(err)
	}
	d.waitFor(t, Ready)
	if why := d.State().Why; why != "" {
		t.Errorf("ready, and why is %q", why)
	}
}

func TestMissingProgramIsSaid(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(func(c *BuiltinConfig) { c.RuntimeDir = l.path("nowhere") })
	d.waitFor(t, Failed)
	if why := d.State().Why; !strings.Contains(why, "missing") {
		t.Errorf("why %q", why)
	}
}

func TestDeafEngineIsKilled(t *testing.T) {
	l := newLaptop(t)
	l.write("deaf", "")
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	d.stop()
	l.daemon(func(c *BuiltinConfig) { c.Flags = []string{"--pod-mtu=1400"} }) // ends the first, which is deaf to SIGTERM
	eventually(t, "the engine's end", func() bool { return !alive(l.starts()[0].pid) })
}

func TestSilentEngineIsDegradedThenReplaced(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := os.Remove(l.path("ready")); err != nil {
		t.Fatal(err)
	}
	d.waitFor(t, Degraded)
	eventually(t, "a new engine", func() bool { return len(l.starts()) == 2 })
	d.waitFor(t, Ready)
	if alive(l.starts()[0].pid) {
		t.Error("the silent engine still runs")
	}
}

func TestTwoDaemonsDoNotShareAnEngine(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	other, err := NewBuiltin(d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another kithd") {
		t.Errorf("second Run: %v", err)
	}
}

func TestWaitReadySaysWhatItWaitsFor(t *testing.T) {
	l := newLaptop(t)
	l.write("refuse", "no space left on device")
	d := l.daemon(nil)
	eventually(t, "a start", func() bool { return len(l.starts()) > 1 })
	eventually(t, "it says why", func() bool { // not while it is being started once more
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := d.WaitReady(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("WaitReady: %v", err)
		}
		return strings.Contains(err.Error(), "no space left")
	})
}

func TestNobodyWaitsWhoseContextEnded(t *testing.T) {
	s := newStatus(Ready, "")
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.WaitReady(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	if err := s.WaitReady(ctx); !errors.Is(err, context.Canceled) { // who waits in a loop would go round and round
		t.Errorf("of a cluster that is ready: %v", err)
	}
}

func TestLastWordsSayWhyTheEngineEnded(t *testing.T) {
	dir := t.TempDir()
	b := newChild(slog.New(slog.DiscardHandler))
	b.name, b.dataDir = Program, dir
	for _, tt := range []struct{ log, want string }{
		{"", "it was killed; its log is " + b.logFile()},
		{"E1121 07:00:00.1 reflector.go:1] watch ended\n", "it was killed; its log is " + b.logFile()},
		{"I1121 started\nkith-k8s: port 6443 is in use\n\n", "port 6443 is in use"},
		{"kith-k8s: an earlier end\nI1121 started again\n", "it was killed; its log is " + b.logFile()},
		{"panic: nil map\n" + b.startMark() + "\nI1121 started again\n", "it was killed; its log is " + b.logFile()},
		{"kith-k8s: an earlier end\n" + b.startMark() + "\n", "it was killed; its log is " + b.logFile()},
		{"I1121 started\ntime=\"2026-11-23T07:00:00Z\" level=fatal msg=\"starting kubernetes: \\\"bind\\\": in use\"\n", `starting kubernetes: "bind": in use`},
		{"panic: nil map\n\ngoroutine 1 [running]:\nmain.main()\n", "it crashed: panic: nil map; see " + b.logFile()},
	} {
		if err := os.WriteFile(b.logFile(), []byte(tt.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := b.lastWords(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.log, got, tt.want)
		}
	}
}
