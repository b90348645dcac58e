package consumer

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// cluster is one laptop's objects and what its owner was told.
type cluster struct {
	*ledger.Ledger
	me *identity.Identity

	mu     sync.Mutex
	events []api.Event
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clientgoscheme.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringRequest{}, &v1alpha1.Contract{}).Build()
	return &cluster{Ledger: ledgertest.Over(t, c), me: load(t)}
}

func (c *cluster) announce(e api.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// told counts what the owner was told of a kind.
func (c *cluster) told(kind api.EventType) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// hears waits until the owner was told of a kind so often, and no more.
func (c *cluster) hears(t *testing.T, kind api.EventType, want int) {
	t.Helper()
	for range 100 {
		if c.told(kind) >= want {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n := c.told(kind); n != want {
		t.Errorf("the owner was told of %s %d times, want %d", kind, n, want)
	}
}

func (c *cluster) peer(t *testing.T, name string) *v1alpha1.Peer {
	t.Helper()
	var peer v1alpha1.Peer
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &peer); err != nil {
		t.Fatal(err)
	}
	return &peer
}

func (c *cluster) contracts(t *testing.T) []v1alpha1.Contract {
	t.Helper()
	var list v1alpha1.ContractList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// at leads to whoever answers at an address, and has the key that the Peer names.
type at struct {
	me      *identity.Identity
	address string

	mu      sync.Mutex
	clients []*peering.Client
}

func (d *at) Client(peer *v1alpha1.Peer) (*peering.Client, error) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.clients) == 0 {
		d.clients = append(d.clients, peering.NewClient(peering.ClientConfig{Identity: d.me, Expect: id, Addresses: []string{d.address}}))
	}
	return d.clients[0], nil
}

func (d *at) Contact(*v1alpha1.Peer) peering.Contact {
	return peering.Contact{Presence: presence.Presence{State: presence.Reachable}}
}

// consumerSide is alice's side: she asks the Peer "bob".
type consumerSide struct {
	*cluster
	r         *Consumer
	directory *at
}

// newAsker has alice know somebody as bob, with the key that answers at the address: that is all that discovery tells.
func newAsker(t *testing.T, bob identity.ID, address string) *consumerSide {
	t.Helper()
	a := &consumerSide{cluster: newCluster(t, &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "bob", UID: "1"}, Spec: v1alpha1.PeerSpec{ID: bob.String(), DisplayName: "bob"},
	})}
	a.directory = &at{me: a.me, address: address}
	t.Cleanup(func() {
		a.r.Close()
		for _, c := range a.directory.clients {
			c.Close()
		}
	})
	a.start()
	return a
}

// start begins with an empty memory, as kithd does after a restart.
func (a *consumerSide) start() {
	if a.r != nil {
		a.r.Close()
	}
	a.r = New(Config{Client: a.Ledger, Fresh: a.Client, Identity: a.me, Name: "alice", Directory: a.directory,
		Endpoints: func() []string { return nil }, Announce: a.announce, Log: slog.New(slog.DiscardHandler)})
}

// ask is what `kith peer bob` writes.
func (a *consumerSide) ask(t *testing.T, attempt int64, resources corev1.ResourceList) {
	t.Helper()
	peer := a.peer(t, "bob")
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: attempt, Resources: resources}
	if err := a.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	a.look(t)
}

// say is what `kith confirm bob` writes.
func (a *consumerSide) say(t *testing.T, word v1alpha1.Confirm) {
	t.Helper()
	peer := a.peer(t, "bob")
	before := peer.DeepCopy()
	peer.Spec.Request.Confirm = &word
	if err := a.Patch(t.Context(), peer, client.MergeFrom(before)); err != nil { // whoever waits for the answer may write at this moment, too
		t.Fatal(err)
	}
	a.look(t)
}

func (a *consumerSide) look(t *testing.T) {
	t.Helper()
	peer := a.peer(t, "bob")
	contracts := a.Now().With("bob", v1alpha1.RoleConsumer)
	if _, err := a.r.Outgoing(t.Context(), peer, a.directory.Contact(peer), contracts, nil); err != nil {
		t.Logf("look: %v", err)
	}
}

