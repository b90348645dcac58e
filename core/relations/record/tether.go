package record

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// TetherRefused notes that a laptop which this cluster runs says that it is not tethered here any more (peering.CodeNotTethered), in the
// patch that says what became of the question. core/mode/company ends the tether by it.
func TetherRefused(s *v1alpha1.PeerStatus, why string) {
	now, next := metav1.Now(), v1alpha1.TetherStatus{}
	if s.Tether != nil {
		next = *s.Tether
	}
	next.Role, next.Step, next.Why, next.Since = v1alpha1.TetherCompany, v1alpha1.TetherStepRefused, why, &now
	s.Tether = &next
}
