package sharing

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
)

// Storage of a class is shared as an amount, promised to those who ask for it by name, and where the class is; no other class counts against it.
func TestStorageOfAClassIsPromisedByItsName(t *testing.T) {
	const fast = "fast.storageclass.storage.k8s.io/requests.storage"
	for name, c := range map[string]struct {
		shared  v1alpha1.Amount
		classes []string
		in      OfferInput
		want    string
	}{
		"asked":                {"2Gi", []string{"slow", "fast"}, OfferInput{Asked: list(fast, "1Gi")}, "1Gi"},
		"asked for too much":   {"2Gi", []string{"fast"}, OfferInput{Asked: list(fast, "5Gi")}, "2Gi"},
		"not asked":            {"2Gi", []string{"fast"}, OfferInput{Asked: list("storage", "5Gi")}, "0"},
		"not shared":           {"", []string{"fast"}, OfferInput{Asked: list(fast, "5Gi")}, "0"},
		"no such class":        {"2Gi", []string{"slow"}, OfferInput{Asked: list(fast, "1Gi")}, "0"},
		"no class at all":      {"2Gi", []string{}, OfferInput{Asked: list(fast, "1Gi")}, "0"},
		"had already":          {"2Gi", []string{"fast"}, OfferInput{Has: list(fast, "1Gi")}, "1Gi"},
		"promised to others":   {"2Gi", []string{"fast"}, OfferInput{Asked: list(fast, "2Gi"), InForce: []corev1.ResourceList{list(fast, "1536Mi")}}, "512Mi"},
		"of another class":     {"2Gi", []string{"fast"}, OfferInput{Asked: list(fast, "2Gi"), InForce: []corev1.ResourceList{list("storage", "10Gi")}}, "2Gi"},
		"the disk says nought": {"2Gi", []string{"fast"}, OfferInput{Asked: list(fast, "2Gi"), Supply: supply.Supply{Room: new(resource.MustParse("1Gi"))}}, "2Gi"},
	} {
		policy := Default(50)
		if c.shared != "" {
			policy.Spec.Amounts[fast] = c.shared
		}
		if err := Validate(policy); err != nil {
			t.Fatal(err)
		}
		c.in.Policy, c.in.Supply.Nodes, c.in.Supply.Classes = policy, list("cpu", "8", "memory", "16Gi", "pods", "110"), c.classes
		offer, err := Offer(c.in)
		got := offer[fast]
		if err != nil || got.Cmp(resource.MustParse(c.want)) != 0 {
			t.Errorf("%s: %s, %v, want %s", name, got.String(), err, c.want)
		}
	}
	for key, amount := range map[string]v1alpha1.Amount{
		fast: "50%", "Fast.storageclass.storage.k8s.io/requests.storage": "1Gi", ".storageclass.storage.k8s.io/requests.storage": "1Gi",
		strings.Repeat("a", 64) + ".storageclass.storage.k8s.io/requests.storage": "1Gi",
	} {
		policy := Default(50)
		policy.Spec.Amounts[key] = amount
		if Validate(policy) == nil {
			t.Errorf("%s of %s is taken", amount, key)
		}
	}
	policy := Default(50)
	policy.Spec.Amounts[fast] = "2Gi"
	if notes := Notes(policy, supply.Supply{Nodes: list("cpu", "8", "memory", "16Gi", "pods", "110"), Classes: []string{"slow"}}, nil); !slices.Contains(notes, "there is no storage class fast here, so none of it is offered") {
		t.Error(notes)
	}
}

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
