package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/audit"
	"kith.dev/core/gateway"
	"kith.dev/core/identity"
	"kith.dev/core/netplan"
	"kith.dev/core/peering"
)

// side is a cluster as far as links need one: its keys, its gateway, whose device is never brought up, its objects, and
// its peer API.
type side struct {
	t       *testing.T
	name    string
	me      *identity.Identity
	key     gateway.PrivateKey
	gateway *gateway.Gateway
	client  client.Client
	linker  *Linker
	at      string // of the peer API

	came []netip.Prefix // networks that its laptop came to

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

func (idle) Stats(string) (gateway.Stats, bool) { return gateway.Stats{}, false }

// linkHandler has links answered.
type linkHandler struct {
	peering.Handler
	linker *Linker
}

func (linkHandler) Recognise(context.Context, peering.Caller) bool { return true }

func (d linkHandler) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	return d.linker.Answer(ctx, caller, theirs)
}

var usualPods = netip.MustParsePrefix("10.42.0.0/16")

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
		Reserved: []netip.Prefix{usualPods, netip.MustParsePrefix("10.43.0.0/16")}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Contract{}).Build()
	s.linker = New(s.client, Config{
		Identity: s.me, Gateway: idle{s.gateway, &s.came}, Port: 6450, Ranges: map[string]netip.Prefix{"pods": usualPods}, Pool: netplan.DefaultPool(), Log: log,
	})
	s.at = serve(t, name, s.me, linkHandler{linker: s.linker}, func(_ audit.Door, reason string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused[reason]++
	})
	return s
}

// serve is a peer API on loopback.
func serve(t *testing.T, name string, me *identity.Identity, handler peering.Handler, refused func(audit.Door, string)) (at string) {
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

// contracts lets two sides know each other, with a contract.
func contracts(a, b *side) {
	a.t.Helper()
	for _, one := range []struct{ at, of *side }{{a, b}, {b, a}} {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: one.of.name}, Spec: v1alpha1.PeerSpec{ID: one.of.me.ID().String()}}
		ctr := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "with-" + one.of.name}, Spec: v1alpha1.ContractSpec{Peer: one.of.name}}
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

// linked wants a link from both ends, and each other's WireGuard keys in it.
func linked(t *testing.T, a, b *side) {
	t.Helper()
	for _, one := range []struct{ at, of *side }{{a, b}, {b, a}} {
		g, ok := one.at.gateway.Peer(one.of.me.ID().String())
		if !ok || g.PublicKey != one.of.key.Public() || len(g.Theirs) != 1 || len(g.Ours) != 1 {
			t.Errorf("%s has %s as %+v", one.at.name, one.of.name, g)
		}
		n := one.at.peer(one.of).Status.Network
		if n == nil || n.PublicKey != one.of.key.Public().String() || len(n.Theirs) != 1 || len(n.Ours) != 1 {
			t.Errorf("%s keeps of %s: %+v", one.at.name, one.of.name, n)
		}
	}
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
	l := peering.Link{
		PublicKey: s.key.Public().String(), Port: 6450,
		Ranges:  []peering.Range{{Name: "pods", Prefix: usualPods}},
		Aliases: []peering.Range{{Name: "pods", Prefix: netip.MustParsePrefix("10.99.0.0/16")}},
		Binding: binding,
	}
	change(&l)
	return l
}

// answer has a side take what another says.
func (s *side) answer(other *side, said peering.Link) error {
	_, err := s.linker.Answer(s.t.Context(), peering.Caller{ID: other.me.ID(), Key: other.me.Public(), Addr: netip.MustParseAddrPort("192.0.2.1:40000")}, said)
	return err
}

