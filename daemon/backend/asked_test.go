package backend

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Pods of Jobs stay as records once they ended.
func TestPodsThatEndedRunNowhere(t *testing.T) {
	pod := func(name, consumer, node string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{NodeName: node, Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintPeer}}}}
		if consumer != "" {
			p.Labels = map[string]string{v1alpha1.LabelConsumer: consumer}
		}
		return p
	}
	c := &Cluster{Client: ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(
		pod("runs", "", "kith-bob", corev1.PodRunning), pod("done", "", "kith-bob", corev1.PodSucceeded), pod("failed", "", "kith-bob", corev1.PodFailed),
		pod("guest", "carol", "alice", corev1.PodRunning), pod("former-guest", "carol", "alice", corev1.PodSucceeded),
	).Build())}
	f, err := (&Backend{Cluster: func() *Cluster { return c }}).gather(t.Context())
	if err != nil || f.abroad["kith-bob"] != 1 || f.guests["carol"] != 1 {
		t.Errorf("%v abroad, %v guests, %v", f.abroad, f.guests, err)
	}
}

// What became of the attempt before is in the status until this one is asked.
func TestANewQuestionDoesNotBeginWithTheEndOfTheFormer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{Attempt: 1, State: v1alpha1.StateDeclined, Why: "bob declined"}}}
		objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(peer).WithObjects(peer).Build())
		c := &Cluster{Client: objects}
		now := func(change func(*v1alpha1.DirectionStatus)) {
			synctest.Wait()
			if err := objects.Get(t.Context(), named("bob"), peer); err != nil {
				t.Fatal(err)
			}
			change(&peer.Status.Outgoing)
			if err := objects.Status().Update(t.Context(), peer); err != nil {
				t.Fatal(err)
			}
			c.Changed.Notify()
		}
		go func() {
			now(func(d *v1alpha1.DirectionStatus) { d.Why = "bob could not be asked: no route" })
			now(func(d *v1alpha1.DirectionStatus) {
				d.Attempt, d.State, d.Why, d.RequestID = 2, v1alpha1.StateRequested, "", "alice-x"
			})
			now(func(d *v1alpha1.DirectionStatus) { d.State = v1alpha1.StateConnected; d.RequestID = "" })
		}()
		var said []string
		if err := c.followAsk(t.Context(), "bob", 2, true, func(p api.Progress) { said = append(said, p.Message) }); err != nil {
			t.Fatal(err)
		}
		if len(said) != 2 || said[0] != "bob could not be asked: no route" || said[1] != "waiting for the owner of bob to accept" {
			t.Errorf("%q", said)
		}
	})
}

// Who asks a peer that is away for what its contract grants already hears that, and of the contract's end, however it waits.
func TestWhoAsksForWhatIsGrantedHearsOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{Attempt: 1, State: v1alpha1.StateUnreachable, Why: "no route"}}}
		objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(peer).WithObjects(peer).Build())
		c := &Cluster{Client: objects}
		var said []string
		say := func(p api.Progress) { said = append(said, p.Message) }
		if err := c.followAsk(t.Context(), "bob", 1, false, say); err != nil || len(said) != 1 || said[0] != "bob cannot be reached: no route" {
			t.Fatalf("%q, %v", said, err)
		}
		go func() {
			synctest.Wait()
			if err := objects.Get(t.Context(), named("bob"), peer); err != nil {
				t.Error(err)
			}
			peer.Status.Outgoing.State, peer.Status.Outgoing.Why = v1alpha1.StateNone, "bob ended the contract"
			if err := objects.Status().Update(t.Context(), peer); err != nil {
				t.Error(err)
			}
			c.Changed.Notify()
		}()
		if err := c.followAsk(t.Context(), "bob", 1, true, say); err == nil || err.Error() != "bob ended the contract (ask again)" {
			t.Errorf("%v", err)
		}
	})
}
