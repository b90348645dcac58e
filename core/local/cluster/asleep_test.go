package cluster

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/base/process"
)

func nobody() bool { return false }

// lies reports whether nothing of the engine runs.
func (l laptop) lies() bool {
	for _, s := range l.starts() {
		if alive(s.pid) {
			return false
		}
	}
	return true
}

func TestAnEngineSleepsUntilItIsWoken(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	if err := d.Sleep(t.Context(), nobody); err == nil {
		t.Error("one that has not been ready went to sleep")
	}
	d.waitFor(t, Ready)
	// Stands for containerd, which the engine leaves running.
	runtime := exec.Command("sleep", "600")
	runtime.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := os.MkdirAll(l.path("run/containerd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	defer runtime.Process.Kill()
	p, err := process.Hold(runtime, l.path("run/containerd/containerd.pid"), "")
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := d.Sleep(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	if !l.lies() || alive(runtime.Process.Pid) {
		t.Errorf("it sleeps, and runs: engine %v, its runtime %v", !l.lies(), alive(runtime.Process.Pid))
	}
	if s := d.State(); s.Phase != Asleep || s.Why == "" {
		t.Errorf("%+v", s)
	}
	if err := d.Sleep(t.Context(), nobody); err == nil {
		t.Error("it went to sleep twice")
	}
	time.Sleep(20 * d.pace.watching)
	if n := len(l.starts()); n != 1 {
		t.Fatalf("%d starts: it was started while it slept", n)
	}
	d.Wake("a test")
	if s := d.State(); s.Phase != Starting || s.Why == "" { // it says that it was asleep, or which program it starts by now
		t.Errorf("right after: %+v", s)
	}
	d.Wake("a test")
	d.waitFor(t, Ready)
	if n := len(l.starts()); n != 2 {
		t.Errorf("%d starts", n)
	}
}

// Whoever needs it while it is being ended gets it.
func TestAnEngineIsWokenWhileItFallsAsleep(t *testing.T) {
	l := newLaptop(t)
	l.write("deaf", "") // it takes its time to end
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	slept := make(chan error, 1)
	go func() { slept <- d.Sleep(t.Context(), nobody) }()
	d.waitFor(t, Asleep)
	d.Wake("a test")
	if err := <-slept; err == nil {
		t.Error("Sleep says that it sleeps")
	}
	d.waitFor(t, Ready)
	eventually(t, "one engine", func() bool { return len(l.starts()) <= 2 && alive(l.starts()[len(l.starts())-1].pid) })
}

// One that is killed in the moment in which it is to sleep is not started for that.
func TestAnEngineThatEndsByItselfMaySleep(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := syscall.Kill(l.starts()[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for d.State().Phase == Ready {
		if err := d.Sleep(t.Context(), nobody); err == nil {
			break
		}
	}
	if d.State().Phase == Asleep && !l.lies() {
		t.Error("it sleeps and runs")
	}
}

func TestAnEngineThatSleepsIsWokenToDecide(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := d.Sleep(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	if err := d.Decide(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if s := d.State(); s.Phase != Ready {
		t.Errorf("%+v", s)
	}
}

func TestAKithdThatStopsLeavesASleeperAsleep(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := d.Sleep(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	d.stop()
	if !l.lies() {
		t.Error("it runs")
	}
	d = l.daemon(nil)
	d.waitFor(t, Ready)
}

func TestWhatIsNotOursIsNotPutToSleep(t *testing.T) {
	k := &Kubeconfig{status: newStatus(Ready, "")}
	if err := k.Sleep(t.Context(), nobody); !errors.Is(err, ErrNotOurs) || k.State().Phase != Ready {
		t.Errorf("%v, %v", err, k.State())
	}
	k.Wake("a test")
}

// Somebody asked it something a moment before.
func TestAnEngineThatIsUsedDoesNotSleep(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := d.Sleep(t.Context(), func() bool { return d.State().Phase == Asleep }); err == nil {
		t.Error("it sleeps")
	}
	time.Sleep(20 * d.pace.watching)
	if s, n := d.State(), len(l.starts()); s.Phase != Ready || n != 1 {
		t.Errorf("%v, %d starts", s, n)
	}
}

// Whoever knows the port of the API server wakes it by connecting to it, and what he said already is answered.
func TestAConnectionWakesTheEngineAndIsAnswered(t *testing.T) {
	l := newLaptop(t)
	l.api = freeAddress(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := d.Sleep(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	var came []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", d.api)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("who is there?\n")); err != nil {
			t.Fatal(err)
		}
		came = append(came, conn)
	}
	for _, conn := range came {
		if said, err := io.ReadAll(conn); err != nil || string(said) != "you asked: who is there?\n" {
			t.Errorf("%q, %v", said, err)
		}
	}
	d.waitFor(t, Ready)
}

// An engine that runs on while kithd is started anew has the socket. The new kithd gets it from there, so nobody is refused when that engine ends.
func TestTheSocketOfAnAdoptedEngineStaysOpen(t *testing.T) {
	l := newLaptop(t)
	l.api = freeAddress(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	d.stop()
	d = l.daemon(nil)
	d.waitFor(t, Ready)
	if n := len(l.starts()); n != 1 {
		t.Fatalf("%d starts: it is not the engine of before", n)
	}
	// Whoever connects may wake it before it sleeps: then it is tried again, until that engine has ended.
	for d.State().Phase != Asleep && len(l.starts()) == 1 {
		tried := make(chan struct{})
		go func() { _ = d.Sleep(t.Context(), nobody); close(tried) }()
		for over := false; !over; {
			select {
			case <-tried:
				over = true
			default:
			}
			conn, err := net.Dial("tcp", l.api)
			if err != nil {
				t.Fatalf("refused while the engine falls asleep: %v", err)
			}
			conn.Close()
		}
	}
}

// freeAddress is one of loopback that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// What an engine that ended had asked its own API server a moment before must not wake it.
func TestWhoHungUpIsGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, hangsUp := range []bool{false, true} {
		there, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer there.Close()
		if _, err := there.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		if hangsUp {
			there.Close()
		}
		here, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		if hangsUp {
			eventually(t, "it is seen", func() bool { return gone(here) })
		} else if gone(here) {
			t.Error("one that waits is taken for gone")
		}
	}
}
