package sharing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/supply"
)

// What is shown of a request is what the contract will say: both are Offer's.
func TestGrantIsWhatIsOfferedInWords(t *testing.T) {
	half := Default(50)
	node := list("cpu", "8", "memory", "16Gi", "ephemeral-storage", "100Gi", "pods", "110")
	paused := half.DeepCopy()
	paused.Spec.Paused = true
	most := list("cpu", "1", "memory", "8Gi", "pods", "55")
	none := corev1.ResourceList{}
	for _, c := range []struct {
		name    string
		in      OfferInput
		inForce corev1.ResourceList
		want    string
	}{
		{"nothing named", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}}, nil, "cpu 4, memory 8Gi, pods 55, ephemeral-storage 50Gi"},
		{"too much asked", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "100k", "nvidia.com/gpu", "1")}, nil,
			"cpu 4 (asked 100000), memory 8Gi, pods 55, ephemeral-storage 50Gi, nvidia.com/gpu 0 (asked 1)"},
		{"the same, written otherwise", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "4000m", "memory", "8192Mi", "pods", "55", "ephemeral-storage", "50Gi")},
			list("cpu", "4", "memory", "8Gi", "pods", "55", "ephemeral-storage", "53687091200"), "cpu 4, memory 8Gi, pods 55, ephemeral-storage 50Gi"},
		{"a change", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "900m", "memory", "2Gi", "pods", "40", "ephemeral-storage", "10Gi")},
			list("cpu", "1", "memory", "2Gi", "pods", "40", "ephemeral-storage", "10Gi"), "cpu 1 → 900m, memory 2Gi, pods 40, ephemeral-storage 10Gi"},
		{"what is shared no more goes", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("cpu", "1", "memory", "2Gi", "pods", "40", "ephemeral-storage", "10Gi", "a.com/x", "1")},
			list("cpu", "1", "memory", "2Gi", "pods", "40", "ephemeral-storage", "10Gi", "a.com/x", "1"), "cpu 1, memory 2Gi, pods 40, ephemeral-storage 10Gi, a.com/x 1 → 0 (asked 1)"},
		{"written with an exponent", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Asked: list("memory", "1e9", "pods", "1e1")}, nil, "cpu 4, memory 1000000000, pods 10, ephemeral-storage 10Gi"},
		{"paused", OfferInput{Policy: paused, Supply: supply.Supply{Nodes: node}}, nil, "nothing: sharing is paused (SharingPolicy default)"},
		{"said yes to less", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Most: &most}, nil, "cpu 1, memory 8Gi, pods 55"},
		{"no node yet", OfferInput{Policy: half}, nil, "nothing: no node here takes guests now"},
		{"paused, and no node yet", OfferInput{Policy: paused, Supply: supply.Supply{Nodes: node}}, nil, "nothing: sharing is paused (SharingPolicy default)"},
		{"said yes to nothing", OfferInput{Policy: half, Supply: supply.Supply{Nodes: node}, Most: &none}, nil, "nothing: it was accepted when no cpu could be granted"},
	} {
		c.in.Has = c.inForce
		grant, no := Grant(c.in)
		if grant.Summary != c.want {
			t.Errorf("%s: %s, want %s", c.name, grant.Summary, c.want)
		}
		if offer, err := Offer(c.in); !Same(offer, grant.Resources) || (err == nil) != (grant.Refusal == "") || (no == nil) != (err == nil) || no != nil && no.Passes != (len(c.in.Supply.Nodes) == 0) {
			t.Errorf("%s: would get %v, is offered %v, %v", c.name, grant.Resources, offer, err)
		}
	}
}

func TestLessSaysWhatIsNotGranted(t *testing.T) {
	for _, c := range []struct {
		asked, granted corev1.ResourceList
		want           string
	}{
		{list("cpu", "2"), list("cpu", "2000m", "memory", "4Gi"), ""},
		{nil, list("cpu", "2"), ""},
		{list("cpu", "100000", "memory", "1Gi"), list("cpu", "8", "memory", "1Gi"), "asked cpu 100000, granted 8"},
		{list("pods", "1k", "cpu", "3", "a.com/x", "1"), list("cpu", "2500m", "pods", "55"), "asked cpu 3, granted 2500m; asked pods 1000, granted 55; asked a.com/x 1, granted none"},
	} {
		if got := Less(c.asked, c.granted); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
