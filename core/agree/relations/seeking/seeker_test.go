package seeking

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// strange is the ID of a cluster that nobody here knows.
const strange = "FUD4MS3-253NQMN-XZOT4VO-76EO3H2-XFOEFYQ-MDHQGNP-IANIVU5-CDQEFAP"

// asked is one question.
type asked struct {
	peer string
	at   time.Duration // since the world began
}

// world is a cluster with peers, of which each answers as answer says at the moment it is asked.
type world struct {
	*Seeker
	t      *testing.T
	client *ledger.Ledger
	begun  time.Time
	there  map[string]presence.Presence // by the peer's name; reachable without
	nearby map[string]Nearby            // by ID
	answer func(peer string) v1alpha1.RelationState
	events *events.FakeRecorder
	asked  []asked
	stale  bool // writes of policies' status conflict
	cut    bool // writes of Peers fail
	wrote  int  // of Peers' status
	pods   pods
	// requests are what was asked for, with each of asked.
	requests []v1alpha1.ResourceRequest
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, begun: time.Now(), there: map[string]presence.Presence{}, nearby: map[string]Nearby{}, events: events.NewFakeRecorder(10000)}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Contract{}, &v1alpha1.PeeringPolicy{}).Build()
	w.client = ledgertest.Over(t, interceptor.NewClient(base, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if w.stale {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it was changed"))
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, is := o.(*v1alpha1.Peer); is && w.cut {
				return errors.New("it is cut")
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}))
	w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateDeclined }
	w.restart()
	return w
}

// restart is a new process.
func (w *world) restart() {
	w.Seeker = New(Config{Client: w.client, Directory: w, Events: w.events, Pods: w, Log: slog.New(slog.DiscardHandler),
		Nearby: func(id identity.ID) (Nearby, bool) { found, ok := w.nearby[id.String()]; return found, ok }})
}

func (w *world) Client(*v1alpha1.Peer) (*peering.Client, error) { return nil, errors.New("not here") }

func (w *world) Contact(peer *v1alpha1.Peer) peering.Contact {
	there, known := w.there[peer.Name]
	if !known {
		there = presence.Presence{State: presence.Reachable}
	}
	return peering.Contact{Presence: there}
}

// goes has a peer be unreachable from now on, comes reachable.
func (w *world) goes(peer string) {
	w.there[peer] = presence.Presence{State: presence.Unreachable, Since: time.Now(), Why: "no route"}
}

func (w *world) comes(peer string) { delete(w.there, peer) }

// runs has time pass, with whatever the Seeker does in it.
func (w *world) runs(passes time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(passes); ; {
		wait := time.Until(end)
		for range 3 { // what one policy did, and what was answered, the others see
			var policies v1alpha1.PeeringPolicyList
			if err := w.client.List(w.t.Context(), &policies); err != nil {
				w.t.Fatal(err)
			}
			for i := range policies.Items {
				result, err := w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&policies.Items[i])})
				if err != nil && !w.cut {
					w.t.Fatal(err)
				}
				if result.RequeueAfter > 0 {
					wait = min(wait, result.RequeueAfter)
				}
			}
			before := w.wrote
			if w.answers(); w.wrote == before && len(policies.Items) == 1 {
				break
			}
			w.schedule()
		}
		time.Sleep(wait)
		if !time.Now().Before(end) {
			return
		}
	}
}

