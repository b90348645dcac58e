package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
)

// side is a cluster as far as links need one: its keys, its gateway, whose device is never brought up, its objects, and
// its peer API.
type side struct {
	t       *testing.T
	name    string
	me      *identity.Identity
	key     gateway.PrivateKey
	gateway *gateway.Gateway
	client  *ledger.Ledger
	config  Config
	linker  *Linker
	at      string // of the peer API

	came                    []netip.Prefix // networks that its laptop came to
	guestsHere, guestsThere bool           // run, of every peer
	addresses               []netip.Addr   // of those
	wentOn                  []*side        // where some of them are

	mu      sync.Mutex
	refused map[string]int // by reason, as the record of refusals counts
}

// idle is a gateway whose device is down: nobody need wait for a handshake. Its host may come to other networks.
type idle struct {
	*gateway.Gateway
	came *[]netip.Prefix
}

func (g idle) Taken(id string) ([]netip.Prefix, error) {
	taken, err := g.Gateway.Taken(id)
	return append(taken, *g.came...), err
}

func (g idle) Overlapping(id string) (laps []netip.Prefix) {
	p, _ := g.Peer(id)
	for _, r := range p.Ranges() {
		if !netplan.Free(r, *g.came) {
			laps = append(laps, r)
		}
	}
	return laps
}

func (idle) Stats(string) (gateway.Stats, bool) { return gateway.Stats{}, false }

// linkHandler has links answered.
type linkHandler struct {
	peering.Handler
	side *side
}

func (linkHandler) Recognise(context.Context, peering.Caller) bool { return true }

func (d linkHandler) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	return d.side.linker.Answer(ctx, caller, theirs)
}

var usual = netplan.Usual()

func newSide(t *testing.T, name string) *side {
	t.Helper()
	s := &side{t: t, name: name, me: load(t), refused: map[string]int{}}
	var err error
	if s.key, err = gateway.GenerateKey(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s.gateway, err = gateway.New(gateway.Config{
		Device: "kith-none", Address: netip.MustParseAddr("10.42.255.2"), ListenPort: 6450, PrivateKey: s.key,
		Pods: usual.Pods, Reserved: []netip.Prefix{usual.Services}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s.client = ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Contract{}).Build())
	s.config = Config{
		Identity: s.me, Gateway: idle{s.gateway, &s.came}, Port: 6450, Network: usual, Provides: true, Pool: netplan.DefaultPool(), Links: true, Log: log,
		Guests:    func(context.Context, *v1alpha1.Peer) (bool, bool, error) { return s.guestsHere, s.guestsThere, nil },
		Addresses: func(context.Context, *v1alpha1.Peer) ([]netip.Addr, error) { return s.addresses, nil },
		WentOn: func(_ context.Context, _ *v1alpha1.Peer, provider string) (bool, error) {
			return slices.ContainsFunc(s.wentOn, func(to *side) bool { return to.name == provider }), nil
		},
	}
	s.linker = New(s.client, s.config)
	s.at = serve(t, name, s.me, linkHandler{side: s}, func(_ audit.Door, reason audit.Reason) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused[string(reason)]++
	})
	return s
}

// serve is a peer API on loopback.
func serve(t *testing.T, name string, me *identity.Identity, handler peering.Handler, refused func(audit.Door, audit.Reason)) (at string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	server := peering.NewServer(peering.ServerConfig{
		Identity: me, Name: func() string { return name }, Handler: handler, Log: log, Audit: audit.New(log, audit.Options{Count: refused}),
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// contracts lets two sides know each other, with a contract under which the first consumes.
func contracts(a, b *side) {
	a.t.Helper()
	for _, one := range []struct {
		at, of *side
		role   v1alpha1.Role
	}{{a, b, v1alpha1.RoleConsumer}, {b, a, v1alpha1.RoleProvider}} {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: one.of.name}, Spec: v1alpha1.PeerSpec{ID: one.of.me.ID().String()}}
		ctr := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "with-" + one.of.name}, Spec: v1alpha1.ContractSpec{Peer: one.of.name, Role: one.role, Document: document(a.t, a, b, "")}}
		for _, o := range []client.Object{peer, ctr} {
			if err := one.at.client.Create(a.t.Context(), o); err != nil {
				a.t.Fatal(err)
			}
		}
	}
}

// peer is another side as this one has it.
func (s *side) peer(of *side) *v1alpha1.Peer {
	s.t.Helper()
	var p v1alpha1.Peer
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: of.name}, &p); err != nil {
		s.t.Fatal(err)
	}
	return &p
}

// to is a client that speaks to another side with this one's key.
func (s *side) to(other *side) *peering.Client {
	c := peering.NewClient(peering.ClientConfig{Identity: s.me, Expect: other.me.ID(), Addresses: []string{other.at}})
	s.t.Cleanup(c.Close)
	return c
}

func (s *side) propose(other *side) error {
	return s.linker.Propose(s.t.Context(), s.peer(other), s.to(other), netip.MustParseAddr("127.0.0.1"))
}