// until looks again until what is awaited is so.
func (a *consumerSide) until(t *testing.T, what string, is func(v1alpha1.DirectionStatus) bool) v1alpha1.DirectionStatus {
	t.Helper()
	for range 200 {
		if out := a.peer(t, "bob").Status.Outgoing; is(out) {
			return out
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("never: %s; %+v", what, a.peer(t, "bob").Status.Outgoing)
	return v1alpha1.DirectionStatus{}
}

func confirming(out v1alpha1.DirectionStatus) bool { return out.Confirm != nil }
func declined(out v1alpha1.DirectionStatus) bool   { return out.State == v1alpha1.StateDeclined }
func signedIs(out v1alpha1.DirectionStatus) bool   { return out.State == v1alpha1.StateContracted }

// liar answers every question with yes at once, says that he knows everybody's key, and signs what comes.
type liar struct {
	peering.Handler
	me        *identity.Identity
	terms     atomic.Pointer[contract.Terms]
	questions atomic.Int32
	signed    atomic.Pointer[contract.Document]
}

func (l *liar) Recognise(context.Context, peering.Caller) bool { return true }
func (l *liar) Compared(context.Context, peering.Caller) bool  { return true }

func (l *liar) Ask(context.Context, peering.Caller, peering.Question, string, bool) (string, time.Time, error) {
	l.questions.Add(1)
	return "question", time.Now().Add(time.Minute), nil
}

func (l *liar) Outcome(context.Context, peering.Caller, string) (peering.Outcome, error) {
	return peering.Outcome{State: peering.OutcomeAccepted, Offer: &peering.Offer{Terms: *l.terms.Load(), ValidUntil: time.Now().Add(time.Minute), ValidFor: 3600}}, nil
}

func (l *liar) Sign(_ context.Context, _ peering.Caller, s contract.Signed) (contract.Signed, error) {
	doc, err := contract.Parse(s.Document)
	if err == nil {
		l.signed.Store(&doc)
	}
	return s, s.SignAs(contract.Provider, l.me)
}

func serveHandler(t *testing.T, me *identity.Identity, handler peering.Handler) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := peering.NewServer(peering.ServerConfig{Identity: me, Name: func() string { return "bob" }, Version: "test", Handler: handler, Log: slog.New(slog.DiscardHandler)})
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

func newLiar(t *testing.T) (*liar, *consumerSide) {
	t.Helper()
	l := &liar{me: load(t)}
	l.terms.Store(&contract.Terms{Resources: map[string]string{"cpu": "4", "memory": "8Gi"}, PodSecurity: contract.Baseline})
	address := serveHandler(t, l.me, l)
	return l, newAsker(t, l.me.ID(), address)
}

// Whoever announces himself as bob, says that he knows alice's key and accepts at once gets nothing signed before alice's owner
// compared.
func TestWhoeverCallsHimselfBobGetsNothingSignedBeforeTheOwnerConfirms(t *testing.T) {
	for name, word := range map[string]func(code string) v1alpha1.Confirm{
		"no":           func(string) v1alpha1.Confirm { return v1alpha1.Confirm{Attempt: 1, Reject: true} },
		"another code": func(code string) v1alpha1.Confirm { return v1alpha1.Confirm{Attempt: 1, Code: other(code)} },
		"another ID":   func(string) v1alpha1.Confirm { return v1alpha1.Confirm{Attempt: 1, ID: identity.ID{1}.String()} },
	} {
		t.Run(name, func(t *testing.T) {
			mallory, alice := newLiar(t)
			alice.ask(t, 1, nil)
			out := alice.until(t, "alice is asked to compare", confirming)
			if out.State != v1alpha1.StateRequested || len(out.Confirm.Code) != 6 || !strings.Contains(out.Why, "kith confirm bob") {
				t.Errorf("%+v", out)
			}
			alice.hears(t, api.EventConfirm, 1)
			alice.look(t)
			alice.say(t, v1alpha1.Confirm{Attempt: 7, Code: out.Confirm.Code}) // a word on another attempt
			alice.say(t, v1alpha1.Confirm{Attempt: 1, Terms: true})            // nothing of the code
			if mallory.signed.Load() != nil {
				t.Fatal("signed without a word of the owner")
			}
			alice.say(t, word(out.Confirm.Code))
			out = alice.until(t, "the request is taken back", declined)
			if !strings.Contains(out.Why, "taken back") || out.Confirm != nil || out.RequestID != "" {
				t.Errorf("%+v", out)
			}
			alice.hears(t, api.EventSecurity, 1)
			alice.look(t)
			if mallory.signed.Load() != nil || len(alice.contracts(t)) != 0 || sharing.Accepted(alice.peer(t, "bob")) || mallory.questions.Load() != 1 {
				t.Errorf("signed %v, %d questions", mallory.signed.Load(), mallory.questions.Load())
			}
		})
	}
}

func other(code string) string {
	if code == "000000" {
		return "111111"
	}
	return "000000"
}

func TestAConfirmedCodeSignsAndMakesTheKeyKnown(t *testing.T) {
	bob, alice := newLiar(t)
	alice.ask(t, 1, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")})
	out := alice.until(t, "alice is asked to compare", confirming)
	alice.start() // a restart: the question is in the objects, and is not told of again
	alice.look(t)
	alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: out.Confirm.Code})
	out = alice.until(t, "signed", signedIs)
	if got := bob.signed.Load().Resources; got["cpu"] != "2" || got["memory"] != "8Gi" {
		t.Errorf("signed %v: cpu is more than was asked for, or what is up to bob was changed", got)
	}
	if !sharing.Accepted(alice.peer(t, "bob")) || out.Confirm != nil || out.Code != "" {
		t.Errorf("%+v", alice.peer(t, "bob").Status)
	}
	alice.hears(t, api.EventConfirm, 1)
	alice.hears(t, api.EventSecurity, 0)
}

func TestACodeOrAnIDGivenBeforehandSigns(t *testing.T) {
	for name, word := range map[string]v1alpha1.Confirm{"id": {Attempt: 1}, "code": {Attempt: 1}} {
		t.Run(name, func(t *testing.T) {
			bob, alice := newLiar(t)
			if word.ID = bob.me.ID().String(); name == "code" {
				word.ID = ""
				bob.terms.Load().Prices = nil
			}
			peer := alice.peer(t, "bob")
			peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1, Confirm: &word}
			if err := alice.Update(t.Context(), peer); err != nil {
				t.Fatal(err)
			}
			alice.look(t)
			if name == "code" {
				out := alice.until(t, "the code is known", func(out v1alpha1.DirectionStatus) bool { return out.Code != "" })
				alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: out.Code})
			}
			alice.until(t, "signed", signedIs)
		})
	}
}

