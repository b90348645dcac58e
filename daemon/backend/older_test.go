package backend

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/find/directory"
	"kith.dev/core/find/discovery"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend/trouble"
)

// olderHandler knows everybody and has no news.
type olderHandler struct{ peering.Handler }

func (olderHandler) Recognise(context.Context, peering.Caller) bool { return true }
func (olderHandler) Notices(ctx context.Context, _ peering.Caller) <-chan peering.Notice {
	return make(chan peering.Notice)
}

// A peer that speaks kith/v2 and has no view is of no use to this Kith: that is said in one sentence, with what to do, and the peer
// is not asked again until its daemon is another one.
func TestAPeerWithoutAViewRunsAnOlderKith(t *testing.T) {
	load := func() *identity.Identity {
		who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	alice, bob := load(), load()
	log := slog.New(slog.DiscardHandler)
	// serve runs bob's daemon until it is told to stop.
	serve := func(address string, routes func(*peering.Server)) (at string, stop func()) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := peering.NewServer(peering.ServerConfig{Identity: bob, Name: func() string { return "bob" }, Version: "1", Handler: olderHandler{}, Log: log})
		routes(server)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Serve(ctx, listener) }()
		return listener.Addr().String(), func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	at, stop := serve("127.0.0.1:0", func(*peering.Server) {})

	contacts := peering.NewContacts(peering.ContactsConfig{Identity: alice, Log: log})
	d := directory.New(alice, contacts, discovery.NewTable(log), log)
	poked := make(chan string, 100)
	peer := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: bob.ID().String(), Endpoints: []string{at}},
		Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateConnected, Contract: "c"}},
	}
	go contacts.Run(t.Context())
	d.SetPeers([]*v1alpha1.Peer{peer})
	wait := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, d.Contact(peer))
			}
		}
	}
	wait("bob is reached", func() bool { return d.Contact(peer).Reachable() })
	d.OnChange(func(name string) { poked <- name })

	to, err := d.Client(peer)
	if err != nil {
		t.Fatal(err)
	}
	client, err := remote.NewClient(remote.ClientConfig{
		Peer: "bob", Contract: "c", To: to, Log: log,
		Since: func() time.Time { return d.Contact(peer).Since }, Older: func(since time.Time) { d.FoundOlder(peer, since) },
	})
	if err != nil {
		t.Fatal(err)
	}
	go client.View.Run(t.Context())
	if name := <-poked; name != "bob" {
		t.Errorf("%q is looked at again", name)
	}
	contact := d.Contact(peer)
	if !contact.Reachable() || !strings.Contains(contact.Why, "bob runs an older Kith") || !strings.Contains(contact.Why, "bring both to the same version") {
		t.Errorf("%+v", contact)
	}
	for _, k := range d.All() {
		k.Peer = peer
		if problems := trouble.OfPeer(k, gateway.Stats{Up: true}, true, time.Now()); len(problems) != 1 || problems[0].Why != contact.Why || !strings.Contains(problems[0].Do, "update") {
			t.Errorf("%+v", problems)
		}
	}

	stop()
	wait("bob is gone", func() bool { return !d.Contact(peer).Reachable() })
	_, stop = serve(at, func(s *peering.Server) {
		s.Handle("GET /kith/v2/view", func(w http.ResponseWriter, _ *http.Request, _ peering.Caller) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintln(w, `{"kind":"Synced"}`)
		})
	})
	defer stop()
	contacts.Poke()
	wait("bob is back", func() bool { return d.Contact(peer).Reachable() })
	if contact := d.Contact(peer); contact.Why != "" {
		t.Errorf("brought up to date: %+v", contact)
	}
	<-client.View.Known()
	if contact := d.Contact(peer); contact.Why != "" {
		t.Errorf("with a view: %+v", contact)
	}
}
