package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/test/lab/pid1"
)

// bootDeadline is for mounts and network of one laptop; fifty at once on two cores take some seconds.
const bootDeadline = 60 * time.Second

// dieDeadline is how long the kernel may take to end all processes of a laptop.
const dieDeadline = 30 * time.Second

// switchOn starts PID 1 of a laptop (or of the LAN) in new namespaces. plug is called with its number as soon as the
// namespaces exist, while it makes its mounts, and connects the network; the daemon starts after both.
func (p *Laptop) switchOn(ctx context.Context, spec pid1.Spec, plug func(pid int) error) (err error) {
	binary, err := labBinary(p.lab.bin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.state, 0o755); err != nil {
		return fmt.Errorf("boot %s: %w", p.name, err)
	}
	if err := p.switchOff(ctx); err != nil { // what a crash left
		return fmt.Errorf("boot %s: %w", p.name, err)
	}
	_ = os.Remove(filepath.Join(p.state, pid1.StatusFile))
	if err := writeJSON(filepath.Join(p.state, pid1.SpecFile), spec); err != nil {
		return fmt.Errorf("boot %s: %w", p.name, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("boot %s: %w", p.name, err)
			err = errors.Join(err, p.switchOff(context.WithoutCancel(ctx)))
		}
	}()
	if err := p.group.Make(); err != nil {
		return err
	}
	c, pipes, err := p.startInit(binary)
	if err != nil {
		return err
	}
	defer pipes.close()
	// Reaps it when this process outlives the laptop; otherwise the machine's init does.
	defer func() { go c.Wait() }() //nolint:errcheck // a laptop ends by being killed

	if err := plug(c.Process.Pid); err != nil {
		_ = c.Process.Kill()
		return pipes.report(err) // if it failed itself, that is the reason of all
	}
	if _, err := pipes.goOn.Write([]byte("g")); err != nil {
		return pipes.report(err)
	}
	_ = pipes.said.SetReadDeadline(time.Now().Add(bootDeadline))
	if err := pipes.report(nil); err != nil {
		_ = c.Process.Kill()
		return err
	}
	return nil
}

type initPipes struct {
	goOn, said *os.File
}

func (i initPipes) close() {
	i.goOn.Close()
	i.said.Close()
}

// report waits for the line in which init says "ok" or why not; instead, when it says nothing, is the error to give.
func (i initPipes) report(instead error) error {
	line, err := bufio.NewReader(i.said).ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case line == "ok":
		return nil
	case line != "":
		return errors.New(line)
	case instead != nil:
		return instead
	}
	return fmt.Errorf("its first process ended without a word: %w", err)
}

func (p *Laptop) startInit(binary string) (*exec.Cmd, initPipes, error) {
	log, err := os.OpenFile(filepath.Join(p.state, pid1.LogFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, initPipes{}, err
	}
	defer log.Close()
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		return nil, initPipes{}, err
	}
	defer goRead.Close()
	saidRead, saidWrite, err := os.Pipe()
	if err != nil {
		goWrite.Close()
		return nil, initPipes{}, err
	}
	defer saidWrite.Close()
	pipes := initPipes{goOn: goWrite, said: saidRead}

	c := exec.Command(binary, "init", filepath.Join(p.state, pid1.SpecFile))
	c.Dir, c.Env, c.Stdout, c.Stderr = "/", []string{"GOMAXPROCS=1"}, log, log
	c.ExtraFiles = []*os.File{goRead, saidWrite}
	c.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := c.Start(); err != nil {
		pipes.close()
		return nil, initPipes{}, err
	}
	return c, pipes, nil
}

// switchOff ends every process of the laptop at once and removes its cgroups. The disk stays.
func (p *Laptop) switchOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dieDeadline)
	defer cancel()
	for {
		if err := p.group.Empty(ctx); err != nil {
			return err
		}
		// A first process whose starter crashed may enter the cgroups just now: then they are not empty any more.
		short, cancel := context.WithTimeout(ctx, time.Second)
		err := p.group.Remove(short)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// booted says whether the laptop runs and its start was completed: a starter that crashed leaves half a laptop.
func (p *Laptop) booted() bool {
	_, err := os.Stat(filepath.Join(p.state, pid1.StatusFile))
	return err == nil && p.group.Init() != 0
}

// labBinary is the kith-lab program, which is the laptops' first process: this one, or the one beside the others.
func labBinary(bin string) (string, error) {
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "kith-lab" {
		return self, nil
	}
	path := filepath.Join(bin, "kith-lab")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the laptops' first process is %s, which is not there: build it (go build -o bin/ ./cmd/kith-lab)", path)
	}
	return path, nil
}