// A Peer that was written by hand, as docs/security.md has it for GitOps, says no more than its ID.
func TestAPeerWrittenByHandNeedsItsIDOnly(t *testing.T) {
	_, alice := newLiar(t)
	peer := alice.peer(t, "bob")
	peer.Spec = v1alpha1.PeerSpec{ID: peer.Spec.ID, Request: &v1alpha1.ResourceRequest{Attempt: 1, Confirm: &v1alpha1.Confirm{Attempt: 1, ID: peer.Spec.ID}}}
	if err := alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	alice.look(t)
	alice.until(t, "signed", signedIs)
}

// Terms beyond what was asked for need a yes of their own, to exactly what was shown.
func TestTermsThatWereNotAskedForAreNotSignedWithoutTheOwner(t *testing.T) {
	priced := func(price string) *contract.Terms {
		return &contract.Terms{Resources: map[string]string{"cpu": "4"}, PodSecurity: contract.Privileged, Prices: map[string]string{"cpu": price}, StorageClasses: []string{"fast"}}
	}
	bob, alice := newLiar(t)
	bob.terms.Store(priced("0.02 EUR"))
	alice.ask(t, 1, nil)
	out := alice.until(t, "alice is asked", confirming)
	want := []string{"cpu costs 0.02 EUR an hour for each core", "pods may run privileged there", "it names storage classes: fast"}
	if !slices.Equal(out.Confirm.Terms, want) {
		t.Errorf("terms %q, want %q", out.Confirm.Terms, want)
	}
	code := out.Code
	alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: code}) // the code alone
	alice.until(t, "only the terms are left", func(out v1alpha1.DirectionStatus) bool { return out.Confirm != nil && out.Confirm.Code == "" })
	if bob.signed.Load() != nil {
		t.Fatal("signed without a yes to the terms")
	}
	bob.terms.Store(priced("9.00 EUR")) // the moment before the yes arrives
	alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: code, Terms: true})
	out = alice.until(t, "taken back", declined)
	if bob.signed.Load() != nil || !strings.Contains(out.Why, "changed its terms") {
		t.Errorf("signed %v; %s", bob.signed.Load(), out.Why)
	}

	// A yes that was there before the terms were is a yes to nothing. The code needs no word here: no code is needed for a key
	// that the owner confirmed, and it was not, since nothing was signed.
	peer := alice.peer(t, "bob")
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 2, Confirm: &v1alpha1.Confirm{Attempt: 2, ID: peer.Spec.ID, Terms: true}}
	if err := alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	alice.look(t)
	out = alice.until(t, "taken back", func(out v1alpha1.DirectionStatus) bool { return declined(out) && out.Attempt == 2 })
	if bob.signed.Load() != nil || !strings.Contains(out.Why, "before they were known") {
		t.Errorf("signed %v; %s", bob.signed.Load(), out.Why)
	}

	// And the right yes signs.
	alice.ask(t, 3, nil)
	out = alice.until(t, "alice is asked", func(out v1alpha1.DirectionStatus) bool { return out.Confirm != nil && out.Attempt == 3 })
	alice.say(t, v1alpha1.Confirm{Attempt: 3, Code: out.Code, Terms: true})
	alice.until(t, "signed", signedIs)
	if got := bob.signed.Load().Prices["cpu"]; got != "9.00 EUR" {
		t.Errorf("signed at %s", got)
	}
}

