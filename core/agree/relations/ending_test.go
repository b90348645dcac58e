package relations

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// away is a directory that knows how a peer is reached, and leads to nobody.
type away struct{ contact peering.Contact }

func (a away) Contact(*v1alpha1.Peer) peering.Contact { return a.contact }

func (away) Client(*v1alpha1.Peer) (*peering.Client, error) {
	return nil, errors.New("nobody is there")
}

// noted is what gateway, virtual nodes and hosting are told to take away.
type noted struct {
	heardOf
	tunnels
}

func (n *noted) Retire(_ context.Context, peer string, reachable bool, _ <-chan struct{}) error {
	n.say("bring the pods home from %s, which answers: %v", peer, reachable)
	return nil
}

func (n *noted) EndContract(_ context.Context, ctr *v1alpha1.Contract) error {
	n.say("clear away %s", ctr.Name)
	return nil
}

func (n *noted) RemovePeer(string) error { n.say("take the tunnel down"); return nil }

func (*noted) Stats(string) (gateway.Stats, bool) { return gateway.Stats{}, false }

// cluster is one laptop's objects and what its owner was told.
type cluster struct {
	*ledger.Ledger
	me     *identity.Identity
	events []api.Event
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringRequest{}, &v1alpha1.Contract{}).Build()
	return &cluster{Ledger: ledgertest.Over(t, c), me: load(t)}
}

func load(t *testing.T) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// hears counts what the owner was told of a kind.
func (c *cluster) hears(kind api.EventType) (n int) {
	for _, e := range c.events {
		if e.Type == kind {
			n++
		}
	}
	return n
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

// acceptedPeer is a Peer whose key the owner accepted.
func acceptedPeer(name string, id identity.ID) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String(), DisplayName: name}}
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "OwnerAccepted"})
	return peer
}

// both is alice, who may consume from bob and provide to him.
type both struct {
	*cluster
	*noted
	bob  identity.ID
	r    *Reconciler
	word <-chan peering.Notice // in the stream that bob has open
}

// held is a contract with bob that runs for so long.
func held(t *testing.T, me, bob *identity.Identity, role v1alpha1.Role, left time.Duration) *v1alpha1.Contract {
	t.Helper()
	provider := contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()}
	consumer, name := me, "alice"
	if role == v1alpha1.RoleProvider {
		consumer, name, provider = bob, "bob", contract.Party{ID: me.ID(), Name: "alice", Key: me.Public()}
	}
	doc := record.NewDocument(consumer, name, provider, contract.Terms{Resources: map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}, PodSecurity: contract.Baseline}, time.Hour)
	doc.NotBefore, doc.NotAfter, doc.Created = doc.NotBefore.Add(left-time.Hour), doc.NotAfter.Add(left-time.Hour), doc.Created.Add(left-time.Hour)
	signed, err := contract.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := record.NewContract(role, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}, signed, doc)
	if err != nil {
		t.Fatal(err)
	}
	return ctr
}