// linked wants a link from both ends that says the same, with each other's WireGuard keys in it.
func linked(t *testing.T, a, b *side) {
	t.Helper()
	for _, one := range []struct{ at, of *side }{{a, b}, {b, a}} {
		g, ok := one.at.gateway.Peer(one.of.me.ID().String())
		if !ok || g.PublicKey != one.of.key.Public() || g.Validate() != nil || g.Endpoint.Port() != 6450 {
			t.Errorf("%s has %s as %+v: %v", one.at.name, one.of.name, g, g.Validate())
		}
		n := one.at.peer(one.of).Status.Network
		if n == nil {
			t.Fatalf("%s keeps nothing of %s", one.at.name, one.of.name)
		}
		if kept, err := one.at.linker.gatewayPeer(one.at.peer(one.of), n); err != nil || !reflect.DeepEqual(kept, g) {
			t.Errorf("%s keeps of %s: %+v, and the gateway has %+v", one.at.name, one.of.name, n, g)
		}
	}
	atA, atB := a.pair(b), b.pair(a)
	if atA.There != atB.Here || atA.Here != atB.There || atA.Handle() != atB.Called() || atA.Called() != atB.Handle() {
		t.Errorf("%s has %+v, %s has %+v", a.name, atA, b.name, atB)
	}
	for _, p := range []netplan.Pair{atA, atB} {
		if p.There.IsValid() && p.AtThere != netplan.GuestGateway(p.There) || p.AtHome != usual.Gateway() || p.Services != usual.Services {
			t.Errorf("%+v", p)
		}
	}
}

// pair is what the gateway of a side has of another.
func (s *side) pair(of *side) netplan.Pair {
	s.t.Helper()
	g, ok := s.gateway.Peer(of.me.ID().String())
	if !ok {
		s.t.Fatalf("%s has no link with %s", s.name, of.name)
	}
	return g.Pair
}

// noLink wants nothing of a side at another, neither in the gateway nor kept.
func noLink(t *testing.T, at, of *side) {
	t.Helper()
	if g, ok := at.gateway.Peer(of.me.ID().String()); ok {
		t.Errorf("the gateway of %s has %s as %+v", at.name, of.name, g)
	}
	if n := at.peer(of).Status.Network; n != nil {
		t.Errorf("%s keeps of %s: %+v", at.name, of.name, n)
	}
}

// refusedLink wants a Problem that says so in words.
func refusedLink(t *testing.T, err error, code peering.Code, words string) {
	t.Helper()
	var problem *peering.Problem
	if !errors.As(err, &problem) || problem.Code != code || !strings.Contains(problem.Message, words) {
		t.Errorf("want a refusal (%s) that says %q, got %v", code, words, err)
	}
}

// byHand is what somebody sends who holds the keys of a side and runs another program: a link that is bound as it should be.
func (s *side) byHand(to *side, change func(*peering.Link)) peering.Link {
	s.t.Helper()
	binding, err := s.linker.bind(to.me.ID(), to.key.Public().String())
	if err != nil {
		s.t.Fatal(err)
	}
	here := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, s.name[0], 0}), 24) // another for each
	l := peering.Link{
		PublicKey: s.key.Public().String(), Port: 6450, Plan: peering.LinkPlan,
		Space: []netip.Prefix{usual.Pods}, Services: usual.Services, At: usual.Gateway(),
		Here: here, AtHere: netplan.GuestGateway(here),
		Binding: binding,
	}
	change(&l)
	return l
}

// answer has a side take what another says.
func (s *side) answer(other *side, said peering.Link) (peering.Link, error) {
	return s.linker.Answer(s.t.Context(), peering.Caller{ID: other.me.ID(), Key: other.me.Public(), Addr: netip.MustParseAddrPort("192.0.2.1:40000")}, said)
}

// insist has another side take what this one says, with whatever range it wants for the guests of this one, as somebody would who wants a
// link more than these addresses.
func (s *side) insist(at *side, change func(*peering.Link)) error {
	said := s.byHand(at, change)
	answer, err := at.answer(s, said)
	if err != nil {
		return err
	}
	said = s.byHand(at, func(l *peering.Link) { l.There = answer.Here; change(l) })
	_, err = at.answer(s, said)
	return err
}

func TestBothSidesOfALinkKnowTheSame(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, alice, bob)
	before := alice.pair(bob)
	if before.There.Bits() != netplan.GuestBits || before.Here.Bits() != netplan.GuestBits || !slices.Equal(before.Space, []netip.Prefix{usual.Pods}) {
		t.Errorf("%+v", before)
	}
	for range 2 { // nothing that holds is disturbed, whoever begins
		if err := bob.propose(alice); err != nil {
			t.Fatal(err)
		}
		if err := alice.propose(bob); err != nil {
			t.Fatal(err)
		}
	}
	linked(t, alice, bob)
	if again := alice.pair(bob); !reflect.DeepEqual(again, before) {
		t.Errorf("%+v, then %+v", before, again)
	}
}