// A person reads for a while. Who shows him a penny and changes it before his yes comes, without a word of his in between, has
// his request taken back: a yes says nothing of which terms it is to.
func TestTermsThatChangeBeforeTheOwnersEyesAreNotSigned(t *testing.T) {
	priced := func(price string) *contract.Terms {
		return &contract.Terms{Resources: map[string]string{"cpu": "4"}, PodSecurity: contract.Baseline, Prices: map[string]string{"cpu": price}}
	}
	free := &contract.Terms{Resources: map[string]string{"cpu": "4"}, PodSecurity: contract.Baseline}
	for name, changes := range map[string][]*contract.Terms{"at once": {priced("9.00 EUR")}, "by way of none": {free, priced("9.00 EUR")}} {
		t.Run(name, func(t *testing.T) {
			bob, alice := newLiar(t)
			bob.terms.Store(priced("0.01 EUR"))
			alice.ask(t, 1, nil)
			out := alice.until(t, "alice is asked", confirming)
			for _, terms := range changes { // bob says when his question lapses, and has it looked after by that
				peer := alice.peer(t, "bob")
				outcome := peering.Outcome{State: peering.OutcomeAccepted, Offer: &peering.Offer{Terms: *terms, ValidUntil: time.Now().Add(time.Minute), ValidFor: 3600}}
				bob.terms.Store(terms)
				to, err := alice.directory.Client(peer)
				if err != nil {
					t.Fatal(err)
				}
				if err := alice.r.conclude(t.Context(), "bob", out.RequestID, to, outcome); err != nil {
					t.Fatal(err)
				}
			}
			peer := alice.peer(t, "bob")
			if peer.Status.Outgoing.Confirm != nil { // what the owner read is another thing
				alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: out.Code, Terms: true})
			}
			if out = alice.until(t, "taken back", declined); bob.signed.Load() != nil || !strings.Contains(out.Why, "changed its terms") {
				t.Errorf("signed %v; %s", bob.signed.Load(), out.Why)
			}
		})
	}
}

