package sysmon

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// No goroutine ever runs on the thread that is slackened, and programs that are started by a thread with its slack have the usual.
func TestTheMonitorAloneIsSlackened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs CAP_SYS_NICE")
	}
	monitor, err := thread()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Slacken(usual) }()
	if err := Slacken(3 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if slack, err := os.ReadFile(file(monitor)); err != nil || strings.TrimSpace(string(slack)) != "3000000" {
		t.Errorf("%s, %v", slack, err)
	}
	if err := Plain(); err != nil {
		t.Fatal(err)
	}
	if slack, err := os.ReadFile(file(monitor)); err != nil || strings.TrimSpace(string(slack)) != "50000" {
		t.Errorf("%s, %v, and not the usual", slack, err)
	}
	if err := Slacken(3 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			time.Sleep(10 * time.Millisecond)
			if unix.Gettid() == monitor {
				t.Error("goroutines run on the thread that is slackened")
			}
		})
	}
	all.Wait()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 3_000_000, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	inherited := func() string {
		var out []byte
		if err := Exactly(func() (err error) {
			out, err = exec.Command("cat", "/proc/self/timerslack_ns").Output()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := inherited(); got != "50000" {
		t.Errorf("a program that is started has a slack of %s ns", got)
	}
}
