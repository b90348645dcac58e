package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program that an attempt of before left behind writes into what that attempt made, not into the volume.
func TestWhatIsLeftOfAnAttemptIsNotTheVolume(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	_, data := guestsVolume(t, f)
	path := filepath.Dir(data)
	device, err := unmount(path)
	if err != nil {
		t.Fatal(err)
	}
	device.Close()
	left, err := os.Create(path + halfSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if err := lengthen(path, 64<<20); err != nil {
		t.Fatal(err)
	}
	if size, err := growUnused(t.Context(), path); err != nil || size != 64<<20 {
		t.Fatal(size, err)
	}
	if _, err := left.WriteAt(bytes.Repeat([]byte("?"), 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := mountImages(f.root); err != nil {
		t.Errorf("the volume was written into: %v", err)
	}
}

// Programs do not go on when this process is killed: the next one works on the same files.
func TestProgramsEndWithTheProcess(t *testing.T) {
	const inChild = "KITH_TEST_PROGRAM"
	if note := os.Getenv(inChild); note != "" {
		t.Fatal(run(t.Context(), []string{"sh", "-c", `echo $$ > "$0.half" && mv "$0.half" "$0" && exec sleep 60`, note}))
	}
	note := filepath.Join(t.TempDir(), "pid")
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), inChild+"="+note)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	pid := 0
	until("no program started", func() bool {
		is, err := os.ReadFile(note)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(is)))
		}
		return err == nil
	})
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	defer func() {
		if t.Failed() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}()
	until("the program goes on", func() bool { // an ended one is there until init looks at it
		is, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || strings.Contains(string(is), ") Z ")
	})
}
