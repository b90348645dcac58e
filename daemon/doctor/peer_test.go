package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func someone(t *testing.T) *identity.Identity {
	t.Helper()
	who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// nobodysHandler is the handler of a peer that has nothing to say but hello.
type nobodysHandler struct{ peering.Handler }

func (nobodysHandler) Recognise(context.Context, peering.Caller) bool { return true }

// bob is a peer API that runs, and where.
func bob(t *testing.T) (*identity.Identity, string) {
	t.Helper()
	who := someone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := peering.NewServer(peering.ServerConfig{
		Identity: who, Name: func() string { return "bob" }, Version: "1.2.3", Handler: nobodysHandler{}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return who, l.Addr().String()
}

func TestPeerIsFollowedAsFarAsItGoes(t *testing.T) {
	who, address := bob(t)
	signed := peering.ContractRef{ID: "c1", Revision: 2, Role: contract.Consumer, State: api.StateConnected}
	well := func() Peer {
		return Peer{
			Name: "bob", ID: who.ID(), Me: someone(t), Addresses: []string{"127.0.0.1:1", address}, Port: 6450,
			Contracts: []peering.ContractRef{signed},
			Theirs:    func(context.Context) ([]peering.ContractRef, error) { return []peering.ContractRef{signed}, nil },
			HasTunnel: true, Tunnel: Tunnel{Up: true, LastHandshake: time.Now().Add(-time.Minute), Endpoint: "192.0.2.12:6450", MTU: 1420},
			Ping: func(context.Context, int) (time.Duration, error) { return time.Millisecond, nil },
			Node: func(context.Context) (Node, error) { return Node{Name: "kith-bob", Ready: true}, nil },
		}
	}
	const all = "address connect key protocol clock contract handshake ping mtu node"
	for name, tc := range map[string]struct {
		change func(*Peer)
		checks string // in order
		bad    string // "name state: part of why", or ""
	}{
		"all well":       {func(*Peer) {}, all, ""},
		"no address":     {func(p *Peer) { p.Addresses = nil }, "address contract handshake ping mtu node", "address fail: not on this network"},
		"nobody listens": {func(p *Peer) { p.Addresses = p.Addresses[:1] }, "address connect contract handshake ping mtu node", "connect fail: 127.0.0.1:1: connection refused"},
		"no such name":   {func(p *Peer) { p.Addresses = []string{"bob.invalid:6450"} }, "address contract handshake ping mtu node", "address fail: bob.invalid:6450: name not found"},
		"another key":    {func(p *Peer) { p.ID = someone(t).ID() }, "address connect key contract handshake ping mtu node", "key fail: " + who.ID().String()},
		"it ended there": {func(p *Peer) { p.Theirs = func(context.Context) ([]peering.ContractRef, error) { return nil, nil } }, all, "contract fail: it ended there"},
		"older there":    {func(p *Peer) { p.Contracts = []peering.ContractRef{{ID: "c1", Revision: 3}} }, all, "contract warning: did not arrive"},
		"books closed": {func(p *Peer) {
			p.Theirs = func(context.Context) ([]peering.ContractRef, error) { return nil, errors.New("starting") }
		}, all, "contract fail: starting"},
		"it ended here":     {func(p *Peer) { p.Contracts = nil }, "address connect key protocol clock contract", "contract warning: it ended here"},
		"books here closed": {func(p *Peer) { p.Contracts, p.Unread = nil, errors.New("the API server does not answer") }, all, ""},
		"no tunnel":         {func(p *Peer) { p.HasTunnel = false }, "address connect key protocol clock contract handshake node", "handshake fail: did not exchange"},
		"never a handshake": {func(p *Peer) { p.Tunnel.LastHandshake = time.Time{} }, all, "handshake fail: no handshake since"},
		"handshake too old": {func(p *Peer) { p.Tunnel.Up, p.Tunnel.Why = false, "no handshake for 60 min" }, all, "handshake fail: no handshake for 60 min"},
		"no ping": {func(p *Peer) {
			p.Ping = func(context.Context, int) (time.Duration, error) { return 0, errors.New("no answer") }
		}, "address connect key protocol clock contract handshake ping node", "ping fail: no answer"},
		"large packets vanish": {func(p *Peer) {
			p.Ping = func(_ context.Context, n int) (time.Duration, error) {
				if n > 1000 {
					return 0, errors.New("no answer")
				}
				return time.Millisecond, nil
			}
		}, all, "mtu warning: takes smaller ones only"},
		"node not ready": {func(p *Peer) {
			p.Node = func(context.Context) (Node, error) { return Node{Name: "kith-bob", Why: "peer is away"}, nil }
		}, all, "node fail: peer is away"},
		"provider only": {func(p *Peer) { p.Node = nil }, strings.TrimSuffix(all, " node"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := well()
			tc.change(&p)
			var names, bad []string
			p.Check(t.Context(), func(f api.Finding) {
				names = append(names, f.Name)
				if f.Peer != "bob" || f.Area != api.AreaPeer {
					t.Errorf("%+v", f)
				}
				if f.State != api.CheckOK && !(f.Name == "contract" && strings.Contains(f.What, "is not known")) {
					bad = append(bad, fmt.Sprintf("%s %s: %s", f.Name, f.State, f.Why))
				}
			})
			if got := strings.Join(names, " "); got != tc.checks {
				t.Errorf("looked at %s, want %s", got, tc.checks)
			}
			name, why, _ := strings.Cut(tc.bad, ": ")
			if tc.bad == "" && bad != nil || tc.bad != "" && (len(bad) != 1 || !strings.HasPrefix(bad[0], name) || !strings.Contains(bad[0], why)) {
				t.Errorf("bad is %q, want %q", bad, tc.bad)
			}
		})
	}
}

// Of contracts that cannot be read nobody says that they ended.
func TestWhoCannotReadHisBooksSaysSo(t *testing.T) {
	who, address := bob(t)
	theirs := func(context.Context) ([]peering.ContractRef, error) {
		return []peering.ContractRef{{ID: "c1", Revision: 2, Role: contract.Provider, State: api.StateConnected}}, nil
	}
	var said []string
	Peer{Name: "bob", ID: who.ID(), Me: someone(t), Addresses: []string{address}, Theirs: theirs, Unread: errors.New("connection refused")}.Check(t.Context(), func(f api.Finding) {
		if f.Name == "contract" {
			said = append(said, fmt.Sprintf("%s: %s: %s", f.State, f.What, f.Why))
		}
	})
	if got := strings.Join(said, "; "); got != "warning: contract c1 is in force at bob; whether it is here is not known: connection refused" {
		t.Error(got)
	}
}

func TestClocksApartAreTold(t *testing.T) {
	for ahead, want := range map[time.Duration]api.CheckState{
		time.Second: api.CheckOK, -2 * time.Minute: api.CheckWarning, time.Hour: api.CheckFail,
	} {
		f := Peer{Name: "bob"}.clock(about{area: api.AreaPeer, peer: "bob"}, ahead)
		if f.State != want || want != api.CheckOK && f.Do == "" {
			t.Errorf("%s ahead: %+v", ahead, f)
		}
	}
}

// Who ends a connection at once holds back a stranger, and is not somebody else by that.
func TestABrokenConnectionIsNotAWrongKey(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // with a reset
			c.Close()
		}
	}()
	p := Peer{Name: "bob", ID: someone(t).ID(), Me: someone(t), Addresses: []string{l.Addr().String()}}
	var found []api.Finding
	p.reach(t.Context(), about{area: api.AreaPeer, peer: "bob"}, func(f api.Finding) { found = append(found, f) })
	last := found[len(found)-1]
	if last.Name != "key" && last.Name != "connect" || last.State != api.CheckFail || !strings.Contains(last.What, "breaks the connection off") || !strings.Contains(last.Do, "wait a minute") {
		t.Errorf("%+v", last)
	}
}