func newBoth(t *testing.T, contact peering.Contact, of func(me, bob *identity.Identity, peer *v1alpha1.Peer) []client.Object) *both {
	t.Helper()
	bob := load(t)
	w := &both{cluster: newCluster(t), noted: &noted{}, bob: bob.ID()}
	peer := acceptedPeer("bob", bob.ID())
	for _, o := range append(of(w.me, bob, peer), peer) {
		status := o.DeepCopyObject().(client.Object)
		if err := w.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		status.SetResourceVersion(o.GetResourceVersion())
		if err := w.Status().Update(t.Context(), status); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	notices := &provider.Notices{}
	w.word = notices.Subscribe(t.Context(), w.bob)
	w.r = newReconciler(w.cluster, away{contact}, w.noted, notices)
	t.Cleanup(w.r.Consumer.Close)
	return w
}

// newReconciler has all rooms together, as the daemon has.
func newReconciler(c *cluster, directory link.Directory, n *noted, notices *provider.Notices) *Reconciler {
	log := slog.New(slog.DiscardHandler)
	announce := func(e api.Event) { c.events = append(c.events, e) }
	linker := link.New(c.Ledger, link.Config{Gateway: n, Log: log})
	return New(Config{
		Client: c.Ledger, Fresh: c.Client, Directory: directory, Linker: linker, Fleet: n, Announce: announce, Log: log,
		Provider: provider.New(provider.Config{Client: c.Ledger, Fresh: c.Client, Identity: c.me, Name: "alice", Patience: time.Minute, Host: n,
			Linker: linker, Notices: notices, Announce: announce, Log: log}),
		Consumer: consumer.New(consumer.Config{Client: c.Ledger, Fresh: c.Client, Identity: c.me, Name: "alice", Directory: directory,
			Endpoints: func() []string { return nil }, Fleet: n, Announce: announce, Log: log}),
	})
}

// lives lists the contracts that go on, and those that end with the reason.
func (w *both) lives(t *testing.T) (states []string) {
	t.Helper()
	for _, ctr := range w.contracts(t) {
		state := string(ctr.Spec.Role) + " " + string(ctr.Status.State)
		if ctr.DeletionTimestamp != nil {
			state += ", deleted"
		}
		if ctr.Status.Why != "" {
			state += ": " + ctr.Status.Why
		}
		states = append(states, state)
	}
	slices.Sort(states)
	return states
}

func says(d v1alpha1.DirectionStatus) string {
	if d.Why == "" {
		return string(d.State)
	}
	return string(d.State) + ": " + d.Why
}

// What becomes of both directions with a peer, by what the owner wants, which contracts there are and whether the peer answers.
// Neither direction takes the other along.
func TestBothDirectionsGoTheirOwnWay(t *testing.T) {
	const connected, contracted, unreachable, ending = v1alpha1.StateConnected, v1alpha1.StateContracted, v1alpha1.StateUnreachable, v1alpha1.StateEnding
	since := time.Now().Add(-time.Hour)
	here, gone := peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: since}}, peering.Contact{Presence: presence.Presence{Why: "no answer", Since: since}}
	for name, c := range map[string]struct {
		wants     bool // resources of bob
		out, in   v1alpha1.RelationState
		consume   time.Duration // what the contract has left; none: there is no contract
		provide   time.Duration
		deleted   v1alpha1.Role // a contract that was deleted with kubectl
		unlinked  bool
		contact   peering.Contact
		wantOut   string
		wantIn    string
		contracts []string
	}{
		"strangers":                {contact: here, wantOut: "none"},
		"a question taken back":    {out: v1alpha1.StateRequested, contact: here, wantOut: "none"},
		"declined, not wanted":     {out: v1alpha1.StateDeclined, contact: here, wantOut: "none"},
		"ended, not wanted":        {out: ending, contact: gone, wantOut: "none"},
		"both in force":            {wants: true, out: contracted, in: contracted, consume: time.Hour, provide: time.Hour, contact: here, wantOut: "connected", wantIn: "connected", contracts: []string{"Consumer connected", "Provider connected"}},
		"both, and bob is away":    {wants: true, out: connected, in: connected, consume: time.Hour, provide: time.Hour, contact: gone, wantOut: "unreachable: no answer", wantIn: "unreachable: no answer", contracts: []string{"Consumer unreachable: no answer", "Provider unreachable: no answer"}},
		"both, and bob is back":    {wants: true, out: unreachable, in: unreachable, consume: time.Hour, provide: time.Hour, contact: here, wantOut: "connected", wantIn: "connected", contracts: []string{"Consumer connected", "Provider connected"}},
		"ended by its consumer":    {out: connected, in: connected, consume: time.Hour, provide: time.Hour, contact: here, wantOut: "ending: ended here", wantIn: "connected", contracts: []string{"Consumer ending, deleted: ended here", "Provider connected"}},
		"and bob is away":          {out: unreachable, in: unreachable, consume: time.Hour, provide: time.Hour, contact: gone, wantOut: "ending: ended here", wantIn: "unreachable: no answer", contracts: []string{"Consumer ending, deleted: ended here", "Provider unreachable: no answer"}},
		"one ran out":              {wants: true, out: connected, in: connected, consume: -time.Minute, provide: time.Hour, contact: here, wantOut: "ending: the contract ran out", wantIn: "connected", contracts: []string{"Consumer ending, deleted: the contract ran out", "Provider connected"}},
		"the other ran out":        {wants: true, out: connected, in: connected, consume: time.Hour, provide: -time.Minute, contact: here, wantOut: "connected", wantIn: "connected", contracts: []string{"Consumer connected", "Provider ending, deleted: the contract ran out"}},
		"one deleted":              {wants: true, out: connected, in: connected, consume: time.Hour, provide: time.Hour, deleted: v1alpha1.RoleConsumer, contact: here, wantOut: "ending", wantIn: "connected", contracts: []string{"Consumer , deleted", "Provider connected"}},
		"the other deleted":        {wants: true, out: connected, in: connected, consume: time.Hour, provide: time.Hour, deleted: v1alpha1.RoleProvider, contact: here, wantOut: "connected", wantIn: "ending", contracts: []string{"Consumer connected", "Provider , deleted"}},
		"provides alone":           {in: contracted, provide: time.Hour, contact: here, wantOut: "none", wantIn: "connected", contracts: []string{"Provider connected"}},
		"no link yet":              {in: contracted, provide: time.Hour, unlinked: true, contact: gone, wantOut: "none", wantIn: "contracted: signed, the link is being made", contracts: []string{"Provider contracted: signed, the link is being made"}},
		"the books are not read":   {wants: true, out: connected, in: connected, consume: time.Hour, provide: time.Hour, unlinked: true, contact: here, wantOut: "unreachable: nobody is there", wantIn: "connected: signed, the link is being made", contracts: []string{"Consumer unreachable: nobody is there", "Provider contracted: signed, the link is being made"}},
		"signed anew after an end": {in: ending, provide: time.Hour, contact: here, wantOut: "none", wantIn: "connected", contracts: []string{"Provider connected"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBoth(t, c.contact, func(me, bob *identity.Identity, peer *v1alpha1.Peer) (all []client.Object) {
				peer.Status.Outgoing, peer.Status.Incoming = v1alpha1.DirectionStatus{State: c.out, Attempt: 1}, v1alpha1.DirectionStatus{State: c.in}
				if c.wants {
					peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1}
				}
				if !c.unlinked {
					peer.Status.Network = &v1alpha1.NetworkStatus{PublicKey: "x", GuestsHere: "10.64.0.0/24", GuestsThere: "10.65.0.0/24"}
				}
				for role, left := range map[v1alpha1.Role]time.Duration{v1alpha1.RoleConsumer: c.consume, v1alpha1.RoleProvider: c.provide} {
					if left == 0 {
						continue
					}
					ctr := held(t, me, bob, role, left)
					if role == v1alpha1.RoleProvider {
						peer.Status.Incoming.Contract = ctr.Name
					}
					all = append(all, ctr)
				}
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}}
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				return append(all, node)
			})
			for _, ctr := range w.contracts(t) {
				if ctr.Spec.Role == c.deleted {
					if err := w.Delete(t.Context(), &ctr); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !c.unlinked {
				now := step{since: since} // over this connection
				if c.consume != 0 {
					now.space = w.r.Linker.Space(w.peer(t, "bob"))
				}
				w.r.synced["bob"] = now
			}
			for range 2 { // what was looked at twice is as it was
				if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "bob"}}); err != nil {
					t.Fatal(err)
				}
				status := w.peer(t, "bob").Status
				if says(status.Outgoing) != c.wantOut || says(status.Incoming) != c.wantIn {
					t.Errorf("out %q, want %q; in %q, want %q", says(status.Outgoing), c.wantOut, says(status.Incoming), c.wantIn)
				}
				if got := w.lives(t); !slices.Equal(got, c.contracts) {
					t.Errorf("contracts %q, want %q", got, c.contracts)
				}
				if c.wantIn == "connected" && c.provide < 0 { // it was ended; the next look shows it
					c.wantIn = "ending: the contract ran out"
				}
			}
			for kind, want := range map[api.EventType]bool{
				api.EventPeerConnected:   c.out != connected && c.wantOut == "connected",
				api.EventPeerUnreachable: c.out == connected && w.peer(t, "bob").Status.Outgoing.State == unreachable,
			} {
				if n := w.hears(kind); (n == 1) != want {
					t.Errorf("the owner was told %d times: %s", n, kind)
				}
			}
		})
	}
}