func TestBothSidesOfALinkKnowTheSame(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, alice, bob)
	atAlice, _ := alice.gateway.Peer(bob.me.ID().String())
	atBob, _ := bob.gateway.Peer(alice.me.ID().String())
	if atAlice.Theirs[0] != atBob.Ours[0] || atAlice.Ours[0] != atBob.Theirs[0] {
		t.Errorf("alice has %+v, bob has %+v", atAlice, atBob)
	}
	before := atAlice.Theirs[0].Alias
	for range 2 { // nothing that holds is disturbed, whoever begins
		if err := bob.propose(alice); err != nil {
			t.Fatal(err)
		}
		if err := alice.propose(bob); err != nil {
			t.Fatal(err)
		}
	}
	linked(t, alice, bob)
	if again, _ := alice.gateway.Peer(bob.me.ID().String()); again.Theirs[0].Alias != before {
		t.Errorf("bob was at %s, now at %s", before, again.Theirs[0].Alias)
	}
}

// TestLinkNamesThePodsRangeAndNothingElse: traffic into a range that a peer names goes to that peer.
func TestLinkNamesThePodsRangeAndNothingElse(t *testing.T) {
	alice, bob, carol := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "carol")
	contracts(alice, bob)
	contracts(carol, bob) // has a link, and would change it
	if err := carol.propose(bob); err != nil {
		t.Fatal(err)
	}
	prefix := netip.MustParsePrefix
	for what, tt := range map[string]struct {
		change func(*peering.Link)
		words  string
	}{
		"a range beside the pods'": {func(l *peering.Link) {
			l.Ranges = append(l.Ranges, peering.Range{Name: "x", Prefix: prefix("172.16.0.0/12")})
		}, "x"},
		"services, which no contract here has": {func(l *peering.Link) {
			l.Ranges = append(l.Ranges, peering.Range{Name: "services", Prefix: prefix("10.43.0.0/16")})
		}, "services"},
		"another range instead": {func(l *peering.Link) { l.Ranges[0].Name = "x" }, "x"},
		"half the internet":     {func(l *peering.Link) { l.Ranges[0].Prefix = prefix("128.0.0.0/1") }, "/12 to /28"},
		"all of 10/8":           {func(l *peering.Link) { l.Ranges[0].Prefix = prefix("10.0.0.0/8") }, "/12 to /28"},
		"one address":           {func(l *peering.Link) { l.Ranges[0].Prefix = prefix("192.0.2.1/32") }, "/12 to /28"},
		"IPv6":                  {func(l *peering.Link) { l.Ranges[0].Prefix = prefix("fd00::/64") }, "IPv4"},
		"an alias for what is not there": {func(l *peering.Link) {
			l.Aliases = append(l.Aliases, peering.Range{Name: "x", Prefix: prefix("10.98.0.0/16")})
		}, "x"},
		"an alias of another length":      {func(l *peering.Link) { l.Aliases[0].Prefix = prefix("10.99.0.0/17") }, "length"},
		"an alias that is not private":    {func(l *peering.Link) { l.Aliases[0].Prefix = prefix("8.8.0.0/16") }, "private"},
		"an alias only for what we lack":  {func(l *peering.Link) { l.Aliases[0].Name = "services" }, "services"},
		"an alias of another family":      {func(l *peering.Link) { l.Aliases[0].Prefix = prefix("fd00::/16") }, "IPv4"},
		"an alias that no cluster can be": {func(l *peering.Link) { l.Aliases[0].Prefix = prefix("0.0.0.0/16") }, "no cluster"},
	} {
		refusedLink(t, bob.answer(alice, alice.byHand(bob, tt.change)), peering.CodeBadRequest, tt.words)
		noLink(t, bob, alice)
		refusedLink(t, bob.answer(carol, carol.byHand(bob, tt.change)), peering.CodeBadRequest, tt.words)
		linked(t, carol, bob)
		if t.Failed() {
			t.Fatalf("%s went too far", what)
		}
	}
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
	says["a range too many"] = mallory.byHand(alice, func(l *peering.Link) {
		l.Ranges = append(l.Ranges, peering.Range{Name: "x", Prefix: netip.MustParsePrefix("172.16.0.0/12")})
	})
	says["an alias of another length"] = mallory.byHand(alice, func(l *peering.Link) { l.Aliases[0].Prefix = netip.MustParsePrefix("10.99.0.0/17") })
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
		"nothing":     func(*v1alpha1.NetworkStatus) {},
		"no proof":    func(n *v1alpha1.NetworkStatus) { n.Proof = nil },
		"another key": func(n *v1alpha1.NetworkStatus) { n.PublicKey = other.Public().String() },
		"one range too many": func(n *v1alpha1.NetworkStatus) {
			n.Theirs = append(n.Theirs, v1alpha1.RangeAlias{Name: "x", Real: "172.16.0.0/12", Alias: "172.16.0.0/12"})
		},
		"another name":      func(n *v1alpha1.NetworkStatus) { n.Theirs[0].Name = "x" },
		"what ours was":     func(n *v1alpha1.NetworkStatus) { n.Ours[0].Real = "10.41.0.0/16" },
		"too long an alias": func(n *v1alpha1.NetworkStatus) { n.Theirs[0].Alias = "10.0.0.0/8" },
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

