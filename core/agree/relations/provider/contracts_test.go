package provider

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// TestClocksMayBeTenMinutesApart has a consumer sign by its own clock and the provider look at it by another.
func TestClocksMayBeTenMinutesApart(t *testing.T) {
	alice, bob := load(t), load(t)
	for _, tc := range []struct {
		provider time.Duration // how much its clock is ahead of the consumer's
		lasts    time.Duration // as offered
		refused  bool
	}{
		{0, time.Hour, false},
		{-record.ClockSkew + time.Second, time.Hour, false},
		{record.ClockSkew - time.Second, time.Hour, false},
		{record.ClockSkew - time.Second, record.Validity, false},
		{-record.ClockSkew + time.Second, record.Validity, false},
		{-record.ClockSkew - 2*time.Second, time.Hour, true}, // not begun there
		{time.Hour + time.Second, time.Hour, true},           // over there
		{-3 * record.ClockSkew, record.Validity, true},
	} {
		doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
			contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, tc.lasts)
		err := timely(doc, time.Now().Add(tc.provider), tc.lasts)
		if (err != nil) != tc.refused {
			t.Errorf("provider %s ahead, contract for %s: %v", tc.provider, tc.lasts, err)
		}
		again := record.Renewed(doc, time.Now(), record.RunsFor(doc))
		if err := timely(again, time.Now().Add(tc.provider), tc.lasts); (err != nil) != tc.refused {
			t.Errorf("renewal, provider %s ahead, contract for %s: %v", tc.provider, tc.lasts, err)
		}
	}
}

func TestContractMayNotRunLongerThanOffered(t *testing.T) {
	alice, bob := load(t), load(t)
	doc := record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline}, 2*time.Hour)
	if timely(doc, time.Now(), time.Hour) == nil {
		t.Error("an hour was offered, two were signed")
	}
}

// TestAnEndThatIsSeenLateIsOver: the contract's own reconciler was through with it before the Peer's, by what that had read, said that it ends.
func TestAnEndThatIsSeenLateIsOver(t *testing.T) {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "alice"}}
	d := newWorld(t, peer)
	for _, step := range []struct {
		state, want v1alpha1.RelationState
		contracts   []*v1alpha1.Contract
	}{
		{v1alpha1.StateConnected, v1alpha1.StateEnding, []*v1alpha1.Contract{{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.Now())}}}},
		{v1alpha1.StateEnding, v1alpha1.StateNone, nil},
		{v1alpha1.StateRequested, v1alpha1.StateRequested, nil},
	} {
		peer.Status.Incoming = v1alpha1.DirectionStatus{State: step.state, Why: "alice ended the contract"}
		if err := d.client.Status().Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		if err := d.Incoming(t.Context(), peer, presence.Presence{}, step.contracts, nil); err != nil {
			t.Fatal(err)
		}
		if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(peer), peer); err != nil || peer.Status.Incoming.State != step.want {
			t.Errorf("%s with %d contracts: %+v, %v, want %s", step.state, len(step.contracts), peer.Status.Incoming, err, step.want)
		}
	}
}