// What a contract in force says already was agreed to; what is new in its next revision was not.
func TestOnlyWorseTermsOfARevisionNeedAWord(t *testing.T) {
	had := &contract.Document{Terms: contract.Terms{PodSecurity: contract.Privileged, Prices: map[string]string{"cpu": "0.02 EUR"}, StorageClasses: []string{"fast"}}}
	if got := beyond(had.Terms, had); len(got) != 0 {
		t.Errorf("the same terms: %q", got)
	}
	more := contract.Terms{PodSecurity: contract.Privileged, Prices: map[string]string{"cpu": "0.03 EUR", "memory": "0.01 EUR"}, StorageClasses: []string{"fast", "slow"}}
	if got, want := beyond(more, had), []string{"cpu costs 0.03 EUR an hour for each core", "memory costs 0.01 EUR an hour for each GiB", "it names storage classes: slow"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Data that is kept for a shorter time than now, or than without a word on it, needs one where storage is lent; a longer time does not.
func TestAShorterTimeForVolumesNeedsAWord(t *testing.T) {
	terms := func(storage string, keep time.Duration) contract.Terms {
		return contract.Terms{Resources: map[string]string{"storage": storage}, KeepVolumes: contract.KeepFor(keep)}
	}
	const day = 24 * time.Hour
	none := terms("1Gi", time.Hour)
	delete(none.Resources, "storage")
	for name, c := range map[string]struct {
		terms contract.Terms
		had   time.Duration // 0: no contract
		want  string
	}{
		"as ever":                {terms("1Gi", 7*day), 0, ""},
		"longer":                 {terms("1Gi", 30*day), 0, ""},
		"shorter":                {terms("1Gi", time.Hour), 0, "volumes are kept there for 1 hour after the end, and not for 7 days"},
		"as signed":              {terms("1Gi", time.Hour), time.Hour, ""},
		"shorter than signed":    {terms("1Gi", 7*day), 30 * day, "volumes are kept there for 7 days after the end, and not for 30 days"},
		"and no storage is lent": {none, 0, ""},
	} {
		var had *contract.Document
		if c.had != 0 {
			had = &contract.Document{Terms: terms("1Gi", c.had)}
		}
		if got := strings.Join(beyond(c.terms, had), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Who takes alice's nonce and does not reveal knows a code that he does not like. Alice is told, and does not ask by herself,
// however often she looks, and not after a restart either.
func TestABrokenOffPairingIsNotTriedAgain(t *testing.T) {
	mallory := load(t)
	var openings, questions atomic.Int32
	mux := http.NewServeMux()
	server := &http.Server{Handler: mux, TLSConfig: mallory.ServerTLS(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	mux.HandleFunc("GET /kith/v1/hello", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"version":"1","id":"` + mallory.ID().String() + `","name":"bob","protocol":["kith/v2"]}`))
	})
	mux.HandleFunc("POST /kith/v2/requests", func(w http.ResponseWriter, _ *http.Request) {
		openings.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"a","commitment":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`))
	})
	mux.HandleFunc("POST /kith/v2/requests/{id}/question", func(http.ResponseWriter, *http.Request) {
		questions.Add(1)
		panic(http.ErrAbortHandler)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { server.Close() })
	alice := newAsker(t, mallory.ID(), listener.Addr().String())
	alice.ask(t, 1, nil)
	out := alice.until(t, "alice is told", declined)
	if !strings.Contains(out.Why, "bob broke off the pairing; ask again") {
		t.Error(out.Why)
	}
	alice.hears(t, api.EventRequestAnswered, 1)
	for range 5 {
		alice.look(t)
	}
	alice.start()
	alice.look(t)
	if n := questions.Load(); n != 1 {
		t.Errorf("alice's nonce went out %d times for one word of her owner", n)
	}

	// kithd dies when its nonce is out: what is written down says that this attempt is over.
	peer := alice.peer(t, "bob")
	peer.Spec.Request.Attempt = 2
	if err := alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	peer = alice.peer(t, "bob")
	peer.Status.Outgoing = v1alpha1.DirectionStatus{State: v1alpha1.StateRequested, Attempt: 2, Why: "asking the owner of bob"}
	if err := alice.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	alice.start()
	alice.look(t)
	out = alice.until(t, "the attempt is over", declined)
	if n := questions.Load(); n != 1 || !strings.Contains(out.Why, "restarted in the middle of the pairing; ask again") {
		t.Errorf("%d questions, %q", n, out.Why)
	}
}

// Bob's policy answers by itself: for everybody, that compares nothing, and alice's key stays unknown; with her ID in it, it is
// the owner's word on the key. His own answer to a request with a code is, too.
func TestOnlyAComparisonMakesAKeyKnownAtTheProvider(t *testing.T) {
	for name, c := range map[string]struct {
		policy func(alice identity.ID, p *v1alpha1.SharingPolicy)
		known  bool
	}{
		"a policy for everybody": {func(_ identity.ID, p *v1alpha1.SharingPolicy) { p.Spec.AutoAccept = true }, false},
		"a policy with the ID": {func(alice identity.ID, p *v1alpha1.SharingPolicy) {
			p.Spec.AutoAccept, p.Spec.Peers = true, []string{alice.String()}
		}, true},
		"the owner": {func(identity.ID, *v1alpha1.SharingPolicy) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			policy := sharing.Default(50)
			bob := newBob(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "any"}})
			p := bob.Provider
			alice := newAsker(t, bob.me.ID(), serveHandler(t, bob.me, provided{Provider: p}))
			c.policy(alice.me.ID(), policy)
			if err := bob.client.Create(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			alice.ask(t, 1, nil)
			open := bob.requests(t)
			if len(open) != 1 {
				t.Fatalf("%d requests", len(open))
			}
			request := &open[0]
			if request.Spec.Code != alice.peer(t, "bob").Status.Outgoing.Code || request.Spec.Code == "" || request.Spec.Address != "127.0.0.1" {
				t.Errorf("bob sees %+v, alice %+v", request.Spec, alice.peer(t, "bob").Status.Outgoing)
			}
			if name == "the owner" {
				bob.accepts(t, request)
			}
			alice.until(t, "alice is asked to compare", confirming)
			if caller := (peering.Caller{ID: alice.me.ID()}); p.Recognise(t.Context(), caller) || p.Compared(t.Context(), caller) {
				t.Error("known before anything was signed")
			}
			alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: request.Spec.Code}) // as bob's screen shows it
			alice.until(t, "signed", signedIs)
			caller := peering.Caller{ID: alice.me.ID()}
			if !p.Recognise(t.Context(), caller) || p.Compared(t.Context(), caller) != c.known {
				t.Errorf("recognised %t, compared %t, want %t", p.Recognise(t.Context(), caller), p.Compared(t.Context(), caller), c.known)
			}
		})
	}
}

