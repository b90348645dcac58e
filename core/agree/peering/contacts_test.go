package peering

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/core/agree/presence"
	"kith.dev/core/trust/identity"
)

// keep runs contacts of who for the length of the test.
func keep(t testing.TB, who *identity.Identity) (*Contacts, *journal) {
	t.Helper()
	log := &journal{}
	c := NewContacts(ContactsConfig{Identity: who, Log: log.logger()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(2 * time.Minute):
			t.Error("the contacts do not end")
		}
	})
	return c, log
}

func state(c *Contacts, id identity.ID) Contact {
	for _, one := range c.Snapshot() {
		if one.ID == id {
			return one
		}
	}
	return Contact{}
}

func becomes(t testing.TB, c *Contacts, id identity.ID, want presence.State) Contact {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", id.Short(), want), func() bool { return state(c, id).State == want })
	return state(c, id)
}

func TestContactsLearnWhoIsThere(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	c, log := keep(t, alice)
	changed := c.Changed()
	gone, never := someone(t).ID(), someone(t).ID()
	c.Set([]Target{
		{ID: bob.ID(), Name: "hint", Addresses: []string{closed(t), bob.addr}},
		{ID: gone, Name: "carol", Addresses: []string{closed(t)}},
		{ID: never},
	})
	got := becomes(t, c, bob.ID(), presence.Reachable)
	if got.Name != "bob" || got.Version != "test" || got.Why != "" || got.Address != bob.addr {
		t.Errorf("%+v", got)
	}
	if runtime.GOOS == "linux" && (got.RTT <= 0 || got.RTT > time.Second) {
		t.Errorf("round trip %s", got.RTT)
	}
	if got := becomes(t, c, gone, presence.Unreachable); got.Name != "carol" || !strings.Contains(got.Why, "connection refused") {
		t.Errorf("%+v", got)
	}
	if got := becomes(t, c, never, presence.Unreachable); !strings.Contains(got.Why, "no address") {
		t.Errorf("%+v", got)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	if !strings.Contains(log.String(), "peer reachable") || !strings.Contains(log.String(), bob.ID().String()) {
		t.Error(log)
	}
	client, ok := c.Client(bob.ID())
	if !ok {
		t.Fatal("no client")
	}
	if _, err := client.Hello(within(t, patience)); err != nil {
		t.Error(err)
	}
	if n := len(client.conns); n != 1 {
		t.Errorf("%d connections, want calls to share the one of the presence", n)
	}

	// Without it in the list the connection goes.
	c.Set(nil)
	eventually(t, "the connections are closed", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return len(client.conns) == 0
	})
	if len(c.Snapshot()) != 0 {
		t.Error("it is still shown")
	}
}

func TestSomebodyElseAnswersIsNamed(t *testing.T) {
	alice, mallory, expected := someone(t), bob(t, Limits{}), someone(t).ID()
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: expected, Addresses: []string{mallory.addr}}})
	got := becomes(t, c, expected, presence.Unreachable)
	if got.Cause != presence.OtherKey || !strings.Contains(got.Why, expected.String()) || !strings.Contains(got.Why, mallory.ID().String()) || got.ID != expected {
		t.Errorf("%+v", got)
	}
}

func TestGoodbyeIsSeenAtOnceAndReturnToo(t *testing.T) {
	alice, who := someone(t), someone(t)
	first := serve(t, who, "127.0.0.1:0", Limits{})
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: who.ID(), Addresses: []string{first.addr}}})
	since := becomes(t, c, who.ID(), presence.Reachable).Since
	go first.stop()
	got := becomes(t, c, who.ID(), presence.Unreachable)
	if got.Why != "kithd ended there" || !got.Since.After(since) {
		t.Errorf("%+v", got)
	}
	if n := <-c.Notices(); n.ID != who.ID() || n.Notice.Type != NoticeBye {
		t.Errorf("%+v", n)
	}
	first.stop()
	serve(t, who, first.addr, Limits{})
	becomes(t, c, who.ID(), presence.Reachable)
}

// The daemon is killed: no goodbye, the kernel closes its sockets.
func TestDeathIsSeenAtOnce(t *testing.T) { seeDeath(t, "", presence.Unreachable, "connection reset") }