// TestTheTunnelGoesWhereThePeerIsReached: the address is that of a connection, so a link-local one has this host's own interface. It is there
// after a restart, too.
func TestTheTunnelGoesWhereThePeerIsReached(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	for _, tc := range []struct{ at, want string }{
		{"192.0.2.7", "192.0.2.7:6450"},
		{"::ffff:192.0.2.8", "192.0.2.8:6450"},
		{"fd00::7", "[fd00::7]:6450"},
		{"fe80::7%wlan0", "[fe80::7%wlan0]:6450"},
		{"fe80::7%eth0", "[fe80::7%eth0]:6450"},
		{"", "[fe80::7%eth0]:6450"}, // somebody passed the message on: what was known stays
	} {
		at, _ := netip.ParseAddr(tc.at)
		if err := alice.linker.Propose(t.Context(), alice.peer(bob), alice.to(bob), at); err != nil {
			t.Fatalf("%q: %v", tc.at, err)
		}
		if g, _ := alice.gateway.Peer(bob.me.ID().String()); g.Endpoint.String() != tc.want {
			t.Errorf("reached at %q, the tunnel goes to %s, not %s", tc.at, g.Endpoint, tc.want)
		}
		if kept, err := alice.linker.gatewayPeer(alice.peer(bob), alice.peer(bob).Status.Network); err != nil || kept.Endpoint.String() != tc.want {
			t.Errorf("reached at %q, %s is kept, not %s: %v", tc.at, kept.Endpoint, tc.want, err)
		}
	}
	if err := alice.linker.Propose(t.Context(), alice.peer(bob), alice.to(bob), netip.MustParseAddr("fe80::7")); err == nil {
		t.Error("a link-local address behind no interface is taken")
	}
}

// TestALinkTakesNothingButGuests: traffic into a range for guests goes to the peer, so what it names is taken only where it was free and of the
// owner's pool; the address space it names means something to its own guests alone.
func TestALinkTakesNothingButGuests(t *testing.T) {
	alice, bob, carol := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "carol")
	contracts(alice, bob)
	contracts(carol, bob) // has a link, and would change it
	if err := carol.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, carol, bob)
	bob.came = prefixes("10.99.8.0/24")
	here := func(p string) func(*peering.Link) {
		return func(l *peering.Link) { l.Here = prefix(p); l.AtHere = netplan.GuestGateway(l.Here) }
	}
	space := func(p ...string) func(*peering.Link) {
		return func(l *peering.Link) { l.Space = append(l.Space, prefixes(p...)...) }
	}
	carols := bob.pair(carol)
	for what, tt := range map[string]struct {
		change func(*peering.Link)
		words  string // of the refusal; none: bob names another for ever
	}{
		"our own pods":                      {here("10.42.9.0/24"), ""},
		"our own services":                  {here("10.43.9.0/24"), ""},
		"a network of ours":                 {here("10.99.8.0/24"), ""},
		"what our guests have at carol":     {here(carols.There.String()), ""},
		"what carol's guests have here":     {here(carols.Here.String()), ""},
		"a network behind our router":       {here("192.168.77.0/24"), ""},
		"other addresses for its guests":    {func(l *peering.Link) { l.There = prefix("10.42.9.0/24") }, ""},
		"those of a network behind, too":    {func(l *peering.Link) { l.There = prefix("192.168.77.0/24") }, ""},
		"a wide range for them":             {func(l *peering.Link) { l.There = prefix("10.112.0.0/16") }, ""},
		"one range for both":                {func(l *peering.Link) { l.There = l.Here }, ""},
		"a host that is not a guests' one":  {func(l *peering.Link) { l.AtHere = netip.MustParseAddr("192.168.1.1") }, "192.168.1.1"},
		"a host of no home":                 {func(l *peering.Link) { l.At = netip.MustParseAddr("192.168.1.1") }, "192.168.1.1"},
		"a space that has its guests here":  {func(l *peering.Link) { l.Space = append(l.Space, l.There) }, ""},
		"a space that has our guests there": {func(l *peering.Link) { l.Space = append(l.Space, l.Here) }, ""},
		"a space that overlaps itself":      {space("10.42.7.0/24"), "overlaps"},
		"the same range twice":              {space("172.16.0.0/16", "172.16.0.0/16"), "overlaps"},
	} {
		for _, who := range []*side{alice, carol} {
			if who == carol && strings.Contains(what, "carol") {
				continue // she may say something new of what is hers
			}
			before, had := bob.gateway.Peer(who.me.ID().String())
			err := who.insist(bob, tt.change)
			if tt.words != "" {
				refusedLink(t, err, peering.CodeBadRequest, tt.words)
			} else if err != nil && !strings.Contains(err.Error(), "overlaps") {
				t.Error(err)
			}
			if after, has := bob.gateway.Peer(who.me.ID().String()); has != had || !reflect.DeepEqual(after, before) {
				t.Errorf("%+v became %+v", before, after)
			}
			if t.Failed() {
				t.Fatalf("%s, of %s, went too far", what, who.name)
			}
		}
	}
	all := space()
	for i := range netplan.MaxSpace - 1 {
		next := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, byte(i), 0}), 24).String()
		before := all
		all = func(l *peering.Link) { before(l); space(next)(l) }
	}
	if err := alice.insist(bob, all); err != nil {
		t.Errorf("a home of %d ranges: %v", netplan.MaxSpace, err)
	}
	if got := bob.pair(alice); len(got.Space) != netplan.MaxSpace || got.There != prefix("10.99.97.0/24") {
		t.Errorf("%+v", got)
	}
}

