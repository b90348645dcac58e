package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/net/netplan"
)

func TestTheEngineIsToldWithoutARestart(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if on := <-d.told; !on || !d.Decides() {
		t.Error("a new engine does not decide")
	}
	for _, on := range []bool{false, true, false} {
		for range 2 { // once more changes nothing
			if err := d.Decide(t.Context(), on); err != nil {
				t.Fatal(err)
			}
		}
		if told := <-d.told; told != on || d.Decides() != on {
			t.Fatalf("after Decide(%t): told %t, Decides is %t", on, told, d.Decides())
		}
	}
	if s := l.starts(); len(s) != 1 || len(d.told) != 0 {
		t.Errorf("%d starts, told %d times more", len(s), len(d.told))
	}
}

func TestWhatWasSaidLastHoldsForEveryStart(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := d.Decide(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ends := func() {
		t.Helper()
		n := len(l.starts())
		if err := syscall.Kill(l.starts()[n-1].pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another start", func() bool { return len(l.starts()) == n+1 })
	}
	says := func(on bool) {
		t.Helper()
		s := l.starts()
		if want := fmt.Sprintf("--deciding=%t", on); !strings.Contains(s[len(s)-1].args, want) {
			t.Errorf("no %s in %s", want, s[len(s)-1].args)
		}
	}
	ends()
	says(false)

	// Another daemon adopts it, does not end it for that, and says it again: the one before may not have come so far.
	d.waitFor(t, Ready)
	d.stop()
	n := len(l.starts())
	d = l.daemon(nil)
	d.waitFor(t, Ready)
	if on := <-d.told; on || d.Decides() || len(l.starts()) != n {
		t.Errorf("the next daemon tells it %t, starts %d, had %d", on, len(l.starts()), n)
	}
	ends()
	says(false)
	if err := d.Decide(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	ends()
	says(true)
}

func TestAnEngineThatCannotBeToldIsNotReady(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	l.write("mute", "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	said := make(chan bool, 1)
	go func() { // the reason is one of several things that it says in this time
		said <- d.wait(t.Context(), func(s State) bool { return strings.Contains(s.Why, "its socket is gone") }) == nil
	}()
	if err := d.Decide(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Decide: %v", err)
	}
	if !<-said {
		t.Error("it does not say why")
	}
	eventually(t, "a start as it is wanted", func() bool {
		s := l.starts()
		return len(s) > 1 && strings.Contains(s[len(s)-1].args, "--deciding=false")
	})
	if err := os.Remove(l.path("mute")); err != nil {
		t.Fatal(err)
	}
	d.waitFor(t, Ready)
	if done, wanted := d.deciding.look(false); !done || !wanted {
		t.Errorf("ready, done %t, wanted %t", done, wanted)
	}
}

func TestWhatCannotBeNotedIsNotDone(t *testing.T) {
	l := newLaptop(t)
	d := l.daemon(nil)
	d.waitFor(t, Ready)
	if err := os.Mkdir(d.undecidedFile(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Decide(t.Context(), false); err == nil || !d.Decides() {
		t.Errorf("Decide: %v, and it wants %t", err, d.Decides())
	}
}

func TestTheLaterDecisionCounts(t *testing.T) {
	var d deciding
	d.set(true)
	if want, news := d.next(); !want || !news {
		t.Error("an engine of which nothing is known is not told")
	}
	d.told(true)
	d.set(false)
	if want, news := d.next(); want || !news {
		t.Error("news is not told")
	}
	d.set(true) // while it is told the other
	if done, wanted := d.look(true); done || !wanted {
		t.Errorf("done %t, wanted %t: it may be off already", done, wanted)
	}
	d.told(false)
	if _, wanted := d.look(false); wanted {
		t.Error("who said it first thinks that it holds")
	}
	if want, news := d.next(); !want || !news {
		t.Error("the later one is not told")
	}
}

func TestTheEnginesSocketIsUnderstood(t *testing.T) {
	b, err := NewBuiltin(BuiltinConfig{NodeName: "alice", Network: netplan.Usual(), DataDir: t.TempDir(), RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.tellEngine(t.Context(), true); err == nil || !strings.Contains(err.Error(), "deciding.sock") {
		t.Errorf("without a socket: %v", err)
	}
	l, err := net.Listen("unix", b.path("deciding.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var on *bool
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ On *bool }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || r.Method != http.MethodPut || r.URL.Path != "/deciding" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		if on = m.On; *on {
			http.Error(w, "no API server", http.StatusServiceUnavailable)
		}
	})}
	go server.Serve(l)
	defer server.Close()
	if err := b.tellEngine(t.Context(), false); err != nil || on == nil || *on {
		t.Errorf("told %v: %v", on, err)
	}
	if err := b.tellEngine(t.Context(), true); err == nil || !strings.Contains(err.Error(), "503 Service Unavailable: no API server") {
		t.Errorf("%v", err)
	}
}
