package relay

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/identity"
)

// laptop is one cluster with its peer API on the loopback.
type laptop struct {
	*peering.Server
	*Relay
	who      *identity.Identity
	contacts *peering.Contacts
	at       string

	mu     sync.Mutex
	peers  map[identity.ID]string
	listed bool
}

// handler knows the laptop's peers; nothing else is asked of it here.
type handler struct {
	peering.Handler
	*laptop
}

func (h handler) Recognise(_ context.Context, c peering.Caller) bool { return h.peer(c.ID) != "" }
func (h handler) Notices(_ context.Context, c peering.Caller) <-chan peering.Notice {
	h.contacts.Poke(c.ID) // as the daemon does
	return nil
}

func (l *laptop) peer(id identity.ID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers[id]
}

func (l *laptop) drop(id identity.ID) {
	l.mu.Lock()
	delete(l.peers, id)
	l.mu.Unlock()
	l.Review()
}

func boot(t *testing.T, offers bool, limits Limits) *laptop {
	t.Helper()
	who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	must(t, err)
	l := &laptop{who: who, peers: map[identity.ID]string{}}
	log := slog.New(slog.DiscardHandler)
	l.Server = peering.NewServer(peering.ServerConfig{Identity: who, Name: func() string { return "x" }, Handler: handler{laptop: l}, Log: log, Takes: true, Relays: offers})
	l.contacts = peering.NewContacts(peering.ContactsConfig{
		Identity: who, Log: log,
		Ways:     func(id identity.ID) []peering.Way { return l.Ways(id) },
		CallBack: func(from identity.ID, c peering.CallBack) { l.Relay.CallBack(from, c) },
	})
	l.Relay = New(Config{
		Me: who.ID(), Offers: offers, Limits: limits, Contacts: l.contacts, Server: l.Server, Log: log,
		Peer: l.peer, Accepted: func(id identity.ID) bool { return l.peer(id) != "" },
		Lists: func(identity.ID) bool { return l.listed },
	})
	l.Server.Handle("GET /echo", func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		io.WriteString(w, caller.ID.String()+" "+caller.Addr.String())
	})
	l.Server.Handle("GET /words", func(w http.ResponseWriter, r *http.Request, _ peering.Caller) { // until the caller has enough
		for r.Context().Err() == nil {
			io.WriteString(w, "word\n")
			http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	})
	l.Server.Handle("POST /stream", func(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
		if conn, err := peering.Upgraded(w, r, "echo"); err == nil {
			io.Copy(conn, conn)
			conn.Close()
		}
	})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l.at = socket.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Serve(ctx, socket) })
	running.Go(func() { l.contacts.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return l
}

// knows has l keep contact with another as a peer; where at is false no address of it is known.
func (l *laptop) knows(name string, other *laptop, at bool) {
	l.mu.Lock()
	l.peers[other.who.ID()] = name
	l.mu.Unlock()
	target := peering.Target{ID: other.who.ID(), Name: name}
	if at {
		target.Addresses = []string{other.at}
	}
	var all []peering.Target
	for _, c := range l.contacts.Snapshot() {
		if c.ID != target.ID {
			all = append(all, peering.Target{ID: c.ID, Name: c.Name, Addresses: addresses(c)})
		}
	}
	l.contacts.Set(append(all, target))
}

func addresses(c peering.Contact) []string {
	if c.Address == "" {
		return nil
	}
	return []string{c.Address}
}

// until waits for what the contact with a peer is to become.
func (l *laptop) until(t *testing.T, id identity.ID, ok func(peering.Contact) bool) peering.Contact {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		changed := l.contacts.Changed()
		c, _ := l.contacts.Contact(id)
		if ok(c) {
			return c
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the contact stays %+v", c)
		}
	}
}