// A request that nobody confirms lapses with the peer's own word on it.
func TestWhatNobodyConfirmsLapses(t *testing.T) {
	now := time.Now()
	if Look(v1alpha1.DirectionStatus{}, now) != 0 {
		t.Error("there is nothing to look after")
	}
	expires := metav1.NewTime(now.Add(5 * time.Minute))
	out := v1alpha1.DirectionStatus{Confirm: &v1alpha1.Confirmation{}, Expires: &expires}
	if left := Look(out, now); left < 5*time.Minute || left > 7*time.Minute {
		t.Errorf("looked after in %s", left)
	}
	if left := Look(out, now.Add(time.Hour)); left != record.Afterwards {
		t.Errorf("past its time looked after in %s", left)
	}
}

// However long a provider offers, nothing is signed for longer than the usual time.
func TestNoOfferBindsForYears(t *testing.T) {
	alice, bob := load(t), load(t)
	doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()}, contract.Terms{}, 10*365*24*time.Hour)
	if lasts := doc.NotAfter.Sub(doc.NotBefore); lasts > record.Validity+record.ClockSkew {
		t.Errorf("signed for %s", lasts)
	}
}

// Who said beforehand what he pays is asked nothing about prices within that; beyond it nothing is signed, whatever else was agreed to.
func TestPricesThatWereAgreedToBeforehand(t *testing.T) {
	for price, signs := range map[string]bool{"0.02 EUR": true, "0.021 EUR": false, "0.02 USD": false} {
		t.Run(price, func(t *testing.T) {
			bob, alice := newLiar(t)
			bob.terms.Store(&contract.Terms{Resources: map[string]string{"cpu": "4"}, PodSecurity: contract.Baseline, Prices: map[string]string{"cpu": price, "memory": "0 " + price[len(price)-3:]}})
			peer := alice.peer(t, "bob")
			peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1, MaxPrices: map[string]v1alpha1.UnitPrice{"cpu": "0.020 EUR"}, Confirm: &v1alpha1.Confirm{Attempt: 1, ID: bob.me.ID().String()}}
			if err := alice.Update(t.Context(), peer); err != nil {
				t.Fatal(err)
			}
			alice.look(t)
			if signs {
				alice.until(t, "signed", signedIs)
				if got := bob.signed.Load().Prices["cpu"]; got != price {
					t.Errorf("signed at %s", got)
				}
				return
			}
			if out := alice.until(t, "declined", declined); bob.signed.Load() != nil || !strings.Contains(out.Why, "cpu costs "+price+" an hour for each core, and at most 0.020 EUR is paid") {
				t.Errorf("signed %v; %s", bob.signed.Load(), out.Why)
			}
		})
	}
	if why := dearer(map[string]string{"memory": "1 EUR"}, map[string]v1alpha1.UnitPrice{"cpu": "1 EUR"}); why == "" {
		t.Error("what was not named is paid for")
	}
	if why := dearer(map[string]string{"cpu": "1e999999999 EUR"}, map[string]v1alpha1.UnitPrice{"cpu": "1 EUR"}); why == "" {
		t.Error("an exponent is within a price")
	}
}