// TestTwoPeersNeverGetOneAlias, also while neither of their links is settled.
func TestTwoPeersNeverGetOneAlias(t *testing.T) {
	bob := newSide(t, "bob")
	bob.linker.cfg.Pool = []netip.Prefix{netip.MustParsePrefix("10.64.0.0/15")} // two places
	alice, carol, dora := newSide(t, "alice"), newSide(t, "carol"), newSide(t, "dora")
	for _, other := range []*side{alice, carol, dora} {
		contracts(other, bob)
	}
	got := map[netip.Prefix]bool{}
	for _, other := range []*side{alice, carol} {
		answer, err := other.to(bob).Link(t.Context(), other.byHand(bob, func(l *peering.Link) { l.Binding = nil }))
		if err != nil {
			t.Fatal(err)
		}
		got[answer.Aliases[0].Prefix] = true
	}
	if len(got) != 2 {
		t.Errorf("two peers, aliases %v", got)
	}
	if err := bob.answer(dora, dora.byHand(bob, func(*peering.Link) {})); err == nil {
		t.Error("a third found a place")
	}
	if err := bob.linker.Drop(t.Context(), &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Spec: v1alpha1.PeerSpec{ID: alice.me.ID().String()}}); err != nil {
		t.Fatal(err)
	}
	if err := bob.answer(dora, dora.byHand(bob, func(*peering.Link) {})); err != nil {
		t.Errorf("a place is free again: %v", err)
	}
}

// TestWhoMovesChoosesAnew: either side may come to a network of the addresses by which it sees the other, and says so then.
func TestWhoMovesChoosesAnew(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ mover, other *side }{{alice, bob}, {bob, alice}} {
		if one.mover.linker.Overlapped(one.mover.peer(one.other)) {
			t.Fatalf("%s overlaps before it moved", one.mover.name)
		}
		was, _ := one.mover.gateway.Peer(one.other.me.ID().String())
		one.mover.came = []netip.Prefix{netip.PrefixFrom(was.Theirs[0].Alias.Addr().Next(), 24).Masked()}
		if !one.mover.linker.Overlapped(one.mover.peer(one.other)) {
			t.Errorf("%s does not see that it moved", one.mover.name)
		}
		if err := one.mover.propose(one.other); err != nil {
			t.Fatal(err)
		}
		is, _ := one.mover.gateway.Peer(one.other.me.ID().String())
		there, _ := one.other.gateway.Peer(one.mover.me.ID().String())
		if is.Theirs[0].Alias.Overlaps(one.mover.came[0]) || there.Ours[0] != is.Theirs[0] {
			t.Errorf("%s sees %s at %s, who was told %s", one.mover.name, one.other.name, is.Theirs[0], there.Ours[0])
		}
		if one.mover.linker.Overlapped(one.mover.peer(one.other)) {
			t.Errorf("%s overlaps still", one.mover.name)
		}
		linked(t, alice, bob)
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