// answers does what the reconciler of Peers does with a question: requested is the answer of who says nothing.
func (w *world) answers() {
	now := w.client.Now()
	for _, peer := range now.Peers {
		out := peer.Status.Outgoing
		fresh := peer.Spec.Request != nil && peer.Spec.Request.Attempt > out.Attempt
		if c := peer.Spec.Request; c != nil && c.Confirm != nil && c.Confirm.Withdraw && out.RequestID != "" {
			w.status(peer, func(s *v1alpha1.PeerStatus) {
				record.Step(&s.Outgoing, peering.EventDeclined, "withdrawn")
				s.Outgoing.RequestID = ""
			})
		}
		if peer.Spec.Request == nil && now.InForce(peer.Name, v1alpha1.RoleConsumer) != nil {
			w.do(w.client.Delete(w.t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer.Name}}))
			w.status(peer, func(s *v1alpha1.PeerStatus) { record.Step(&s.Outgoing, peering.EventEnded, "it was ended here") })
		}
		if peer.Spec.Request == nil && out.State == v1alpha1.StateRequested {
			w.status(peer, func(s *v1alpha1.PeerStatus) { record.Step(&s.Outgoing, peering.EventCleared, "") })
		}
		if !fresh || !w.Contact(peer).Reachable() {
			continue
		}
		w.asked = append(w.asked, asked{peer.Name, time.Since(w.begun)})
		w.requests = append(w.requests, *peer.Spec.Request.DeepCopy())
		state := w.answer(peer.Name)
		if state == v1alpha1.StateContracted { // before its status, as the consumer does
			w.grants(peer.Name, peer.Spec.Request.Resources)
		}
		w.status(peer, func(s *v1alpha1.PeerStatus) {
			record.Step(&s.Outgoing, peering.EventAsked, "")
			s.Outgoing.Attempt = peer.Spec.Request.Attempt
			switch state {
			case v1alpha1.StateDeclined:
				record.Step(&s.Outgoing, peering.EventDeclined, "not today")
			case v1alpha1.StateContracted:
				record.Step(&s.Outgoing, peering.EventSigned, "")
			case v1alpha1.StateRequested:
				if s.Outgoing.State != v1alpha1.StateRequested { // beside a contract nothing else says that it is out
					s.Outgoing.RequestID = "question"
				}
			}
		})
	}
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status(peer *v1alpha1.Peer, change func(*v1alpha1.PeerStatus)) {
	w.t.Helper()
	w.wrote++
	w.do(record.PatchStatus(w.t.Context(), w.client, peer.DeepCopy(), change))
}

func (w *world) policy(name string) *v1alpha1.PeeringPolicy {
	w.t.Helper()
	var policy v1alpha1.PeeringPolicy
	w.do(w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, &policy))
	return &policy
}

// edits changes the spec of a policy, as its owner does.
func (w *world) edits(name string, change func(*v1alpha1.PeeringPolicySpec)) {
	w.t.Helper()
	policy := w.policy(name)
	change(&policy.Spec)
	policy.Generation++
	w.do(w.client.Update(w.t.Context(), policy))
}

// expect compares what was asked since the last time, and when.
func (w *world) expect(want ...asked) {
	w.t.Helper()
	if !slices.Equal(w.asked, want) {
		w.t.Errorf("asked %v, want %v", w.asked, want)
	}
	w.asked = nil
}

func (w *world) says(name string, state v1alpha1.SeekingState, contracts int32, reasons ...v1alpha1.SoughtReason) {
	w.t.Helper()
	is := w.policy(name).Status
	var got []v1alpha1.SoughtReason
	for _, p := range is.Peers {
		got = append(got, p.Reason)
	}
	if is.State != state || is.Contracts != contracts || !slices.Equal(got, reasons) || is.Message == "" {
		w.t.Errorf("%s: %s (%s), %d contracts, %v; want %s, %d, %v", name, is.State, is.Message, is.Contracts, got, state, contracts, reasons)
	}
}

func accepted(name string) *v1alpha1.Peer {
	peer := stranger(name, "id of "+name)
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "OwnerAccepted"})
	return peer
}

func stranger(name, id string) *v1alpha1.Peer {
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"trust": "family"}},
		Spec: v1alpha1.PeerSpec{ID: id, DisplayName: name}}
}

func policy(name string, most int32, peers ...string) *v1alpha1.PeeringPolicy {
	return &v1alpha1.PeeringPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Spec: v1alpha1.PeeringPolicySpec{
		Peers: peers, Amounts: map[string]v1alpha1.Amount{"cpu": "2", "memory": "4Gi"}, MaxPeers: &most, MaxPrices: map[string]v1alpha1.UnitPrice{"cpu": "0.02 EUR"}}}
}

