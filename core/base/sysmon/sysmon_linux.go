// Package sysmon lets the monitor thread of Go's runtime (runtime.sysmon) sleep less exactly. While anything runs that thread looks every 20 µs for
// goroutines that hold up others, so each timer and packet that wakes an idle program wakes it three or four times more. With slack
// (timerslack_ns of proc(5)) it looks about once.
//
// It must never give slack to another thread: timers of goroutines, and of the programs that are started, stay exact.
package sysmon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// usual is the kernel's slack.
const usual = 50 * time.Microsecond

// Slacken has the kernel add up to so much to each sleep of the monitor thread, from now on. It needs CAP_SYS_NICE.
func Slacken(most time.Duration) error {
	id, err := thread()
	if err != nil {
		return err
	}
	return os.WriteFile(file(id), []byte(strconv.FormatInt(most.Nanoseconds(), 10)), 0)
}

func file(thread int) string { return filepath.Join("/proc", strconv.Itoa(thread), "timerslack_ns") }

// thread is the monitor's: the first that the runtime makes, before any code of the program. Numbers of threads go up, and begin anew when they
// have reached their bound.
func thread() (int, error) {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	self := os.Getpid()
	var ids []int
	for _, e := range list {
		if id, err := strconv.Atoi(e.Name()); err == nil && id != self {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	i, _ := slices.BinarySearch(ids, self)
	switch {
	case len(ids) == 0:
		return 0, errors.New("this program has one thread")
	case i == len(ids):
		i = 0
	}
	return ids[i], nil
}

// Plain gives the threads that there are the usual slack: those of a program have what the thread had that started it. Call it first.
func Plain() error {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range list {
		id, err := strconv.Atoi(e.Name())
		if err == nil {
			err = os.WriteFile(file(id), []byte(strconv.FormatInt(usual.Nanoseconds(), 10)), 0)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Exactly calls start, which starts a program, on a thread with the usual slack: a program has that of the thread that started it, and hands it on
// to its own. A thread that the monitor made has the monitor's.
func Exactly(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(usual.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("set the slack of timers: %w", err)
	}
	return start()
}