// TestAPeerThatChangesItsMind is followed as long as there are no guests, and costs itself alone.
func TestAPeerThatChangesItsMind(t *testing.T) {
	alice, bob, carol := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "carol")
	contracts(alice, bob)
	contracts(carol, bob)
	if err := carol.propose(bob); err != nil {
		t.Fatal(err)
	}
	before := bob.pair(carol)
	tens := byte(100) // carol's ranges come by chance, and alice must not want one of them
	for before.There.Addr().As4()[1] == tens || before.Here.Addr().As4()[1] == tens {
		tens++
	}
	wants := func(n int) func(*peering.Link) {
		return func(l *peering.Link) {
			l.Here = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, tens, byte(n), 0}), 24)
			l.AtHere = netplan.GuestGateway(l.Here)
		}
	}
	bob.linker.plan(bob.peer(alice)).changes.SetLimit(0) // time stands still
	last := 0
	for n := range changeBurst + 5 {
		err := alice.insist(bob, wants(n))
		if n < changeBurst {
			last = n
		} else {
			refusedLink(t, err, peering.CodeRateLimited, "too often")
		}
		if got := bob.pair(alice).There; got.Addr().As4()[2] != byte(last) {
			t.Fatalf("%s, not the one of %d: %v", got, last, err)
		}
	}
	if err := alice.insist(bob, wants(last)); err != nil {
		t.Errorf("what is agreed on is no change: %v", err)
	}
	bob.guestsThere = true // pods of bob's run at hers, and have her addresses
	for n := range 10 {
		if err := alice.insist(bob, wants(n)); err != nil {
			t.Fatal(err)
		}
	}
	if got := bob.pair(alice).There; got.Addr().As4()[2] != byte(last) {
		t.Errorf("under running pods %s came in place of that of %d", got, last)
	}
	if got := bob.pair(carol); !reflect.DeepEqual(got, before) {
		t.Errorf("carol had %+v, and has %+v", before, got)
	}
	linked(t, carol, bob)
}

// TestAPeerThatIsNeverContentIsGivenUp, with words that say what can be done.
func TestAPeerThatIsNeverContentIsGivenUp(t *testing.T) {
	alice, mallory := newSide(t, "alice"), newSide(t, "mallory")
	contracts(alice, mallory)
	asked := 0
	at := serve(t, "mallory", mallory.me, falseLink{say: func() peering.Link {
		asked++
		return mallory.byHand(alice, func(l *peering.Link) {
			l.Here = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, byte(asked), 0}), 24)
			l.AtHere = netplan.GuestGateway(l.Here)
		})
	}}, nil)
	to := peering.NewClient(peering.ClientConfig{Identity: alice.me, Expect: mallory.me.ID(), Addresses: []string{at}})
	defer to.Close()
	err := alice.linker.Propose(t.Context(), alice.peer(mallory), to, netip.MustParseAddr("127.0.0.1"))
	if err == nil || !strings.Contains(err.Error(), "aliasPools") || asked != rounds {
		t.Errorf("after %d answers: %v", asked, err)
	}
	noLink(t, alice, mallory)
}

// busyLink is a handler that has no time for links.
type busyLink struct{ peering.Handler }

func (busyLink) Recognise(context.Context, peering.Caller) bool { return true }

func (busyLink) Link(context.Context, peering.Caller, peering.Link) (peering.Link, error) {
	return peering.Link{}, errCrossed
}

// TestAPeerThatIsBusyIsAskedAgain: that a link holds is no reason to be content; what this side had to say of it was not heard.
func TestAPeerThatIsBusyIsAskedAgain(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	to := peering.NewClient(peering.ClientConfig{Identity: alice.me, Expect: bob.me.ID(), Addresses: []string{serve(t, "bob", bob.me, busyLink{}, nil)}})
	defer to.Close()
	refusedLink(t, alice.linker.Propose(t.Context(), alice.peer(bob), to, netip.MustParseAddr("127.0.0.1")), peering.CodeRateLimited, "same moment")
	linked(t, alice, bob)
}

// TestNobodyLinksWithAnothersKey: WireGuard has one peer for a key. Were mallory to link with bob's, what bob sends would
// count as hers, and he could not link.
func TestNobodyLinksWithAnothersKey(t *testing.T) {
	for _, first := range []string{"bob", "mallory"} {
		t.Run(first+" comes first", func(t *testing.T) {
			alice, bob, mallory := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "mallory")
			contracts(alice, bob)
			contracts(alice, mallory)
			contracts(bob, mallory) // so that she can have bob compute proofs
			steal := func() {
				t.Helper()
				for how, stolen := range mallory.thefts(t, bob, alice) {
					_, err := mallory.to(alice).Link(t.Context(), stolen)
					if how == "without a word" { // a question: she hears what everybody may hear who has a contract
						if err != nil {
							t.Error(err)
						}
					} else {
						refusedLink(t, err, peering.CodeForbidden, "WireGuard key")
					}
					noLink(t, alice, mallory)
					if t.Failed() {
						t.Fatal(how)
					}
				}
			}
			if first == "mallory" {
				steal()
			}
			if err := bob.propose(alice); err != nil {
				t.Errorf("bob cannot link: %v", err)
			}
			linked(t, alice, bob)
			steal()
			linked(t, alice, bob)
			alice.mu.Lock()
			if n := alice.refused[string(peering.CodeForbidden)]; n < 5 {
				t.Errorf("%d thefts are on alice's record", n)
			}
			alice.mu.Unlock()
			if err := mallory.propose(alice); err != nil {
				t.Errorf("with a key of her own mallory cannot link: %v", err)
			}
			linked(t, alice, mallory)
			linked(t, alice, bob)
		})
	}
}