const (
	contracted = v1alpha1.SoughtContracted
	declined   = v1alpha1.SoughtDeclined
	next       = v1alpha1.SoughtNext
)

func TestAPolicyAsksOnceAndKeepsToMaxPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), accepted("carol"), accepted("dave"), policy("all", 2))
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateContracted }
		w.runs(24 * time.Hour)
		w.expect(asked{"bob", 0}, asked{"carol", gap})
		w.says("all", v1alpha1.SeekingEnough, 2, contracted, contracted, next)
		request := w.client.Now().PeerNamed("bob").Spec.Request
		if cpu := request.Resources[corev1.ResourceCPU]; cpu.String() != "2" || len(request.Resources) != 2 ||
			request.MaxPrices["cpu"] != "0.02 EUR" || request.Confirm != nil {
			t.Errorf("asked for %+v", request)
		}
		for _, want := range []string{"Normal Asked bob", "Normal Contracted bob", "Normal Asked carol", "Normal Contracted carol"} {
			if got := <-w.events.Events; got != want {
				t.Errorf("event %q, want %q", got, want)
			}
		}
		// One that ends is replaced by another peer's, and the one who ended it is not asked at once.
		w.do(w.client.Delete(t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}))
		w.status(w.client.Now().PeerNamed("bob"), func(s *v1alpha1.PeerStatus) { record.Step(&s.Outgoing, peering.EventEnded, "bob ended the contract") })
		w.runs(0)
		w.expect(asked{"dave", 24 * time.Hour})
	})
}

func TestWhoDeclinesIsAskedLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), policy("all", 1))
		w.runs(5 * 24 * time.Hour)
		at, want := time.Duration(0), []asked{{"bob", 0}}
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 144, 144, 144} {
			at += pause * first
			want = append(want, asked{"bob", at})
		}
		w.expect(want...)
		if len(w.policy("all").Status.Peers) != 1 || w.policy("all").Status.Peers[0].Message != "not today" || w.policy("all").Status.Peers[0].Until == nil {
			t.Errorf("%+v", w.policy("all").Status.Peers)
		}
		w.says("all", v1alpha1.SeekingWaiting, 0, declined)

		// A lid that was closed for a minute changes nothing, and who comes back from longer is asked anew; so is who is asked by another policy.
		w.goes("bob")
		w.runs(time.Minute)
		w.says("all", v1alpha1.SeekingNobody, 0, v1alpha1.SoughtUnreachable)
		w.comes("bob")
		w.runs(time.Minute)
		w.expect()
		w.goes("bob")
		w.runs(away)
		w.comes("bob")
		w.runs(time.Minute)
		if len(w.asked) != 1 {
			t.Errorf("asked %v after it came back", w.asked)
		}
		w.runs(first)
		w.asked = nil
		w.edits("all", func(s *v1alpha1.PeeringPolicySpec) { s.Amounts["cpu"] = "1" })
		w.runs(gap)
		if len(w.asked) != 1 {
			t.Errorf("asked %v after the policy was changed", w.asked)
		}
	})
}

func TestQuestionsOfAllPoliciesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []client.Object{policy("a", 50), policy("b", 50), policy("c", 1)}
		for i := range 50 {
			objects = append(objects, accepted(fmt.Sprintf("peer-%02d", i)))
		}
		w := newWorld(t, objects...)
		w.answer = func(peer string) v1alpha1.RelationState {
			for _, p := range w.client.Now().Peers {
				if p.Name != peer && p.Status.Outgoing.State == v1alpha1.StateRequested {
					t.Errorf("%s is asked while %s is", peer, p.Name)
				}
			}
			return v1alpha1.StateDeclined
		}
		w.runs(time.Hour)
		if n := len(w.asked); n != int(time.Hour/gap) {
			t.Errorf("%d questions in an hour, want %d", n, int(time.Hour/gap))
		}
		counts := map[string]int{}
		for _, a := range w.asked {
			if counts[a.peer]++; counts[a.peer] > 1 {
				t.Errorf("%s was asked again before others were asked", a.peer)
			}
		}
		w.runs(time.Second) // the next one
		w.restart()         // a new process has the same bound
		before := len(w.asked)
		w.runs(time.Minute)
		if n := len(w.asked) - before; n > 0 {
			t.Errorf("%d questions in the minute after a restart", n)
		}
	})
}

func TestAStrangerIsAskedByItsIDAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labels := policy("labels", 1)
		labels.Spec.PeerSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"trust": "family"}}
		w := newWorld(t, stranger("bob", strange), policy("name", 1, "bob"), policy("everybody", 1), labels)
		w.runs(24 * time.Hour)
		w.expect()
		w.says("name", v1alpha1.SeekingNobody, 0)
		w.edits("name", func(s *v1alpha1.PeeringPolicySpec) { s.Peers = []string{strange} })
		w.runs(time.Minute)
		w.expect(asked{"bob", 24 * time.Hour})
		if c := w.client.Now().PeerNamed("bob").Spec.Request.Confirm; c == nil || c.ID != strange || c.Terms {
			t.Errorf("the word on its key is %+v", c)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that nobody here knows
		w := newWorld(t, policy("id", 1, strange))
		w.runs(time.Hour)
		w.nearby[strange] = Nearby{Name: "bob", Endpoints: []string{"192.0.2.1:6450"}, Source: v1alpha1.SourceLAN}
		w.runs(time.Minute)
		w.expect(asked{"bob", time.Hour})
	})
}

func TestARestartAsksNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), accepted("carol"), policy("all", 1))
		w.stale = true // a cache that is behind
		w.runs(time.Second)
		w.expect()
		w.stale = false
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateRequested } // its owner has not seen it
		w.runs(time.Second)
		w.expect(asked{"bob", time.Second})
		w.restart()
		w.runs(unanswered / 2)
		w.expect()
		w.says("all", v1alpha1.SeekingAsking, 0, v1alpha1.SoughtAsked, next)
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateDeclined }
		w.status(w.client.Now().PeerNamed("bob"), func(s *v1alpha1.PeerStatus) { record.Step(&s.Outgoing, peering.EventDeclined, "no") })
		w.runs(time.Second)
		if len(w.asked) != 1 || w.asked[0].peer != "carol" {
			t.Errorf("asked %v", w.asked)
		}
		for range 9 { // for each of nine minutes
			w.restart()
			w.goes("bob") // nobody is in contact at first
			w.goes("carol")
			w.runs(time.Second)
			w.comes("bob")
			w.comes("carol")
			w.runs(59 * time.Second)
		}
		if len(w.asked) != 1 {
			t.Errorf("asked %v", w.asked)
		}
	})
}

func TestAPolicyThatIsPausedOrDeletedAsksNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), accepted("carol"), policy("all", 2))
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateContracted }
		w.runs(time.Second)
		w.edits("all", func(s *v1alpha1.PeeringPolicySpec) { s.Paused = true })
		w.runs(24 * time.Hour)
		w.expect(asked{"bob", 0})
		w.says("all", v1alpha1.SeekingPaused, 1, contracted, next)
		w.edits("all", func(s *v1alpha1.PeeringPolicySpec) {
			s.Paused, s.Amounts = false, map[string]v1alpha1.Amount{"cpu": "0"}
		})
		w.runs(time.Hour)
		w.expect()
		w.says("all", v1alpha1.SeekingInvalid, 1, contracted, next)
		w.do(w.client.Delete(t.Context(), w.policy("all")))
		w.runs(24 * time.Hour)
		w.expect()
		if now := w.client.Now(); now.InForce("bob", v1alpha1.RoleConsumer) == nil || now.PeerNamed("bob").Spec.Request == nil {
			t.Error("the contract with bob ended with the policy")
		}
	})
}

func TestAQuestionToWhoIsGoneIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), accepted("carol"), policy("all", 1))
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateRequested }
		w.runs(time.Second)
		w.goes("bob")
		w.runs(patience)
		w.expect(asked{"bob", 0})
		w.runs(patience)
		if len(w.asked) != 1 || w.asked[0].peer != "carol" || w.client.Now().PeerNamed("bob").Spec.Request != nil {
			t.Errorf("asked %v; bob: %+v", w.asked, w.client.Now().PeerNamed("bob"))
		}
		w.says("all", v1alpha1.SeekingAsking, 0, v1alpha1.SoughtAsked, v1alpha1.SoughtUnreachable)
		// One that says nothing, and that its question never lapses, does not keep the others from being asked.
		w.comes("bob")
		w.asked = nil
		w.runs(2 * unanswered)
		if len(w.asked) == 0 || w.asked[0].peer != "bob" {
			t.Errorf("asked %v after carol said nothing for an hour", w.asked)
		}
	})
}

func TestTheStatusIsBounded(t *testing.T) {
	var all []facts
	for i := range 300 {
		all = append(all, facts{peer: accepted(fmt.Sprintf("peer-%03d", i)), contract: i >= 290, there: presence.Presence{Why: string(make([]byte, 2000))}})
	}
	p := decide(policy("all", 256), all, nil, time.Now(), time.Now())
	if len(p.status.Peers) != maxSought || p.status.Contracts != 10 {
		t.Errorf("%d peers, %d contracts", len(p.status.Peers), p.status.Contracts)
	}
	for i, s := range p.status.Peers {
		if (s.Reason == contracted) != (i < 10) || len(s.Message) > maxMessage {
			t.Errorf("%d: %s %d", i, s.Reason, len(s.Message))
		}
	}
}

// What the owner has out, or another policy, is no reason to ask once more, and a no to it is one to this policy, too.
func TestWhoIsAskedAlreadyIsNotAskedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, accepted("bob"), policy("a", 1), policy("b", 1))
		w.answer = func(string) v1alpha1.RelationState { return v1alpha1.StateRequested }
		w.runs(unanswered / 2)
		w.expect(asked{"bob", 0})
		w.says("b", v1alpha1.SeekingAsking, 0, v1alpha1.SoughtAsked)
		if s := w.policy("b").Status.Peers[0]; s.Attempt != 0 || s.Until != nil || s.Message == "" {
			t.Errorf("%+v", s)
		}
		w.status(w.client.Now().PeerNamed("bob"), func(s *v1alpha1.PeerStatus) { record.Step(&s.Outgoing, peering.EventDeclined, "no") })
		w.runs(first - time.Second)
		w.expect()
		w.says("b", v1alpha1.SeekingWaiting, 0, declined)
	})
}

// Whoever is asked is remembered, whatever his name is.
func TestWhoIsAskedIsInTheStatus(t *testing.T) {
	all := []facts{{peer: accepted("zoe"), there: presence.Presence{State: presence.Reachable}}}
	for i := range 300 {
		all = append(all, facts{peer: accepted(fmt.Sprintf("peer-%03d", i))})
	}
	now := time.Now()
	p := decide(policy("all", 1), all, nil, now, now)
	if p.ask == nil || p.ask.Name != "zoe" || p.status.Peers[0].Peer != "zoe" || p.status.Peers[0].Attempt != p.attempt || p.attempt == 0 {
		t.Errorf("%+v; first of the status is %+v", p.ask, p.status.Peers[0])
	}
}

// Who was asked for none is asked for none by a policy too: it says nothing of the network.
func TestAPolicyAsksForTheNetworkThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := accepted("bob")
		bob.Spec.Request = &v1alpha1.ResourceRequest{Network: v1alpha1.NetworkNone}
		w := newWorld(t, bob, policy("any", 1))
		w.answer = yes
		w.runs(time.Hour)
		if len(w.requests) == 0 || w.requests[0].Network != v1alpha1.NetworkNone {
			t.Errorf("asked for %+v", w.requests)
		}
	})
}
