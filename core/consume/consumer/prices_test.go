package consumer

import (
	"maps"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// signedAt is a contract with these prices.
func signedAt(t *testing.T, prices map[string]string) *v1alpha1.Contract {
	t.Helper()
	var ids [2]*identity.Identity
	for i := range ids {
		var err error
		if ids[i], err = identity.Load(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	doc := record.NewDocument(ids[0], "alice", contract.Party{ID: ids[1].ID(), Name: "bob", Key: ids[1].Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Prices: prices}, 0)
	signed, err := contract.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Document: signed.Document}}
}

func TestPricesAreWholeNumbersInLabels(t *testing.T) {
	for name, c := range map[string]struct{ prices, want map[string]string }{
		"none":            {nil, map[string]string{}},
		"free":            {map[string]string{"cpu": "0 EUR"}, map[string]string{}},
		"two":             {map[string]string{"cpu": "0.02 EUR", "memory": "1 EUR"}, map[string]string{"kith.dev/price-cpu": "20000", "kith.dev/price-memory": "1000000", "kith.dev/price-currency": "EUR"}},
		"a device":        {map[string]string{"nvidia.com/gpu": "1.5 credits"}, map[string]string{"kith.dev/price-nvidia.com.gpu": "1500000", "kith.dev/price-currency": "credits"}},
		"next to free":    {map[string]string{"cpu": "0.000000001 EUR"}, map[string]string{"kith.dev/price-cpu": "1", "kith.dev/price-currency": "EUR"}},
		"the largest":     {map[string]string{"cpu": "999999999999.999999999 EUR"}, map[string]string{"kith.dev/price-cpu": "1000000000000000000", "kith.dev/price-currency": "EUR"}},
		"a name too long": {map[string]string{"a-domain-of-many-letters.example.com/a-device-of-many-letters-too": "1 EUR"}, map[string]string{}},
	} {
		got := priceLabels(signedAt(t, c.prices))
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for key, value := range got {
			if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
				t.Errorf("%s: %s=%s is no label", name, key, value)
			}
			if _, err := strconv.ParseInt(value, 10, 64); err != nil && key != v1alpha1.LabelPriceCurrency {
				t.Errorf("%s: the scheduler cannot compare %s=%s: %v", name, key, value, err)
			}
		}
	}
}

// The recipe of docs/prices.md, by the scheduler's own reading of it: the cheaper a node the more it is preferred, what is free most of all.
func TestPodsPreferCheapPeers(t *testing.T) {
	below := func(most string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: v1alpha1.LabelPriceCurrency, Operator: corev1.NodeSelectorOpIn, Values: []string{"EUR"}},
			{Key: v1alpha1.LabelPrice + "cpu", Operator: corev1.NodeSelectorOpLt, Values: []string{most}},
		}}
	}
	free := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelPrice + "cpu", Operator: corev1.NodeSelectorOpDoesNotExist}}}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms([]corev1.PreferredSchedulingTerm{{Weight: 100, Preference: free}, {Weight: 50, Preference: below("10001")}, {Weight: 20, Preference: below("30001")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prices map[string]string
		want   int64
	}{
		{nil, 100}, {map[string]string{"cpu": "0.01 EUR"}, 70}, {map[string]string{"cpu": "0.03 EUR"}, 20}, {map[string]string{"cpu": "0.04 EUR"}, 0}, {map[string]string{"cpu": "0.01 USD"}, 0},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: priceLabels(signedAt(t, c.prices))}}
		if got := terms.Score(node); got != c.want {
			t.Errorf("%v: score %d, want %d", c.prices, got, c.want)
		}
	}
}