// thefts are links by which a side names bob's WireGuard key to alice as its own.
func (s *side) thefts(t *testing.T, bob, alice *side) map[string]peering.Link {
	t.Helper()
	key := bob.key.Public()
	said := binding(s.me.ID(), alice.me.ID(), key, alice.key.Public())
	prove := func(g *gateway.Gateway, theirs gateway.Key, said []byte) []byte {
		proof, err := g.Prove(theirs, said)
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	// Bob takes alice's key for hers, and binds his own to it, in words to her.
	lured, err := s.to(bob).Link(t.Context(), s.byHand(bob, func(l *peering.Link) { l.PublicKey, l.Binding = alice.key.Public().String(), nil }))
	if err != nil || lured.Binding == nil {
		t.Fatal(lured, err)
	}
	all := map[string]peering.Link{}
	for how, b := range map[string]*peering.Binding{
		"without a word":                    nil,
		"signed, and proven with her own":   {Signature: s.me.Sign(said), Proof: prove(s.gateway, alice.key.Public(), said)},
		"signed, and proven with nothing":   {Signature: s.me.Sign(said), Proof: make([]byte, gateway.ProofSize)},
		"signed, with what bob told her":    {Signature: s.me.Sign(said), Proof: lured.Binding.Proof},
		"with all that bob told her":        lured.Binding,
		"with bob's proof, her name unsaid": {Signature: make([]byte, 64), Proof: prove(bob.gateway, alice.key.Public(), said)},
	} {
		all[how] = s.byHand(alice, func(l *peering.Link) {
			l.PublicKey, l.Binding = key.String(), nil
			if b != nil {
				l.Binding = &peering.Binding{PeerKey: alice.key.Public().String(), Signature: b.Signature, Proof: b.Proof}
			}
		})
	}
	return all
}

// falseLink is a handler that answers links with what it likes.
type falseLink struct {
	peering.Handler
	say func() peering.Link
}

func (falseLink) Recognise(context.Context, peering.Caller) bool { return true }

func (l falseLink) Link(context.Context, peering.Caller, peering.Link) (peering.Link, error) {
	return l.say(), nil
}

// TestAnswererIsHeldToTheSame: the provider, too, may be anybody.
func TestAnswererIsHeldToTheSame(t *testing.T) {
	alice, bob, mallory := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "mallory")
	contracts(alice, bob)
	contracts(alice, mallory)
	contracts(bob, mallory)
	says := mallory.thefts(t, bob, alice)
	says["an address space of half the internet"] = mallory.byHand(alice, func(l *peering.Link) { l.Space = append(l.Space, prefix("128.0.0.0/1")) })
	says["a range for guests that is alice's own"] = mallory.byHand(alice, func(l *peering.Link) { l.Here, l.AtHere = prefix("10.42.7.0/24"), netip.MustParseAddr("10.42.7.1") })
	says["no range for guests"] = mallory.byHand(alice, func(l *peering.Link) { l.Here, l.AtHere = netip.Prefix{}, netip.Addr{} })
	for what, said := range says {
		at := serve(t, "mallory", mallory.me, falseLink{say: func() peering.Link { return said }}, nil)
		to := peering.NewClient(peering.ClientConfig{Identity: alice.me, Expect: mallory.me.ID(), Addresses: []string{at}})
		err := alice.linker.Propose(t.Context(), alice.peer(mallory), to, netip.MustParseAddr("127.0.0.1"))
		to.Close()
		if err == nil {
			t.Errorf("%s: taken", what)
		}
		noLink(t, alice, mallory)
	}
	if err := bob.propose(alice); err != nil {
		t.Error(err)
	}
	linked(t, alice, bob)
}

// TestLinkThatWouldNotBeMadeTodayIsNotRestored, as one of a version before would not be, or of another WireGuard key.
func TestLinkThatWouldNotBeMadeTodayIsNotRestored(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	good := bob.peer(alice).Status.Network
	other, err := gateway.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*v1alpha1.NetworkStatus){
		"nothing":          func(*v1alpha1.NetworkStatus) {},
		"no proof":         func(n *v1alpha1.NetworkStatus) { n.Proof = nil },
		"another key":      func(n *v1alpha1.NetworkStatus) { n.PublicKey = other.Public().String() },
		"a link of before": func(n *v1alpha1.NetworkStatus) { *n = v1alpha1.NetworkStatus{PublicKey: n.PublicKey, Proof: n.Proof} },
		"not readable":     func(n *v1alpha1.NetworkStatus) { n.GuestsHere = "x" },
		"our own pods":     func(n *v1alpha1.NetworkStatus) { n.GuestsThere, n.AtThere = "10.42.3.0/24", "10.42.3.1" },
		"our own services": func(n *v1alpha1.NetworkStatus) { n.GuestsHere = "10.43.3.0/24" },
		"another length": func(n *v1alpha1.NetworkStatus) {
			n.GuestsHere = n.GuestsHere[:strings.Index(n.GuestsHere, "/")] + "/23"
		},
		"half the internet": func(n *v1alpha1.NetworkStatus) { n.Space = append(n.Space, "128.0.0.0/1") },
		"its space is ours": func(n *v1alpha1.NetworkStatus) { n.Space = append(n.Space, n.GuestsHere) },
		"a home elsewhere":  func(n *v1alpha1.NetworkStatus) { n.AtHome = "10.99.0.1" },
	} {
		if err := bob.gateway.RemovePeer(alice.me.ID().String()); err != nil {
			t.Fatal(err)
		}
		peer := bob.peer(alice)
		peer.Status.Network = good.DeepCopy()
		change(peer.Status.Network)
		if err := bob.client.Status().Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		bob.restart()
		err := bob.linker.Restore(t.Context(), peer)
		if what == "nothing" {
			if err != nil {
				t.Fatal(err)
			}
			linked(t, alice, bob)
			continue
		}
		if err == nil {
			t.Errorf("%s: restored", what)
		}
		noLink(t, bob, alice)
	}
	if err := alice.propose(bob); err != nil { // and when they meet it is made anew
		t.Fatal(err)
	}
	linked(t, alice, bob)
}

