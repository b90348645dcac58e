package pid1

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"kith.dev/test/lab/cgroups"
)

// Run is `kith-lab init SPEC`. It must be PID 1 of new PID, mount, network, UTS and IPC namespaces, and returns only
// with an error. It works in two stages, because a cgroup namespace has its root where the process stands when it
// is made, and is made for one thread only: the first enters the cgroups, unshares, and executes the second in the
// same thread. The caller must have locked the main goroutine to the main thread.
func Run(specPath string, second bool) error {
	report := os.NewFile(reportFD, "report")
	err := run(specPath, second, report)
	// After a good start the pipe is closed, and this line goes nowhere.
	fmt.Fprintln(report, err)
	return err
}

func run(specPath string, second bool, report *os.File) error {
	spec, err := readSpec(specPath)
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("kith-lab init is started by kith-lab only, as the first process of a laptop")
	}
	if !second {
		return enter(spec, specPath)
	}
	if err := mountAll(spec); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	s := newSupervisor(spec, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err := s.listen(); err != nil {
		return err
	}
	plugged := os.NewFile(goFD, "go")
	if n, _ := plugged.Read(make([]byte, 1)); n != 1 {
		return errors.New("the starter died before the network was plugged in")
	}
	plugged.Close()
	unix.CloseOnExec(reportFD)
	if err := s.boot(); err != nil {
		return err
	}
	fmt.Fprintln(report, "ok")
	report.Close()
	return s.run(context.Background())
}

// enter is the first stage; it does not return unless it fails.
func enter(spec Spec, specPath string) error {
	// When the starter has crashed, the cgroup may already be that of the next try.
	wait := []unix.PollFd{{Fd: goFD, Events: unix.POLLIN}}
	if _, err := unix.Poll(wait, 0); err == nil && wait[0].Revents&unix.POLLHUP != 0 {
		return errors.New("the starter died")
	}
	if err := spec.Cgroup.Enter(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	for _, h := range spec.Cgroup.Hierarchies {
		if h.V2 {
			if err := cgroups.Settle(h.Mount + "/" + spec.Cgroup.Name); err != nil {
				return err
			}
		}
	}
	err := syscall.Exec("/proc/self/exe", []string{"kith-lab", "init", "--second", specPath}, os.Environ())
	return fmt.Errorf("execute the second stage: %w", err)
}
