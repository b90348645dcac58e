package peering

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/agree/presence"
	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
)

func TestProbeTellsWhichStepFailed(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	mute := listen(t, "127.0.0.1:0") // takes connections and says nothing
	t.Cleanup(func() { mute.Close() })
	_, port, _ := net.SplitHostPort(bob.addr)
	for name, tc := range map[string]struct {
		address string
		expect  identity.ID
		step    Step
		why     string
	}{
		"all well":          {bob.addr, bob.ID(), StepDone, ""},
		"by name":           {"localhost:" + port, bob.ID(), StepDone, ""},
		"whoever it is":     {bob.addr, identity.ID{}, StepDone, ""},
		"no such name":      {"nobody.invalid:6450", bob.ID(), StepResolve, "name not found"},
		"nobody listens":    {closed(t), bob.ID(), StepConnect, "connection refused"},
		"another key":       {bob.addr, someone(t).ID(), StepKey, bob.ID().String()},
		"no TLS, no answer": {mute.Addr().String(), bob.ID(), StepKey, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := ProbeAddress(within(t, patience), alice, tc.expect, tc.address)
			if p.Failed != tc.step || !strings.Contains(p.Why(), tc.why) || (p.Err == nil) != (tc.step == StepDone) {
				t.Errorf("%+v: %s", p, p.Why())
			}
			if tc.step == StepDone && (p.Hello.Name != "bob" || p.Peer != bob.ID() || p.TCP <= 0 || !p.HasClock || p.Clock.Abs() > 3*time.Second) {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestProbeSeesAnotherVersion(t *testing.T) {
	me := someone(t)
	l := listen(t, "127.0.0.1:0")
	server := &http.Server{TLSConfig: me.ServerTLS(), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.Write([]byte(`{"version":"9","id":"` + me.ID().String() + `","name":"bob","protocol":["kith/v9"]}`))
	})}
	go server.ServeTLS(l, "", "")
	defer server.Close()
	p := ProbeAddress(within(t, patience), someone(t), me.ID(), l.Addr().String())
	if p.Failed != StepHello || !errors.Is(p.Err, &Problem{Code: CodeVersion}) || !strings.Contains(p.Why(), "kith/v9") {
		t.Errorf("%+v: %s", p, p.Why())
	}
	if d := p.Clock + time.Hour; !p.HasClock || d.Abs() > 2*time.Second {
		t.Errorf("its clock is said to be %s ahead, want an hour behind", p.Clock)
	}
}

func TestContactKnowsThePeersClock(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	c, log := keep(t, alice)
	c.Set([]Target{{ID: bob.ID(), Name: "bob-at-work", Addresses: []string{bob.addr}}})
	if got := becomes(t, c, bob.ID(), presence.Reachable); got.Clock == 0 || got.Clock.Abs() > 3*time.Second {
		t.Errorf("the clock is %s ahead", got.Clock)
	}
	if want := "peer=bob-at-work id=" + bob.ID().String(); !strings.Contains(log.String(), want) {
		t.Errorf("want %q in the log: %s", want, log)
	}
}

// counter remembers what was answered and refused.
type counter struct {
	mu       sync.Mutex
	answered []answered
	refused  []audit.Reason
}

type answered struct {
	route  string
	status int
}

func (c *counter) Answered(route string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = append(c.answered, answered{route, status})
}

func (c *counter) count(_ audit.Door, reason audit.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = append(c.refused, reason)
}

func (c *counter) has(t *testing.T, want answered) {
	t.Helper()
	eventually(t, "it is counted", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.answered, want)
	})
}

func (c *counter) hasRefused(t *testing.T, reason audit.Reason) {
	t.Helper()
	eventually(t, "refusal is counted: "+string(reason), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.refused, reason)
	})
}

func TestServerCountsAnswersAndRefusals(t *testing.T) {
	counts := new(counter)
	bob := bob(t, Limits{CallerRate: Rate{0.01, 4}}, func(s *Server) {
		s.config.Answered, s.refusals = counts.Answered, audit.New(quiet(), audit.Options{Count: counts.count})
		s.Handle("/kube/", func(w http.ResponseWriter, _ *http.Request, _ Caller) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
				conn.Close()
			}
		})
	})
	client := dialer(t, someone(t), bob.ID(), bob.addr)
	ctx := within(t, patience)
	_, err := client.Hello(ctx)
	must(t, err)
	counts.has(t, answered{"GET /kith/v1/hello", 200})
	if s, err := client.presence(ctx); err != nil {
		t.Error(err)
	} else {
		counts.has(t, answered{"GET /kith/v2/presence", 200}) // at its begin
		s.close()
	}
	must(t, client.Call(ctx, http.MethodDelete, "/kith/v2/contracts/0123456789abcdef", nil, nil))
	counts.has(t, answered{"DELETE /kith/v2/contracts/{id}", 204})
	wantProblem(t, client.Call(ctx, http.MethodGet, "/kith/v2/nothing", nil, nil), CodeNotFound)
	counts.has(t, answered{"/", 404})
	_, err = client.Hello(ctx)
	wantProblem(t, err, CodeRateLimited)
	counts.has(t, answered{"", 429})
	counts.hasRefused(t, "rate-limited")

	conn, err := client.DialTLS(ctx)
	must(t, err)
	defer conn.Close()
	conn.Write([]byte("GET /kube/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
	counts.has(t, answered{"/kube/", 101})

	plain, err := net.Dial("tcp", bob.addr)
	must(t, err)
	defer plain.Close()
	plain.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	counts.hasRefused(t, RefusedHandshake)
}