// What is left of a contract that ended, and who is told: all of its own direction goes, and what the other direction needs stays.
func TestWhatAnEndTakesAway(t *testing.T) {
	for name, c := range map[string]struct {
		role      v1alpha1.Role
		beside    bool // the other direction is in force
		forgotten bool
		why       string
		told      []string
	}{
		"of consuming":                {role: v1alpha1.RoleConsumer, why: "ended here", told: []string{"bring the pods home from bob, which answers: false", "take the tunnel down"}},
		"of consuming, and provides":  {role: v1alpha1.RoleConsumer, beside: true, why: "ended here", told: []string{"bring the pods home from bob, which answers: false"}},
		"of providing":                {role: v1alpha1.RoleProvider, why: "bob ended the contract", told: []string{"clear away to-bob", "take the tunnel down"}},
		"of providing, and consumes":  {role: v1alpha1.RoleProvider, beside: true, why: "the contract ran out", told: []string{"clear away to-bob"}},
		"of consuming, and forgotten": {role: v1alpha1.RoleConsumer, forgotten: true, why: "the peer was forgotten", told: []string{"bring the pods home from bob, which answers: false", "take the tunnel down"}},
		"of providing, and forgotten": {role: v1alpha1.RoleProvider, forgotten: true, why: "the peer was forgotten", told: []string{"clear away to-bob", "take the tunnel down"}},
	} {
		t.Run(name, func(t *testing.T) {
			other := v1alpha1.RoleConsumer
			direction := api.Incoming
			if c.role == v1alpha1.RoleConsumer {
				other, direction = v1alpha1.RoleProvider, api.Outgoing
			}
			var ctr *v1alpha1.Contract
			w := newBoth(t, peering.Contact{}, func(me, bob *identity.Identity, peer *v1alpha1.Peer) (all []client.Object) {
				ctr = held(t, me, bob, c.role, time.Hour)
				ctr.Status.State, ctr.Status.Why = v1alpha1.StateEnding, c.why
				if ctr.Name = "to-bob"; c.role == v1alpha1.RoleConsumer {
					ctr.Name = "from-bob"
				}
				peer.Status.Outgoing = v1alpha1.DirectionStatus{State: v1alpha1.StateConnected}
				peer.Status.Incoming, peer.Status.Node = peer.Status.Outgoing, "kith-bob"
				peer.Status.Network = &v1alpha1.NetworkStatus{PublicKey: "x"}
				if all = append(all, ctr, &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}); c.beside {
					all = append(all, held(t, me, bob, other, time.Hour))
				}
				return all
			})
			if c.forgotten {
				if err := w.Delete(t.Context(), w.peer(t, "bob")); err != nil {
					t.Fatal(err)
				}
			}
			key := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ctr)}
			for range 3 { // the first look deletes what is only said to end; the last finds nothing
				if _, err := w.r.contract(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			left := w.contracts(t)
			if (len(left) == 1) != c.beside || c.beside && (left[0].Spec.Role != other || !controllerutil.ContainsFinalizer(&left[0], v1alpha1.FinalizerContract)) {
				t.Errorf("left are %q", w.lives(t))
			}
			if !slices.Equal(w.noted.heardOf.told, c.told) {
				t.Errorf("told %q, want %q", w.noted.heardOf.told, c.told)
			}
			err := w.Get(t.Context(), client.ObjectKey{Name: "bob"}, &v1alpha1.Advertisement{})
			if apierrors.IsNotFound(err) != (c.role == v1alpha1.RoleConsumer) {
				t.Errorf("the offer: %v", err)
			}
			if !c.forgotten {
				s := w.peer(t, "bob").Status
				mine, others, node := s.Incoming, s.Outgoing, "kith-bob"
				if c.role == v1alpha1.RoleConsumer {
					mine, others, node = s.Outgoing, s.Incoming, ""
				}
				if says(mine) != "none: "+c.why || others.State != v1alpha1.StateConnected || s.Node != node || (s.Network != nil) != c.beside {
					t.Errorf("%+v", s)
				}
			}
			select {
			case n := <-w.word:
				if n.Type != peering.NoticeContractEnded || n.Contract != ctr.Spec.ID {
					t.Errorf("bob hears %+v", n)
				}
			default:
				t.Error("bob hears nothing")
			}
			if len(w.cluster.events) != 1 {
				t.Fatalf("the owner is told %+v", w.cluster.events)
			}
			e := w.cluster.events[0]
			if e.Type != api.EventPeeringEnded || e.Direction != direction || e.ByPeer != (c.why == "bob ended the contract") || e.Message != "the contract with bob is over: "+c.why {
				t.Errorf("the owner is told %+v", e)
			}
		})
	}
}