// restart is this side's next process: it knows what is kept, and nothing else.
func (s *side) restart() { s.linker = New(s.client, s.config) }

func TestALinkOutlivesARestart(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	before := bob.pair(alice)
	for _, who := range []struct{ it, other *side }{{bob, alice}, {alice, bob}} {
		if err := who.it.gateway.RemovePeer(who.other.me.ID().String()); err != nil {
			t.Fatal(err)
		}
		who.it.restart()
		who.it.came = []netip.Prefix{who.it.peer(who.other).Status.Network.Ranges()[0]} // while it was away, it came to another network
		if err := who.it.linker.Restore(t.Context(), who.it.peer(who.other)); err != nil {
			t.Fatal(err)
		}
		linked(t, alice, bob)
		who.it.came = nil
		if err := who.it.propose(who.other); err != nil {
			t.Fatal(err)
		}
		linked(t, alice, bob)
	}
	if after := bob.pair(alice); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v became %+v", before, after)
	}
}

// TestTwoPeersNeverGetOneRange, also while neither of their links is settled.
func TestTwoPeersNeverGetOneRange(t *testing.T) {
	bob := newSide(t, "bob")
	bob.config.Pool = prefixes("10.64.0.0/23") // two places
	bob.restart()
	alice, carol, dora := newSide(t, "alice"), newSide(t, "carol"), newSide(t, "dora")
	for _, other := range []*side{alice, carol, dora} {
		contracts(other, bob)
	}
	provides := func(l *peering.Link) { l.Here, l.AtHere = netip.Prefix{}, netip.Addr{} } // nothing: it consumes alone
	got := map[netip.Prefix]bool{}
	for _, other := range []*side{alice, carol} {
		answer, err := bob.answer(other, other.byHand(bob, func(l *peering.Link) { provides(l); l.Binding = nil }))
		if err != nil {
			t.Fatal(err)
		}
		got[answer.Here] = true
	}
	if len(got) != 2 {
		t.Errorf("two peers: %v", got)
	}
	if _, err := bob.answer(dora, dora.byHand(bob, provides)); err == nil {
		t.Error("a third found a place")
	}
	if err := bob.linker.Drop(t.Context(), &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Spec: v1alpha1.PeerSpec{ID: alice.me.ID().String()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.answer(dora, dora.byHand(bob, provides)); err != nil {
		t.Errorf("a place is free again: %v", err)
	}
}

// TestManyPeersAtOnce: whoever proposes to whom, all links are settled, and no two of a laptop overlap.
func TestManyPeersAtOnce(t *testing.T) {
	var all []*side
	for _, name := range []string{"alice", "bob", "carol", "dora"} {
		all = append(all, newSide(t, name))
	}
	for i, a := range all {
		for _, b := range all[:i] {
			contracts(a, b)
			b.consumes(a)
		}
	}
	var wg sync.WaitGroup
	for _, a := range all {
		for _, b := range all {
			if a != b {
				wg.Go(func() { // as the reconciler does, again until it is done
					for try := 0; ; try++ {
						err := a.propose(b)
						if err == nil {
							return
						}
						if try == 20 {
							t.Error(err)
							return
						}
					}
				})
			}
		}
	}
	wg.Wait()
	for i, a := range all {
		for _, b := range all[:i] {
			linked(t, a, b)
		}
		var ranges []netip.Prefix
		handles := map[netip.Addr]bool{}
		for _, b := range all {
			if a == b {
				continue
			}
			p := a.pair(b)
			handles[p.Handle()] = true
			for _, r := range p.Ranges() {
				if !netplan.Free(r, ranges) {
					t.Errorf("%s has %s twice", a.name, r)
				}
				ranges = append(ranges, r)
			}
		}
		if len(handles) != len(all)-1 {
			t.Errorf("%s calls its peers %v", a.name, handles)
		}
	}
}

// consumes makes a contract by which this side consumes beside one by which it provides.
func (s *side) consumes(from *side) {
	s.t.Helper()
	for _, one := range []struct {
		at   *side
		role v1alpha1.Role
		with *side
	}{{s, v1alpha1.RoleConsumer, from}, {from, v1alpha1.RoleProvider, s}} {
		ctr := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "second-with-" + one.with.name}, Spec: v1alpha1.ContractSpec{Peer: one.with.name, Role: one.role, Document: document(s.t, s, from, "")}}
		if err := one.at.client.Create(s.t.Context(), ctr); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestBothProposeAtOnce: one of the two goes on, the other answers; in the middle of it neither has what the other has not.
func TestBothProposeAtOnce(t *testing.T) {
	for range 8 {
		alice, bob := newSide(t, "alice"), newSide(t, "bob")
		contracts(alice, bob)
		bob.consumes(alice)
		alice.came, bob.came = prefixes("10.0.0.0/8"), prefixes("172.17.0.0/16")
		var wg sync.WaitGroup
		var errs [2]error
		wg.Go(func() { errs[0] = alice.propose(bob) })
		wg.Go(func() { errs[1] = bob.propose(alice) })
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		linked(t, alice, bob)
	}
}

// TestWhoMovesChoosesAnew: either side may come to a network of the addresses that guests of the pair have, and says so then.
func TestWhoMovesChoosesAnew(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ mover, other *side }{{alice, bob}, {bob, alice}} {
		if lap := one.mover.linker.Overlap(t.Context(), one.mover.peer(one.other)); lap.Ranges != nil {
			t.Fatalf("%s overlaps before it moved: %v", one.mover.name, lap)
		}
		was := one.mover.pair(one.other)
		for which, r := range map[string]netip.Prefix{"there": was.There, "here": was.Here} {
			one.mover.came = append(one.mover.came, netip.PrefixFrom(r.Addr().Next(), 25).Masked())
			if lap := one.mover.linker.Overlap(t.Context(), one.mover.peer(one.other)); !slices.Contains(lap.Ranges, r) || lap.Kept {
				t.Errorf("%s does not see that it moved: %s, %+v", one.mover.name, which, lap)
			}
		}
		if err := one.mover.propose(one.other); err != nil {
			t.Fatal(err)
		}
		if is := one.mover.pair(one.other); !netplan.Free(is.There, one.mover.came) || !netplan.Free(is.Here, one.mover.came) {
			t.Errorf("%s has %+v with %s", one.mover.name, is, one.other.name)
		}
		if lap := one.mover.linker.Overlap(t.Context(), one.mover.peer(one.other)); lap.Ranges != nil {
			t.Errorf("%s overlaps still: %v", one.mover.name, lap)
		}
		linked(t, alice, bob)
	}
}

// TestWhoFindNothingBetterKeepTheirLink: each is in a network that takes what the other could name.
func TestWhoFindNothingBetterKeepTheirLink(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	was := alice.pair(bob)
	for _, s := range []*side{alice, bob} {
		s.linker.room = room{pool: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}, owner: true}
	}
	alice.came, bob.came = []netip.Prefix{netip.MustParsePrefix("10.64.0.0/11")}, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/11")}
	for _, proposer := range [][2]*side{{alice, bob}, {bob, alice}} {
		if err := proposer[0].propose(proposer[1]); err != nil {
			t.Errorf("%s proposes: %v", proposer[0].name, err)
		}
		linked(t, alice, bob)
		if is := alice.pair(bob); is.There != was.There || is.Here != was.Here {
			t.Errorf("%s proposes: %+v became %+v", proposer[0].name, was, is)
		}
	}
	alice.came = nil
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, alice, bob)
	if is := alice.pair(bob); !netplan.Free(is.There, bob.came) || !netplan.Free(is.Here, bob.came) {
		t.Errorf("alice is home again, and they have %+v", is)
	}
}

