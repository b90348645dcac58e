package sharing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
)

// Room for volumes is offered to those who ask for it, within what the policy names and what the disks have; what a peer has it keeps.
func TestStorageIsPromisedToThoseWhoAsk(t *testing.T) {
	for name, c := range map[string]struct {
		shared v1alpha1.Amount
		room   string // of the disks; "": nobody knows
		in     OfferInput
		want   string
	}{
		"asked":                         {"20Gi", "100Gi", OfferInput{Asked: list("storage", "5Gi")}, "5Gi"},
		"asked for too much":            {"20Gi", "100Gi", OfferInput{Asked: list("storage", "50Gi")}, "20Gi"},
		"not asked":                     {"20Gi", "100Gi", OfferInput{}, "0"},
		"not shared":                    {"", "100Gi", OfferInput{Asked: list("storage", "5Gi")}, "0"},
		"the disk has less":             {"20Gi", "3Gi", OfferInput{Asked: list("storage", "5Gi")}, "3Gi"},
		"a part of the disk":            {"10%", "100Gi", OfferInput{Asked: list("storage", "50Gi")}, "20Gi"},
		"a part of nobody knows what":   {"10%", "", OfferInput{Asked: list("storage", "5Gi")}, "0"},
		"of a disk that nobody knows":   {"20Gi", "", OfferInput{Asked: list("storage", "5Gi")}, "5Gi"},
		"had already":                   {"20Gi", "100Gi", OfferInput{Has: list("storage", "5Gi")}, "5Gi"},
		"had, and the disk is full now": {"20Gi", "1Gi", OfferInput{Has: list("storage", "5Gi")}, "5Gi"},
		"promised to others":            {"20Gi", "100Gi", OfferInput{Asked: list("storage", "15Gi"), InForce: []corev1.ResourceList{list("storage", "10Gi")}}, "10Gi"},
		"scratch space is of that disk": {"20Gi", "30Gi", OfferInput{Asked: list("storage", "15Gi"), Supply: supply.Supply{Granted: []corev1.ResourceList{list("ephemeral-storage", "20Gi")}}}, "10Gi"},
	} {
		policy := Default(50)
		if c.shared != "" {
			policy.Spec.Amounts["storage"] = c.shared
		}
		if err := Validate(policy); err != nil {
			t.Fatal(err)
		}
		c.in.Policy, c.in.Supply.Nodes = policy, list("cpu", "8", "memory", "16Gi", "pods", "110", "ephemeral-storage", "200Gi")
		if c.room != "" {
			room := resource.MustParse(c.room)
			c.in.Supply.Room, c.in.Supply.Nodes["storage"] = &room, c.in.Supply.Nodes["ephemeral-storage"]
		}
		offer, err := Offer(c.in)
		got := offer["storage"]
		if err != nil || got.Cmp(resource.MustParse(c.want)) != 0 {
			t.Errorf("%s: %s, %v, want %s", name, got.String(), err, c.want)
		}
	}
}
