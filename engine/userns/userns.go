// Package userns finds out whether pods can have a user namespace of their own on this machine (KEP-127): root in such a pod
// is nobody outside it. That the kernel and runc know of it is not enough: a distribution may forbid it, a file system
// may not have its mounts mapped, and in a container /proc may be covered. So it is tried.
package userns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is the argument with which the program has to call Inside.
const Command = "try-user-namespace"

// ids are mapped as the kubelet does, to some that nobody has.
const ids = 65536

// Try makes a user namespace as a pod's, and maps mounts of the folders into it. Self is this program.
func Try(self string, folders ...string) error {
	cmd := exec.Command(self, Command)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: ids, Size: ids}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: mapping, GidMappings: mapping,
		// It is not root there, but the laptop's root, who has no number inside: so it finds this program wherever that lies.
		// Without this it would lose its rights in exec(2).
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make a user namespace: %w (see /proc/sys/user/max_user_namespaces)", err)
	}
	mapped := mapAll(cmd.Process.Pid, folders)
	in.Close() // the child goes on
	if err := cmd.Wait(); err != nil {
		return errors.Join(errors.New(strings.TrimSpace("in a user namespace: "+errs.String())), mapped)
	}
	return mapped
}

func mapAll(pid int, folders []string) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	for _, folder := range folders {
		tree, err := unix.OpenTree(unix.AT_FDCWD, folder, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("copy the mount of %s: %w", folder, err)
		}
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())})
		unix.Close(tree)
		if err != nil {
			return fmt.Errorf("the file system of %s cannot be mapped into a user namespace: %w", folder, err)
		}
	}
	return nil
}

// Inside is what the child does: it mounts what every container has.
func Inside() error {
	_, _ = os.Stdin.Read(make([]byte, 1)) // until Try has mapped
	for _, fs := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := unix.Mount(fs[0], fs[1], fs[0], unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", fs[1], err)
		}
	}
	return nil
}
