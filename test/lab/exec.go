package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kubeconfig is the administrator's kubeconfig of the built-in engine inside a laptop.
const Kubeconfig = "/var/lib/kith/k8s/admin.kubeconfig"

// Command is something to run inside a laptop.
type Command struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Dir is the working directory; empty, or not there, means /root.
	Dir string
	// Env is added to the laptop's own environment, KEY=value.
	Env []string
	// Terminal makes the command the foreground job of the terminal that is its Stdin.
	Terminal bool
}

// Run runs a command in all namespaces and cgroups of the laptop, and waits for its end. The error is an
// *exec.ExitError when the command ran and failed.
func (p *Laptop) Run(ctx context.Context, c Command) error {
	pid, err := p.running()
	if err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return errors.New("no command given")
	}
	var cmd *exec.Cmd
	err = onOwnThread(func() error {
		v2, err := p.group.JoinThread()
		if err != nil {
			return err
		}
		cgroup := -1
		if v2 != "" {
			if cgroup, err = unix.Open(v2, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
				return fmt.Errorf("open cgroup: %w", err)
			}
			defer unix.Close(cgroup)
		}
		if err := enterNamespaces(pid); err != nil {
			return err
		}
		if cmd, err = p.command(ctx, c, cgroup); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("run %s in %s: %w", c.Args[0], p.name, err)
	}
	return cmd.Wait()
}

func (p *Laptop) command(ctx context.Context, c Command, cgroup int) (*exec.Cmd, error) {
	path, err := lookPath(c.Args[0], p.searchPath())
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, c.Args[1:]...)
	cmd.Args[0] = c.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.Env = append(p.environment(), c.Env...)
	cmd.Dir = c.Dir
	if i, err := os.Stat(c.Dir); err != nil || !i.IsDir() {
		cmd.Dir = "/root"
		if p.name == lanName {
			cmd.Dir = "/"
		}
	}
	// What the command leaves behind may hold the pipes open.
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: c.Terminal}
	if cgroup >= 0 {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, cgroup
	}
	return cmd, nil
}

// onOwnThread runs a function in a thread that ends with it, and takes along the namespaces and cgroups it entered.
func onOwnThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: Go ends the thread of a goroutine that ends locked
		if unix.Gettid() == unix.Getpid() {
			// But not the main thread; that one it parks for ever, and it would keep the cgroup from being removed and show
			// the laptop's mounts as /proc/self. While we hold it, the next try gets another.
			done <- onOwnThread(do)
			runtime.UnlockOSThread()
			return
		}
		done <- do()
	}()
	return <-done
}

// enterNamespaces puts the calling thread, which must be locked, into all namespaces of a process; for PIDs that
// means its children.
func enterNamespaces(pid int) error {
	// A thread that shares its root and working directory with others cannot change its mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("separate thread: %w", err)
	}
	names := []string{"cgroup", "ipc", "uts", "net", "pid", "mnt"} // mnt last: it changes what /proc is
	var fds []int
	for _, n := range names {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, n), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s namespace: %w", n, err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	for i, fd := range fds {
		if err := unix.Setns(fd, 0); err != nil {
			return fmt.Errorf("enter %s namespace: %w", names[i], err)
		}
	}
	return nil
}

func (p *Laptop) searchPath() string {
	return p.lab.bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// environment is a laptop's own; of the caller's only what describes the terminal comes in.
func (p *Laptop) environment() []string {
	env := []string{
		"PATH=" + p.searchPath(), "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash",
		"HOSTNAME=" + p.name, "KUBECONFIG=" + Kubeconfig, "KITH_LAB=" + p.lab.name,
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name == "TERM" || name == "COLORTERM" || name == "NO_COLOR" || name == "LANG" || strings.HasPrefix(name, "LC_") {
			env = append(env, kv)
		}
	}
	return env
}

// lookPath is exec.LookPath for a path that is not this process's own.
func lookPath(file, path string) (string, error) {
	if strings.Contains(file, "/") {
		return file, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		f := filepath.Join(dir, file)
		if i, err := os.Stat(f); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
			return f, nil
		}
	}
	return "", fmt.Errorf("%w in %s", &fs.PathError{Op: "find", Path: file, Err: exec.ErrNotFound}, path)
}

// Exec runs a command in the laptop and returns what it wrote. The error quotes the end of stderr.
func (p *Laptop) Exec(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	return p.ExecInput(ctx, nil, args...)
}

// ExecInput is Exec with input for the command.
func (p *Laptop) ExecInput(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var o, e bytes.Buffer
	err = p.Run(ctx, Command{Args: args, Stdin: stdin, Stdout: &o, Stderr: &e})
	if err != nil {
		said := strings.TrimSpace(tail(e.Bytes(), 600))
		if said == "" {
			said = strings.TrimSpace(tail(o.Bytes(), 600))
		}
		err = fmt.Errorf("%s: %s: %w: %s", p.name, strings.Join(args, " "), err, said)
	}
	return o.String(), e.String(), err
}

// Kith runs the kith command in the laptop and returns its output.
func (p *Laptop) Kith(ctx context.Context, args ...string) (string, error) {
	out, _, err := p.Exec(ctx, append([]string{"kith"}, args...)...)
	return out, err
}

func tail(b []byte, n int) string {
	if len(b) > n {
		return "…" + string(b[len(b)-n:])
	}
	return string(b)
}