func reachable(c peering.Contact) bool { return c.Reachable() }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// three are alice and bob, who know no address of each other, and carol, whom both can dial and who can dial neither.
func three(t *testing.T, offers bool, limits Limits) (alice, bob, carol *laptop) {
	t.Helper()
	alice, bob, carol = boot(t, false, limits), boot(t, false, limits), boot(t, offers, limits)
	carol.knows("alice", alice, false)
	carol.knows("bob", bob, false)
	alice.knows("carol", carol, true)
	bob.knows("carol", carol, true)
	carol.until(t, alice.who.ID(), reachable)
	carol.until(t, bob.who.ID(), reachable)
	relays := func(c peering.Contact) bool { return c.Reachable() && c.Relays == offers } // carol says so once she knows them
	alice.until(t, carol.who.ID(), relays)
	bob.until(t, carol.who.ID(), relays)
	return alice, bob, carol
}

func (l *laptop) client(t *testing.T, id identity.ID) *peering.Client {
	t.Helper()
	c, ok := l.contacts.Client(id)
	if !ok {
		t.Fatal("no client")
	}
	return c
}

func get(t *testing.T, c *peering.Client) string {
	t.Helper()
	resp, err := (&http.Client{Transport: c.Transport(), Timeout: 10 * time.Second}).Get(c.BaseURL() + "/echo")
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}

func TestWhoCannotBeDialledCallsBack(t *testing.T) {
	_, bob, carol := three(t, false, Default)
	c := carol.until(t, bob.who.ID(), reachable)
	if c.By != "bob" || c.At.IsValid() {
		t.Errorf("the contact is by %q, at %s", c.By, c.At)
	}
	if said := get(t, carol.client(t, bob.who.ID())); said != carol.who.ID().String()+" "+carol.at {
		t.Errorf("bob hears of %q", said)
	}
}

func TestTwoMeetByACommonPeer(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	alice.knows("bob", bob, false)
	bob.knows("alice", alice, false)
	for _, way := range []struct{ from, to *laptop }{{alice, bob}, {bob, alice}} {
		c := way.from.until(t, way.to.who.ID(), reachable)
		if c.By != "carol" && c.By != way.from.peer(way.to.who.ID()) { // the second may call back over the stream of the first
			t.Errorf("the contact is by %q", c.By)
		}
		if said := get(t, way.from.client(t, way.to.who.ID())); !strings.HasPrefix(said, way.from.who.ID().String()+" ") {
			t.Errorf("whoever is called hears of %q", said)
		}
	}
	conn, err := alice.client(t, bob.who.ID()).Upgrade(t.Context(), "/stream", "echo")
	must(t, err)
	defer conn.Close()
	sent := make([]byte, 1<<20)
	rand.Read(sent)
	go conn.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != string(sent) {
		t.Fatalf("a stream by carol: %v", err)
	}

	words, err := (&http.Client{Transport: alice.client(t, bob.who.ID()).Transport()}).Get(alice.client(t, bob.who.ID()).BaseURL() + "/words")
	must(t, err)
	defer words.Body.Close()
	heard := bufio.NewScanner(words.Body)

	// Once an address is known, it is taken.
	alice.knows("bob", bob, true)
	alice.until(t, bob.who.ID(), func(c peering.Contact) bool { return c.Reachable() && c.By == "" && c.At.IsValid() })
	if _, err := conn.Write([]byte("x")); err != nil { // what left HTTP goes on where it is
		t.Errorf("the stream that was there: %v", err)
	}
	if _, err := io.ReadFull(conn, got[:1]); err != nil {
		t.Errorf("the stream that was there: %v", err)
	}
	for range 200 { // and so does a call under way, for longer than words were on their way
		if !heard.Scan() {
			t.Fatalf("the answer that was under way: %v", heard.Err())
		}
	}
	if said := get(t, alice.client(t, bob.who.ID())); !strings.HasPrefix(said, alice.who.ID().String()+" 127.0.0.1:") {
		t.Errorf("bob hears of %q", said)
	}

	// Nothing passes once carol takes it back.
	carol.drop(bob.who.ID())
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(conn, got[:1]); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stream after bob is no peer of carol's: %v", err)
	}
}

