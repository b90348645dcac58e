// Kubectl is what stories of the lab call as kubectl: upstream's, alone, as that starts in a third of the time that it takes as a part of the
// engine. As `kubectl --serve` it runs many commands in one process, for tests that ask thousands of times: what kubectl does before it asks
// anything costs more processor time than the answer. It is part of no package and must never serve anybody else.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--serve" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "kubectl --serve:", err)
			os.Exit(1)
		}
		return
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it as kubectl does, and exits
	}
}

// call is one command, or the word that nobody waits for it any more.
type call struct {
	ID    int
	Args  []string
	Input []byte
	Ended bool
}

// answer is what a command wrote and its exit code.
type answer struct {
	ID          int
	Out, ErrOut []byte
	Code        int
}

// serve answers calls, each JSON value of the input one, until the input ends. Several run at a time.
func serve(in io.Reader, out io.Writer) error {
	util.BehaviorOnFatal(func(said string, code int) { panic(exit{said, code}) })
	var (
		lock    sync.Mutex
		encoder = json.NewEncoder(out)
		running = map[int]context.CancelFunc{}
	)
	for decoder := json.NewDecoder(in); ; {
		var c call
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a call: %w", err)
		}
		lock.Lock()
		if c.Ended {
			if end := running[c.ID]; end != nil {
				end()
			}
			lock.Unlock()
			continue
		}
		ctx, end := context.WithCancel(context.Background())
		running[c.ID] = end
		lock.Unlock()
		go func() {
			a := run(ctx, c)
			end()
			lock.Lock()
			defer lock.Unlock()
			delete(running, c.ID)
			_ = encoder.Encode(a) // where nobody reads, the input ends, too
		}()
	}
}

// exit is thrown where kubectl would end its process.
type exit struct {
	said string
	code int
}

// run runs one command. Its connections are its own, and are closed when it ended or nobody waits for it any more.
func run(ctx context.Context, c call) (a answer) {
	var out, errOut output
	defer func() {
		if r := recover(); r != nil {
			e, is := r.(exit)
			if !is {
				panic(r)
			}
			a.Code = e.code
			if e.said != "" {
				fmt.Fprintln(&errOut, string(bytes.TrimRight([]byte(e.said), "\n")))
			}
		}
		a.ID, a.Out, a.ErrOut = c.ID, out.take(), errOut.take()
	}()
	streams := genericiooptions.IOStreams{In: bytes.NewReader(c.Input), Out: &out, ErrOut: &errOut}
	dial := &dialer{}
	defer dial.close()
	defer context.AfterFunc(ctx, dial.close)()
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams).
		WithWrapConfigFn(func(config *rest.Config) *rest.Config {
			config.Dial = dial.dial
			return config
		})
	command := cmd.NewKubectlCommand(cmd.KubectlOptions{Arguments: append([]string{"kubectl"}, c.Args...), ConfigFlags: flags, IOStreams: streams})
	args, done, err := withInput(c)
	util.CheckErr(err)
	defer done()
	command.SetArgs(args)
	command.SetOut(&out)
	command.SetErr(&errOut)
	command.SilenceErrors, command.SilenceUsage = true, true
	util.CheckErr(command.ExecuteContext(ctx))
	return a
}

// withInput gives a call's arguments with a file in memory in place of the input: kubectl reads "-" from its process' own, not from what it is given.
func withInput(c call) ([]string, func(), error) {
	i := slices.Index(c.Args, "-f") + 1
	if i == 0 || i == len(c.Args) || c.Args[i] != "-" {
		return c.Args, func() {}, nil
	}
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("make a file in memory for the input: %w", err)
	}
	file := os.NewFile(uintptr(fd), "input")
	if _, err := file.Write(c.Input); err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("write the input into memory: %w", err)
	}
	args := slices.Clone(c.Args)
	args[i] = fmt.Sprintf("/proc/self/fd/%d", fd)
	return args, func() { file.Close() }, nil
}

// output is what one command writes; kubectl's warnings go to the command that began last, from whichever goroutine.
type output struct {
	lock  sync.Mutex
	bytes []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.bytes = append(o.bytes, b...)
	return len(b), nil
}

func (o *output) take() []byte {
	o.lock.Lock()
	defer o.lock.Unlock()
	return bytes.Clone(o.bytes)
}

// dialer keeps the connections of one command.
type dialer struct {
	lock   sync.Mutex
	opened []net.Conn
	closed bool
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	d.opened = append(d.opened, conn)
	return conn, nil
}

func (d *dialer) close() {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.closed = true
	for _, conn := range d.opened {
		conn.Close()
	}
	d.opened = nil
}
