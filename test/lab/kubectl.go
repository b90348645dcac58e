package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kubectl runs kubectl against the laptop's own cluster and returns its output.
func (p *Laptop) Kubectl(ctx context.Context, args ...string) (string, error) {
	return p.KubectlInput(ctx, nil, args...)
}

// KubectlInput is Kubectl with input, for `apply -f -`.
func (p *Laptop) KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	alone := p.kubectlAlone()
	if alone == "" || !answersAtOnce(args) {
		out, _, err := p.ExecInput(ctx, stdin, append(p.KubectlCommand(), args...)...)
		return out, err
	}
	var input []byte
	if stdin != nil {
		var err error
		if input, err = io.ReadAll(stdin); err != nil {
			return "", fmt.Errorf("read the input of kubectl: %w", err)
		}
	}
	process, err := p.lab.kubectls.of(p, alone)
	if err != nil {
		return "", err
	}
	a, err := process.ask(ctx, args, input)
	if err == nil && a.Code != 0 {
		err = fmt.Errorf("exit status %d", a.Code)
	}
	if err != nil {
		said := a.ErrOut
		if len(said) == 0 {
			said = a.Out
		}
		err = fmt.Errorf("%s: kubectl %s: %w: %s", p.name, strings.Join(args, " "), err, strings.TrimSpace(tail(said, 600)))
	}
	return string(a.Out), err
}

// KubectlCommand is how kubectl is called in the laptop as a program: the one that the tests built beside Kith's binaries (engine/test/kubectl),
// or part of the engine's, which takes three times as long to start.
func (p *Laptop) KubectlCommand() []string {
	if alone := p.kubectlAlone(); alone != "" {
		return []string{alone}
	}
	return []string{"kith-k8s", "kubectl"}
}

func (p *Laptop) kubectlAlone() string {
	alone := filepath.Join(p.lab.bin, "lab", "kubectl")
	if _, err := os.Stat(alone); err != nil {
		return ""
	}
	return alone
}

// shareable are kubectl's commands that a process shared with others can run.
var shareable = []string{
	"annotate", "api-resources", "apply", "auth", "cordon", "create", "delete", "describe", "events", "exec", "get", "label", "logs", "patch", "replace",
	"rollout", "run", "scale", "set", "taint", "top", "uncordon", "wait",
}

// answersAtOnce reports whether a process shared with other commands can run this one: no terminal, no stream, no setting of the process.
func answersAtOnce(args []string) bool {
	command := ""
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		switch {
		case a == "--":
			return command != ""
		case command == "" && slices.Contains(shareable, a):
			command = a
		case strings.HasPrefix(a, "-v"), command == "logs" && a == "-f",
			slices.Contains([]string{"-w", "-i", "-t", "-it", "-ti", "--attach", "--follow", "--stdin", "--tty", "--watch", "--watch-only"}, name):
			return false
		}
	}
	return command != ""
}

// kubectls are the processes of a lab that answer kubectl's commands, by laptop. The zero value is ready.
type kubectls struct {
	lock      sync.Mutex
	processes map[string]*kubectlProcess
}

// kubectlCall and kubectlAnswer are what engine/test/kubectl reads and writes. A call that is Ended is the word that nobody waits for it any more.
type (
	kubectlCall struct {
		ID    int
		Args  []string
		Input []byte
		Ended bool
	}
	kubectlAnswer struct {
		ID          int
		Out, ErrOut []byte
		Code        int
	}
)

// kubectlProcess is one process in a laptop. It ends with the laptop, or with this process, whose end it reads from.
type kubectlProcess struct {
	ended chan struct{} // closed when it cannot answer any more

	lock    sync.Mutex
	calls   *os.File
	last    int
	waiting map[int]chan kubectlAnswer
}

// of gives the process of a laptop, a new one where there is none or it ended.
func (k *kubectls) of(p *Laptop, program string) (*kubectlProcess, error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if c := k.processes[p.name]; c != nil {
		select {
		case <-c.ended:
		default:
			return c, nil
		}
	}
	in, calls, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to kubectl: %w", err)
	}
	answers, out, err := os.Pipe()
	if err != nil {
		in.Close()
		calls.Close()
		return nil, fmt.Errorf("make a pipe from kubectl: %w", err)
	}
	c := &kubectlProcess{ended: make(chan struct{}), calls: calls, waiting: map[int]chan kubectlAnswer{}}
	go func() {
		_ = p.Run(context.Background(), Command{Args: []string{program, "--serve"}, Stdin: in, Stdout: out})
		in.Close()
		out.Close()
	}()
	go c.read(answers)
	if k.processes == nil {
		k.processes = map[string]*kubectlProcess{}
	}
	k.processes[p.name] = c
	return c, nil
}

// read hands the answers to those that wait for them.
func (c *kubectlProcess) read(answers *os.File) {
	decoder := json.NewDecoder(answers)
	for {
		var a kubectlAnswer
		if err := decoder.Decode(&a); err != nil {
			break
		}
		c.lock.Lock()
		if waits := c.waiting[a.ID]; waits != nil {
			waits <- a
			delete(c.waiting, a.ID)
		}
		c.lock.Unlock()
	}
	close(c.ended)
	answers.Close()
	c.calls.Close()
}

// ask runs one command. Where nobody waits any longer, it gives what the command wrote until then.
func (c *kubectlProcess) ask(ctx context.Context, args []string, input []byte) (kubectlAnswer, error) {
	answered := make(chan kubectlAnswer, 1)
	id, err := c.send(kubectlCall{Args: args, Input: input}, answered)
	if err != nil {
		return kubectlAnswer{}, err
	}
	defer func() {
		c.lock.Lock()
		defer c.lock.Unlock()
		delete(c.waiting, id)
	}()
	select {
	case a := <-answered:
		return a, nil
	case <-c.ended:
		return kubectlAnswer{}, errKubectlEnded
	case <-ctx.Done():
	}
	_, _ = c.send(kubectlCall{ID: id, Ended: true}, nil)
	select {
	case a := <-answered:
		return a, ctx.Err()
	case <-c.ended:
	case <-time.After(time.Second): // as when the laptop is frozen
	}
	return kubectlAnswer{}, ctx.Err()
}

var errKubectlEnded = errors.New("the laptop's kubectl ended before it answered")

// send writes one call, with a number of its own when somebody waits for its answer.
func (c *kubectlProcess) send(call kubectlCall, answered chan kubectlAnswer) (id int, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if answered != nil {
		c.last++
		call.ID = c.last
		c.waiting[call.ID] = answered
	}
	text, err := json.Marshal(call)
	if err != nil {
		return 0, fmt.Errorf("write a call of kubectl: %w", err)
	}
	_ = c.calls.SetWriteDeadline(time.Now().Add(10 * time.Second)) // the pipe of a frozen laptop may be full
	if _, err := c.calls.Write(append(text, '\n')); err != nil {
		c.calls.Close() // half a call: the process ends at it
		return 0, fmt.Errorf("%w: %w", errKubectlEnded, err)
	}
	return call.ID, nil
}
