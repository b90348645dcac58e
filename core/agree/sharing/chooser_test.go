package sharing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// For whatever policies and peers, a Chooser gives what Select gives.
func TestAChooserChoosesAsSelectDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	id := func(n int) string { return identity.ID{byte(n), 7}.String() }
	chosen := 0
	for range 3000 {
		var policies []v1alpha1.SharingPolicy
		for i := range random.IntN(5) {
			p := *Default(50)
			p.Name, p.Spec.Priority = fmt.Sprintf("p%d", i), int32(random.IntN(3))
			for range random.IntN(3) {
				p.Spec.Peers = append(p.Spec.Peers, []string{id(random.IntN(4)), fmt.Sprintf("peer-%d", random.IntN(4))}[random.IntN(2)])
			}
			switch random.IntN(6) {
			case 0:
				p.Spec.PeerSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"trust": "family"}}
			case 1:
				p.Spec.PeerSelector = &metav1.LabelSelector{}
			case 2:
				p.Spec.PeerSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "trust", Operator: "Malformed"}}}
			case 3:
				p.DeletionTimestamp = new(metav1.Now())
			}
			policies = append(policies, p)
		}
		n := random.IntN(4)
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("peer-%d", random.IntN(4))}, Spec: v1alpha1.PeerSpec{ID: id(n)}}
		if random.IntN(2) == 0 {
			peer.ResourceVersion = "1"
		}
		if random.IntN(2) == 0 {
			meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue})
		}
		if random.IntN(2) == 0 {
			peer.Labels = map[string]string{"trust": "family"}
		}
		want, got := Select(policies, peer), NewChooser(policies).Of(peer)
		if want != got {
			t.Fatalf("%+v\n%+v\nSelect gives %v, and the chooser %v", policies, peer, want, got)
		}
		if got != nil {
			chosen++
		}
	}
	if chosen < 500 {
		t.Errorf("%d peers are selected by anything", chosen)
	}
}