// TestGuestsKeepTheirRange: whichever side knows of guests, as long as they run nothing else is agreed on, and then it is.
func TestGuestsKeepTheirRange(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob) // alice's guests run at bob
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	was := alice.pair(bob)
	alice.came = []netip.Prefix{was.There}
	for what, know := range map[string]func(){
		"both know": func() { alice.guestsThere, bob.guestsHere = true, true },
		"bob knows": func() { alice.guestsThere, bob.guestsHere = false, true },
	} {
		know()
		for _, proposer := range [][2]*side{{alice, bob}, {bob, alice}} {
			if err := proposer[0].propose(proposer[1]); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			linked(t, alice, bob)
			if is := alice.pair(bob); is.There != was.There || is.Here != was.Here {
				t.Fatalf("%s, %s proposes: %+v became %+v", what, proposer[0].name, was, is)
			}
		}
	}
	alice.guestsThere = true
	if lap := alice.linker.Overlap(t.Context(), alice.peer(bob)); !lap.Kept || !slices.Equal(lap.Ranges, []netip.Prefix{was.There}) {
		t.Errorf("%+v", lap)
	}
	alice.came = append(alice.came, was.Here) // of which no guest has an address
	if lap := alice.linker.Overlap(t.Context(), alice.peer(bob)); lap.Kept || len(lap.Ranges) != 2 {
		t.Errorf("%+v", lap)
	}
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	if is := alice.pair(bob); is.There != was.There || is.Here == was.Here {
		t.Errorf("%+v became %+v", was, is)
	}
	alice.guestsThere, bob.guestsHere = false, false
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, alice, bob)
	if is := alice.pair(bob); is.There == was.There {
		t.Errorf("the last guest has ended, and %s is not renewed", is.There)
	}
}

