package relations

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/gateway"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
)

// away is a directory that knows how a peer is reached, and leads to nobody.
type away struct{ contact link.Contact }

func (a away) Contact(*v1alpha1.Peer) link.Contact { return a.contact }

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

// both is alice, who may consume from bob and provide to him.
type both struct {
	*cluster
	*noted
	bob  identity.ID
	r    *PeerReconciler
	p    *Provider
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
	doc := newDocument(consumer, name, provider, contract.Terms{Resources: map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}, PodSecurity: contract.Baseline}, time.Hour)
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

func newBoth(t *testing.T, contact link.Contact, of func(me, bob *identity.Identity, peer *v1alpha1.Peer) []client.Object) *both {
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
	notices := &Notices{}
	w.word = notices.Subscribe(t.Context(), w.bob)
	log := slog.New(slog.DiscardHandler)
	linker := link.New(w.Client, link.Config{Gateway: w.noted, Log: log})
	w.p = NewProvider(w.Client, w.Client, w.me, "alice", time.Minute, w.noted, linker, notices, w.announce, log)
	w.r = NewPeerReconciler(PeerConfig{Client: w.Client, Fresh: w.Client, Identity: w.me, Name: "alice", Directory: away{contact},
		Fleet: w.noted, Homes: w.noted, Linker: linker, Announce: w.announce, Log: log})
	t.Cleanup(w.r.Close)
	return w
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
	here, gone := link.Contact{Reachable: true, Since: since}, link.Contact{Why: "no answer", Since: since}
	for name, c := range map[string]struct {
		wants     bool // resources of bob
		out, in   v1alpha1.RelationState
		consume   time.Duration // what the contract has left; none: there is no contract
		provide   time.Duration
		deleted   v1alpha1.Role // a contract that was deleted with kubectl
		unlinked  bool
		contact   link.Contact
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
					peer.Status.Network = &v1alpha1.NetworkStatus{Ours: []v1alpha1.RangeAlias{{Name: "pods"}}}
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
				w.r.synced["bob"] = since // over this connection
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
				if n := w.told(kind); (n == 1) != want {
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
			w := newBoth(t, link.Contact{}, func(me, bob *identity.Identity, peer *v1alpha1.Peer) (all []client.Object) {
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
				if _, err := w.p.contracts(w.r)(t.Context(), key); err != nil {
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

// After an end a peer is asked as it was the first time; its key is known by then, so nobody compares. A contract of its own comes
// of it, and nothing of the old one is in the way.
func TestPeeringAgain(t *testing.T) {
	w := newBetween(t, list("cpu", "1", "memory", "1Gi", "pods", "5"))
	first := w.alice.contracts(t)[0]
	peer := w.alice.peer(t, "bob")
	peer.Spec.Request = nil
	if err := w.alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	w.alice.r.fleet, w.alice.r.directory = &noted{}, away{} // bob hears nothing of the end
	log := slog.New(slog.DiscardHandler)
	linker := link.New(w.alice.Client, link.Config{Gateway: &noted{}, Log: log})
	p := NewProvider(w.alice.Client, w.alice.Client, w.alice.me, "alice", time.Minute, nil, linker, &Notices{}, w.alice.announce, log)
	w.alice.look(t)
	if _, err := p.contracts(w.alice.r)(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&first)}); err != nil {
		t.Fatal(err)
	}
	if out := w.alice.peer(t, "bob").Status.Outgoing; len(w.alice.contracts(t)) != 0 || out.State != v1alpha1.StateNone || out.Contract != "" {
		t.Fatalf("%d contracts, %+v", len(w.alice.contracts(t)), out)
	}
	w.alice.r.directory = w.alice.directory
	w.change(t, 2, list("cpu", "2", "memory", "1Gi", "pods", "5"))
	if open := w.bob.requests(t); len(open) != 1 || open[0].Spec.Code != "" {
		t.Errorf("bob is asked %+v", open)
	}
	second := w.accepted(t)
	cpu := second.Spec.Resources[corev1.ResourceCPU]
	if second.Spec.ID == first.Spec.ID || second.Spec.Revision != 1 || cpu.String() != "2" {
		t.Errorf("%s revision %d, cpu %s; before that %s", second.Spec.ID, second.Spec.Revision, cpu.String(), first.Spec.ID)
	}
	for _, ctr := range w.bob.signedOnes(t) {
		if (ctr.Spec.ID == second.Spec.ID) == (ctr.DeletionTimestamp != nil) {
			t.Errorf("at bob %s revision %d, deleted %v", ctr.Spec.ID, ctr.Spec.Revision, ctr.DeletionTimestamp)
		}
	}
}