func TestWhoSaidItGoesToSleepIsAsleep(t *testing.T) {
	seeDeath(t, NoticeSuspending, presence.Suspended, "went to sleep")
}

func seeDeath(t *testing.T, said NoticeType, state presence.State, why string) {
	alice, who := someone(t), someone(t)
	l := &killable{Listener: listen(t, "127.0.0.1:0")}
	server := NewServer(ServerConfig{Identity: who, Name: func() string { return "bob" }, Handler: newMemory(who), Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: who.ID(), Addresses: []string{l.Addr().String()}}})
	becomes(t, c, who.ID(), presence.Reachable)
	if said != "" {
		server.config.Handler.(*memory).tell(alice.ID(), Notice{Type: said})
		<-c.Notices()
	}
	l.kill()
	eventually(t, "the end of the stream", func() bool { got, _ := c.Contact(who.ID()); return !got.At.IsValid() })
	if got := becomes(t, c, who.ID(), state); got.Why != why || !got.Reached.IsValid() { // else it was silence that told
		t.Errorf("%+v", got)
	}
	if err := <-done; err == nil {
		t.Error("the server does not say that its listener broke")
	}
}

type killable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (k *killable) Accept() (net.Conn, error) {
	conn, err := k.Listener.Accept()
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.conns = append(k.conns, conn)
	}
	return conn, err
}

func (k *killable) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, conn := range k.conns {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	k.Listener.Close()
}

func TestNoticesArrive(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: bob.ID(), Addresses: []string{bob.addr}}})
	becomes(t, c, bob.ID(), presence.Reachable)
	bob.tell(alice.ID(), Notice{Type: NoticeContractEnded, Contract: "a1b2c3d4e5f6g7h8", Why: "line\nbreak"})
	bob.tell(alice.ID(), Notice{Type: NoticeContractEnded, Contract: "not one"}) // a defect of the memory: not sent
	bob.tell(alice.ID(), Notice{Type: NoticeSuspending})
	if n := <-c.Notices(); n.Notice != (Notice{Type: NoticeContractEnded, Contract: "a1b2c3d4e5f6g7h8", Why: "line?break"}) {
		t.Errorf("%+v", n)
	}
	if n := <-c.Notices(); n.Notice.Type != NoticeSuspending {
		t.Errorf("%+v", n)
	}
}

func TestANewAddressIsDialledAtOnce(t *testing.T) {
	t.Parallel()
	alice, bob := someone(t), bob(t, Limits{})
	c, _ := keep(t, alice)
	nowhere := Target{ID: bob.ID(), Addresses: []string{closed(t)}}
	c.Set([]Target{nowhere})
	becomes(t, c, bob.ID(), presence.Unreachable)
	time.Sleep(3500 * time.Millisecond) // the pauses have grown to 2 s and more
	c.Set([]Target{{ID: bob.ID(), Addresses: []string{nowhere.Addresses[0], bob.addr}}})
	begin := time.Now()
	becomes(t, c, bob.ID(), presence.Reachable)
	if took := time.Since(begin); took > backoffMin {
		t.Errorf("took %s: the pause was waited for", took)
	}
}

func TestPokeFindsWhatTheKernelDoesNotKnowYet(t *testing.T) {
	t.Parallel()
	var stuck atomic.Bool
	alice, bob := someone(t), bob(t, Limits{}, func(s *Server) {
		s.mux = http.NewServeMux()
		s.mux.HandleFunc("GET /kith/v2/presence", s.presence)
		s.call("GET /kith/v1/hello", callTimeout, func(_ http.ResponseWriter, r *http.Request, _ Caller) (message, error) {
			if stuck.Load() {
				<-r.Context().Done()
			}
			return s.self(), nil
		})
	})
	c, _ := keep(t, alice)
	c.Set([]Target{{ID: bob.ID(), Addresses: []string{bob.addr}}})
	before := becomes(t, c, bob.ID(), presence.Reachable)
	c.Poke()
	time.Sleep(200 * time.Millisecond)
	if got := state(c, bob.ID()); got.Since != before.Since {
		t.Errorf("a poke cuts a good connection: %+v", got)
	}
	stuck.Store(true)
	c.Poke(bob.ID())
	eventually(t, "the connection was cut", func() bool { return state(c, bob.ID()).Since.After(before.Since) })
	c.Poke(bob.ID())
	becomes(t, c, bob.ID(), presence.Reachable)
}

