package peering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// TestMain ends with a look for goroutines that outlived the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftovers(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
		code = 1
	}
	os.Exit(code)
}

func leftovers() string {
	var left []string
	for range 50 {
		left = nil
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		for _, g := range strings.Split(string(buf), "\n\n") {
			ours := strings.Contains(g, "kith.dev/core/agree/peering.") || strings.Contains(g, "net/http.(*")
			if ours && !strings.Contains(g, "TestMain") {
				left = append(left, g)
			}
		}
		if left == nil {
			return ""
		}
		time.Sleep(100 * time.Millisecond)
	}
	return strings.Join(left, "\n\n")
}

func someone(t testing.TB) *identity.Identity {
	t.Helper()
	who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	must(t, err)
	return who
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// memory is a Handler without a cluster: an owner who answers when told to.
type memory struct {
	self *identity.Identity

	mu         sync.Mutex
	recognised map[identity.ID]bool // and compared
	asked      []askedOf
	answers    map[string]Outcome
	answered   chan struct{} // closed and made anew with each answer
	ended      []string
	links      []Link
	notices    map[identity.ID][]chan Notice
	broken     error
	mismatch   bool // of what was taken back last
}

type askedOf struct {
	caller   Caller
	question Question
	code     string
	compare  bool
	id       string
}

func newMemory(self *identity.Identity) *memory {
	return &memory{
		self: self, recognised: map[identity.ID]bool{}, answers: map[string]Outcome{},
		answered: make(chan struct{}), notices: map[identity.ID][]chan Notice{},
	}
}

func (d *memory) Recognise(_ context.Context, c Caller) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.recognised[c.ID]
}

func (d *memory) Compared(ctx context.Context, c Caller) bool { return d.Recognise(ctx, c) }

func (d *memory) Ask(_ context.Context, c Caller, q Question, code string, compare bool) (string, time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return "", time.Time{}, d.broken
	}
	id := fmt.Sprintf("req-%d", len(d.asked))
	d.asked = append(d.asked, askedOf{c, q, code, compare, id})
	return id, time.Now().Add(time.Minute), nil
}

func (d *memory) WouldGive(_ context.Context, c Caller) (Supply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return Supply{}, d.broken
	}
	return Supply{State: SupplySome, Resources: map[string]string{"cpu": "2"}}, nil
}

func (d *memory) Withdraw(_ context.Context, c Caller, id string, mismatch bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mismatch = mismatch
	d.asked = slices.DeleteFunc(d.asked, func(a askedOf) bool { return a.caller.ID == c.ID && a.id == id })
	return d.broken
}

func (d *memory) answer(id string, o Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[id] = o
	close(d.answered)
	d.answered = make(chan struct{})
}

func (d *memory) Outcome(ctx context.Context, c Caller, id string) (Outcome, error) {
	for {
		d.mu.Lock()
		o, ok := d.answers[id]
		wait, known := d.answered, false
		for _, a := range d.asked {
			known = known || a.id == id && a.caller.ID == c.ID
		}
		d.mu.Unlock()
		switch {
		case !known:
			return Outcome{}, &Problem{Code: CodeNotFound, Message: "no such request"}
		case ok:
			return o, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return Outcome{State: OutcomePending}, nil
		}
	}
}

func (d *memory) Sign(_ context.Context, _ Caller, s contract.Signed) (contract.Signed, error) {
	return s, s.SignAs(contract.Provider, d.self)
}

func (d *memory) Contracts(context.Context, Caller) ([]ContractRef, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return nil, d.broken
	}
	return nil, nil
}

func (d *memory) End(_ context.Context, _ Caller, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = append(d.ended, id)
	return nil
}

func (d *memory) Link(_ context.Context, c Caller, l Link) (Link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.recognised[c.ID] {
		return Link{}, fmt.Errorf("bob's private detail: %w", &Problem{Code: CodeNoContract, Message: "no contract with you is in force"})
	}
	d.links = append(d.links, l)
	return someLink(), nil
}

func (d *memory) Notices(ctx context.Context, c Caller) <-chan Notice {
	ch := make(chan Notice, 8)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notices[c.ID] = append(d.notices[c.ID], ch)
	return ch
}

func (d *memory) tell(id identity.ID, n Notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ch := range d.notices[id] {
		ch <- n
	}
}

func (d *memory) asks() []askedOf {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]askedOf(nil), d.asked...)
}

// daemon is a running server.
type daemon struct {
	*identity.Identity
	*memory
	server *Server
	addr   string
	log    *journal
	stop   func() // gracefully; waits
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	for range 50 { // a port just left may be taken for a moment
		if l, err = net.Listen("tcp", addr); err == nil {
			return l
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal(err)
	return nil
}

func serve(t testing.TB, who *identity.Identity, addr string, limits Limits, more ...func(*Server)) *daemon {
	t.Helper()
	d := &daemon{Identity: who, memory: newMemory(who), log: &journal{}}
	d.server = newServer(ServerConfig{
		Identity: who, Name: func() string { return "bob" }, Version: "test",
		Handler: d.memory, Log: d.log.logger(),
	}, limits.withDefaults())
	for _, change := range more {
		change(d.server)
	}
	l := listen(t, addr)
	d.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.server.Serve(ctx, l) }()
	var once sync.Once
	d.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(2 * time.Minute):
				t.Error("the server does not end")
			}
		})
	}
	t.Cleanup(d.stop)
	return d
}

// withDefaults has the fields that a test leaves out as they are outside of it.
func (l Limits) withDefaults() Limits {
	all, given := defaultLimits, reflect.ValueOf(l)
	for i := range given.NumField() {
		if field := given.Field(i); !field.IsZero() {
			reflect.ValueOf(&all).Elem().Field(i).Set(field)
		}
	}
	return all
}

func bob(t testing.TB, limits Limits, more ...func(*Server)) *daemon {
	t.Helper()
	return serve(t, someone(t), "127.0.0.1:0", limits, more...)
}

func dialer(t testing.TB, who *identity.Identity, expect identity.ID, addrs ...string) *Client {
	t.Helper()
	c := NewClient(ClientConfig{Identity: who, Expect: expect, Addresses: addrs, Log: quiet()})
	t.Cleanup(c.Close)
	return c
}

// patience is for a call that is answered, on a machine that is busy with other things. What must be cut, or told at once, has less.
const patience = 2 * time.Minute

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// goOn is nothing to do before this side's nonce goes out.
func goOn() error { return nil }

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func wantProblem(t testing.TB, err error, code Code) *Problem {
	t.Helper()
	var p *Problem
	if !errors.As(err, &p) || p.Code != code {
		t.Fatalf("error %v, want a problem %s", err, code)
	}
	return p
}