// bob was forgotten and another bob is a Peer by the time that anybody looks: nothing of the first one's is the second one's.
func TestAContractEndsWithItsKeyNotItsName(t *testing.T) {
	var ctr *v1alpha1.Contract
	w := newBoth(t, peering.Contact{}, func(me, bob *identity.Identity, _ *v1alpha1.Peer) []client.Object {
		ctr = held(t, me, bob, v1alpha1.RoleConsumer, time.Hour)
		return []client.Object{ctr}
	})
	look := func() v1alpha1.Contract {
		t.Helper()
		if _, err := w.r.contract(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ctr)}); err != nil {
			t.Fatal(err)
		}
		return w.contracts(t)[0]
	}
	if now := look(); now.DeletionTimestamp != nil {
		t.Fatal("the contract of the first bob ends while he is there")
	}
	if err := w.Delete(t.Context(), w.peer(t, "bob")); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), acceptedPeer("bob", load(t).ID())); err != nil {
		t.Fatal(err)
	}
	if now := look(); now.DeletionTimestamp == nil || now.Status.Why != "the peer was forgotten" {
		t.Errorf("the second bob has the contract of the first: %+v", now.Status)
	}
}

// The caches of Peers and of Contracts are not in step: of what was signed a moment ago the Contract may be there and its Peer
// not, and that is no reason to end it.
func TestAContractIsNotEndedForAPeerThatTheCacheDoesNotHaveYet(t *testing.T) {
	var ctr *v1alpha1.Contract
	w := newBoth(t, peering.Contact{}, func(me, bob *identity.Identity, _ *v1alpha1.Peer) []client.Object {
		ctr = held(t, me, bob, v1alpha1.RoleProvider, time.Hour)
		return []client.Object{ctr}
	})
	w.r.Client = ledgertest.Over(t, interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Peer); ok {
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("peers").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	}))
	look := func() v1alpha1.Contract {
		t.Helper()
		if _, err := w.r.contract(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ctr)}); err != nil {
			t.Fatal(err)
		}
		return w.contracts(t)[0]
	}
	if now := look(); now.DeletionTimestamp != nil || now.Status.State == v1alpha1.StateEnding {
		t.Errorf("it was ended: %+v", now.Status)
	}
	if err := w.Delete(t.Context(), w.peer(t, "bob")); err != nil { // forgotten
		t.Fatal(err)
	}
	if now := look(); now.DeletionTimestamp == nil || now.Status.Why != "the peer was forgotten" {
		t.Errorf("it stands on: %+v", now.Status)
	}
}
