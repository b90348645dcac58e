package containerd

import (
	"context"
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
)

// runtimeDir holds stand-ins for containerd, the shim and runc.
var runtimeDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ctrd-")
	if err != nil {
		panic(err)
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "containerd"), "./testdata/containerd").CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	for _, name := range []string{"containerd-shim-runc-v2", "runc"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			panic(err)
		}
	}
	runtimeDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// laptop is where a test's containerd lives; servers come and go on it.
type laptop struct {
	t    *testing.T
	opts Options
}

func newLaptop(t *testing.T) laptop {
	dir, err := os.MkdirTemp("", "ctrd-") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	l := laptop{t, Options{RuntimeDir: runtimeDir, DataDir: filepath.Join(dir, "data"), StateDir: filepath.Join(dir, "run"), CNIConf: dir, PauseImage: "kith.dev/pause:1"}}
	t.Cleanup(func() {
		for _, pid := range l.starts() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // only those that the tests started
		}
		os.RemoveAll(dir)
	})
	return l
}

func (l laptop) starts() (pids []int) {
	b, _ := os.ReadFile(filepath.Join(l.opts.DataDir, "starts"))
	for _, word := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			l.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// server supervises as a kith-k8s server does, until the returned function is called, and waits for the socket.
func (l laptop) server() (stop func()) {
	l.t.Helper()
	r := New(l.opts, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	patience, end := context.WithTimeout(ctx, 2*time.Minute)
	defer end()
	if err := r.WaitReady(patience); err != nil {
		l.t.Fatal(err)
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("Run: %v", err)
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func (l laptop) waitForStarts(n int) []int {
	l.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if pids := l.starts(); len(pids) == n {
			return pids
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%d starts, want %d", len(l.starts()), n)
		}
	}
}

func TestContainerdOutlivesTheServerAndIsAdopted(t *testing.T) {
	l := newLaptop(t)
	l.server()()
	pid := l.waitForStarts(1)[0]
	if !alive(pid) {
		t.Fatal("containerd ended with its server")
	}
	stop := l.server()
	time.Sleep(100 * time.Millisecond)
	if len(l.starts()) != 1 {
		t.Fatal("started beside the running one")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if again := l.waitForStarts(2)[1]; !alive(again) {
		t.Error("not started again after the adopted one ended")
	}
	stop()
}

func TestContainerdWithOtherConfigurationIsReplaced(t *testing.T) {
	l := newLaptop(t)
	l.server()()
	l.opts.PauseImage = "kith.dev/pause:2"
	stop := l.server()
	pids := l.waitForStarts(2)
	if alive(pids[0]) || !alive(pids[1]) {
		t.Error("want only the new one alive")
	}
	stop()
}

func TestPidOfAnotherProcessIsLeftAlone(t *testing.T) {
	l := newLaptop(t)
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Process.Kill()
	if err := os.MkdirAll(l.opts.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.opts.pidFile(), fmt.Appendln(nil, bystander.Process.Pid, "1", "old"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := l.server()
	l.waitForStarts(1)
	if !alive(bystander.Process.Pid) {
		t.Error("a process that only has the old containerd's pid was ended")
	}
	stop()
}

func TestMissingRuntimeIsSaid(t *testing.T) {
	l := newLaptop(t)
	l.opts.RuntimeDir = l.opts.DataDir
	if err := New(l.opts, slog.New(slog.DiscardHandler)).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--runtime-dir") {
		t.Errorf("Run: %v", err)
	}
}

func TestProxyOfTheCompanyIsHandedOn(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	t.Setenv("SECRET_TOKEN", "x")
	env := strings.Join(New(Options{}, nil).env, "\n")
	if !strings.Contains(env, "HTTPS_PROXY=http://proxy.example:3128") || strings.Contains(env, "SECRET_TOKEN") {
		t.Errorf("environment:\n%s", env)
	}
}