// TestProvidersHearOfTheAddressSpace: what guests of one home have at one provider means something at the next.
func TestProvidersHearOfTheAddressSpace(t *testing.T) {
	alice, bob, carol := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "carol")
	contracts(alice, bob)
	contracts(alice, carol)
	told := map[*side]Space{}
	outdated := func(what string, who ...*side) {
		t.Helper()
		for _, s := range []*side{bob, carol} {
			if got := !alice.linker.Space(alice.peer(s)).Equal(told[s]); got != slices.Contains(who, s) {
				t.Errorf("%s: what %s was told is outdated: %v", what, s.name, got)
			}
		}
	}
	tell := func(s *side) {
		t.Helper()
		told[s] = alice.linker.Space(alice.peer(s))
		if err := alice.propose(s); err != nil {
			t.Fatal(err)
		}
	}
	outdated("at first", bob, carol)
	for _, c := range []struct{ to, hears *side }{{bob, carol}, {carol, bob}, {bob, nil}} {
		tell(c.to)
		outdated("after one with "+c.to.name, c.hears)
	}
	before := alice.pair(bob)
	there, after := alice.pair(carol).There, bob.pair(alice)
	if !slices.Equal(after.Space, []netip.Prefix{usual.Pods, there}) || after.Here != before.There || after.There != before.Here {
		t.Errorf("bob has %+v, and alice's guests at carol are in %s", after, there)
	}
	if got := carol.pair(alice).Space; !slices.Equal(got, []netip.Prefix{usual.Pods, alice.pair(bob).There}) {
		t.Errorf("carol has %v", got)
	}
	var ctr v1alpha1.Contract
	if err := alice.client.Get(t.Context(), client.ObjectKey{Name: "with-carol"}, &ctr); err != nil {
		t.Fatal(err)
	}
	if err := alice.client.Delete(t.Context(), &ctr); err != nil {
		t.Fatal(err)
	}
	if err := alice.linker.Drop(t.Context(), alice.peer(carol)); err != nil {
		t.Fatal(err)
	}
	noLink(t, alice, carol)
	outdated("without carol", bob)
	tell(bob)
	outdated("when bob knows")
	if got := bob.pair(alice).Space; !slices.Equal(got, []netip.Prefix{usual.Pods}) {
		t.Errorf("bob has %v", got)
	}
}

// TestClusterThatCannotTakeGuestsInConsumes, and whoever would have it provide is told why not.
func TestClusterThatCannotTakeGuestsInConsumes(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	alice.config.Provides, alice.config.Links = false, false
	alice.restart()
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, alice, bob)
	if p := alice.pair(bob); p.Here.IsValid() || !p.There.IsValid() {
		t.Errorf("%+v", p)
	}
	carol := newSide(t, "carol")
	contracts(carol, alice)
	refusedLink(t, carol.propose(alice), peering.CodeForbidden, "no guests")
	noLink(t, carol, alice)
}

// TestTranslationIsTheProvidersAffair: where somebody else gives guests their addresses, they and their home's have other names there, and the
// home knows nothing of it.
func TestTranslationIsTheProvidersAffair(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	bob.config.Links = false
	bob.restart()
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	p := bob.pair(alice)
	if p.Here.Bits() != usual.Pods.Bits() || p.Guests.Real != usual.Pods || p.Guests.Alias != p.Here || len(p.Aliases) != 1 ||
		p.Aliases[0].Real != usual.Pods || !netplan.Free(p.Aliases[0].Alias, []netip.Prefix{p.Here, p.There, usual.Pods}) {
		t.Errorf("%+v", p)
	}
	if a := alice.pair(bob); a.There != p.Here || len(a.Aliases) != 0 || a.Guests.Real.IsValid() || !a.There.Contains(a.AtThere) || a.AtThere == netplan.GuestGateway(a.There) {
		t.Errorf("%+v", a)
	}
	before := p
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	if p := bob.pair(alice); !reflect.DeepEqual(p, before) {
		t.Errorf("%+v became %+v", before, p)
	}
	// Her guests get ranges at others; those that are known here keep their names, whatever comes before them.
	for _, more := range []string{"198.18.9.0/24", "198.18.8.0/24"} {
		other := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "at-" + more[7:8]}, Spec: v1alpha1.PeerSpec{ID: more}}
		other.Status.Network = &v1alpha1.NetworkStatus{GuestsThere: more}
		if err := alice.client.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		was := bob.pair(alice).Aliases
		if err := alice.propose(bob); err != nil {
			t.Fatal(err)
		}
		for _, m := range was {
			same := func(n netplan.Mapping) bool { return n.Real == m.Real && n.Alias == m.Alias }
			if now := bob.pair(alice).Aliases; !slices.ContainsFunc(now, same) || len(now) != len(was)+1 || !netplan.Free(now[1].Alias, []netip.Prefix{now[0].Alias}) {
				t.Errorf("%v became %v", was, now)
			}
		}
	}
	// A network of such addresses: they keep their names as long as guests know them, and whoever of the two proposes.
	was := bob.pair(alice).Aliases
	bob.came = []netip.Prefix{was[0].Alias}
	for _, guests := range []bool{true, false} {
		bob.guestsHere = guests
		if err := bob.propose(alice); err != nil {
			t.Fatal(err)
		}
		if now := bob.pair(alice).Aliases; (now[0] == was[0]) != guests || now[0].Real != was[0].Real || now[1] != was[1] {
			t.Errorf("guests %t: %v became %v", guests, was, now)
		}
	}
}

func load(t *testing.T) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}