// Many targets at once: never more than eight dials under way that are not slow ones (dialHold).
func TestDialsDoNotStorm(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	c, _ := keep(t, someone(t))
	var targets []Target
	for range 3 * maxDials {
		who, slow := someone(t), &slowListener{Listener: listen(t, "127.0.0.1:0")}
		server := NewServer(ServerConfig{Identity: who, Name: func() string { return "bob" }, Handler: newMemory(who), Log: quiet()})
		serving.Go(func() { server.Serve(ctx, slow) })
		targets = append(targets, Target{ID: who.ID(), Addresses: []string{slow.Addr().String()}})
	}
	c.Set(targets)
	most, looked, since := 0, time.Now(), map[*contact]time.Time{}
	eventually(t, "all are reachable", func() bool {
		dialling, missing := 0, 0
		c.mu.Lock()
		now := time.Now()
		for _, one := range c.all {
			if one.now.State == presence.Reachable {
				continue
			}
			missing++
			one.client.mu.Lock()
			dials := len(one.client.conns)
			one.client.mu.Unlock()
			if _, known := since[one]; dials > 0 && !known {
				since[one] = now
			}
			if now.Sub(since[one]) < dialHold/2 {
				dialling += dials
			}
		}
		c.mu.Unlock()
		if now.Sub(looked) < dialHold/4 { // else those that it first saw now may be slow ones
			most = max(most, dialling)
		}
		looked = now
		return missing == 0
	})
	if most > maxDials {
		t.Errorf("%d dials at a time", most)
	}
}

// A room full of laptops that are off must not hold up the one that is there.
func TestTheDeadDoNotHoldUpTheLiving(t *testing.T) {
	t.Parallel()
	alice, bob := someone(t), bob(t, Limits{})
	c, _ := keep(t, alice)
	var targets []Target
	for i := range byte(3 * maxDials) {
		targets = append(targets, Target{ID: identity.ID{i + 1}, Addresses: []string{silent(t)}})
	}
	c.Set(append(targets, targets[0]))
	time.Sleep(700 * time.Millisecond) // all slots are taken
	c.Set(append(targets, Target{ID: bob.ID(), Addresses: []string{bob.addr}}))
	begin := time.Now()
	becomes(t, c, bob.ID(), presence.Reachable)
	t.Logf("after %s", time.Since(begin))
}

type slowListener struct{ net.Listener }

func (s *slowListener) Accept() (net.Conn, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Listener.Accept()
}

func TestTooManyTargetsAreCutOff(t *testing.T) {
	log := &journal{}
	c := NewContacts(ContactsConfig{Identity: someone(t), Log: log.logger()})
	var targets []Target
	for i := range maxContacts + 2 {
		targets = append(targets, Target{ID: identity.ID{1, byte(i >> 8), byte(i)}})
	}
	c.Set(targets)
	if n := len(c.Snapshot()); n != maxContacts || !strings.Contains(log.String(), "too many peers") {
		t.Errorf("%d contacts; %s", n, log)
	}
	c.Set(nil)
}

func TestAPresenceThatIsNoneIsRefused(t *testing.T) {
	alice := someone(t)
	for says, body := range map[string]string{
		"more than 4096 bytes":             strings.Repeat("x", 5000) + "\n",
		"does not begin with who it is":    `{"notice":{"type":"bye"}}` + "\n",
		"cannot be used":                   "hello?\n",
		"peer says it is":                  `{"hello":{"version":"1","id":"` + someone(t).ID().String() + `","name":"x","protocol":["kith/v2"]}}` + "\n",
		"speaks kith/v9, this Kith speaks": `{"hello":{"version":"1","id":"ID","name":"x","protocol":["kith/v9"]}}` + "\n",
	} {
		bob := bob(t, Limits{}, func(s *Server) {
			s.mux = http.NewServeMux()
			s.Handle("GET /kith/v2/presence", func(w http.ResponseWriter, r *http.Request, _ Caller) {
				w.Header().Set("Content-Type", "application/x-ndjson")
				fmt.Fprint(w, strings.ReplaceAll(body, `"ID"`, `"`+s.config.Identity.ID().String()+`"`))
			})
		})
		_, err := dialer(t, alice, bob.ID(), bob.addr).presence(within(t, patience))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
}