func code(t *testing.T, err error) peering.Code {
	t.Helper()
	problem, ok := errors.AsType[*peering.Problem](err)
	if !ok {
		t.Fatalf("%v is no problem of a peer", err)
	}
	return problem.Code
}

func TestNobodyIsConnectedWhoIsNotAccepted(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	ask := func(from *laptop, to identity.ID) error {
		_, err := from.through(t.Context(), carol.who.ID(), to)
		return err
	}
	upgrade := func(from *laptop, to string) error {
		_, err := from.client(t, carol.who.ID()).Upgrade(t.Context(), relayPath+to, relayProtocol)
		return err
	}
	stranger := boot(t, false, Default)
	stranger.knows("carol", carol, true)
	for name, c := range map[string]struct {
		err  error
		want peering.Code
	}{
		"by a stranger":         {ask(stranger, bob.who.ID()), peering.CodeForbidden},
		"with a stranger":       {ask(alice, stranger.who.ID()), peering.CodeNotFound},
		"with oneself":          {ask(alice, alice.who.ID()), peering.CodeNotFound},
		"with the relay":        {ask(alice, carol.who.ID()), peering.CodeNotFound},
		"without asking before": {upgrade(stranger, bob.who.ID().Compact()), peering.CodeForbidden},
		"with no ID":            {upgrade(alice, "127.0.0.1:22"), peering.CodeBadRequest},
	} {
		if got := code(t, c.err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, c.err, c.want)
		}
	}
	// bob does not know alice, and does not call back.
	if got := code(t, upgrade(alice, bob.who.ID().Compact())); got != peering.CodeUnavailable {
		t.Errorf("with one who does not know the caller: %s", got)
	}
	// He does for those who read the catalogue in which he is.
	bob.listed = true
	conn, err := alice.through(t.Context(), carol.who.ID(), bob.who.ID())
	must(t, err)
	conn.Close()
}

func TestWhoDoesNotOfferRelaysNothing(t *testing.T) {
	alice, bob, carol := three(t, false, Default)
	bob.listed = true
	if c := alice.until(t, carol.who.ID(), reachable); c.Relays {
		t.Error("carol says that she relays")
	}
	if _, err := alice.through(t.Context(), carol.who.ID(), bob.who.ID()); code(t, err) != peering.CodeForbidden {
		t.Error(err)
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	limits := Default
	limits.Each = 2
	alice, bob, carol := three(t, true, limits)
	bob.listed = true
	var open []net.Conn
	for range limits.Each {
		conn, err := alice.through(t.Context(), carol.who.ID(), bob.who.ID())
		must(t, err)
		open = append(open, conn)
	}
	if _, err := alice.through(t.Context(), carol.who.ID(), bob.who.ID()); code(t, err) != peering.CodeRateLimited {
		t.Error(err)
	}
	for _, conn := range open {
		conn.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		carol.Relay.mu.Lock()
		left := len(carol.passing)
		carol.Relay.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("they are passed on although their ends are gone")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestACallIsAnsweredByWhoWasCalledAlone(t *testing.T) {
	alice, bob, carol := three(t, true, Default)
	token := peering.NewToken()
	a := &await{from: bob.who.ID(), conn: make(chan net.Conn), gone: make(chan struct{})}
	carol.Relay.mu.Lock()
	carol.awaited[token] = a
	carol.Relay.mu.Unlock()
	_, err := alice.client(t, carol.who.ID()).Upgrade(t.Context(), callBackPath+token, callBackProtocol)
	if code(t, err) != peering.CodeNotFound {
		t.Error(err)
	}
	conn, err := bob.client(t, carol.who.ID()).Upgrade(t.Context(), callBackPath+token, callBackProtocol)
	must(t, err)
	defer conn.Close()
	(<-a.conn).Close()
	if _, err := bob.client(t, carol.who.ID()).Upgrade(t.Context(), callBackPath+token, callBackProtocol); code(t, err) != peering.CodeNotFound {
		t.Errorf("a second time: %v", err)
	}
}
