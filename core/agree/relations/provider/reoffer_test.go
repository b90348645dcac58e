package provider

import (
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// consumes has bob consume from somebody, who lets what is granted be offered on, or does not.
func (d *world) consumes(t *testing.T, name string, from *identity.Identity, reoffer bool, amounts map[string]string) {
	t.Helper()
	d.consumesAt(t, name, from, reoffer, amounts, nil)
}

// consumesAt is consumes at some prices.
func (d *world) consumesAt(t *testing.T, name string, from *identity.Identity, reoffer bool, amounts, prices map[string]string) {
	t.Helper()
	doc := d.document(from, amounts)
	doc.Consumer, doc.Provider, doc.Reoffer = doc.Provider, doc.Consumer, reoffer
	doc.Prices = prices
	doc.Version = doc.Terms.DocumentVersion()
	signed, err := contract.New(doc)
	if err = errors.Join(err, signed.SignAs(contract.Consumer, d.me), signed.SignAs(contract.Provider, from)); err != nil {
		t.Fatal(err)
	}
	peer, err := record.EnsurePeer(t.Context(), d.client, from.ID(), name, nil, v1alpha1.SourceManual)
	if err != nil {
		t.Fatal(err)
	}
	ctr, err := record.NewContract(v1alpha1.RoleConsumer, peer, signed, doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.client.Create(t.Context(), ctr); err != nil {
		t.Fatal(err)
	}
}

// TestWhatOthersGrantIsOfferedOnce: it counts like what bob has himself, for whom the policy says; what was promised of it to one is not there for
// another, nor what bob's own pods request there; and nobody is offered what he grants himself.
func TestWhatOthersGrantIsOfferedOnce(t *testing.T) {
	amounts := map[string]string{"cpu": "4", "memory": "4Gi", "pods": "20", "nvidia.com/gpu": "1"}
	for what, c := range map[string]struct {
		reoffer bool
		back    bool // the asker is who grants it
		policy  func(*v1alpha1.SharingPolicySpec)
		before  func(t *testing.T, d *world)
		want    string
	}{
		"what bob has himself": {reoffer: true, want: "cpu 8, memory 16Gi, pods 110"},
		"and what carol grants": {reoffer: true, policy: func(s *v1alpha1.SharingPolicySpec) { s.ReofferFrom = []string{sharing.AllProviders} },
			want: "cpu 12, memory 20Gi, pods 130"},
		"a share of both": {reoffer: true, policy: func(s *v1alpha1.SharingPolicySpec) {
			s.ReofferFrom = []string{sharing.AllProviders}
			s.Amounts = map[string]v1alpha1.Amount{"cpu": "50%", "memory": "25%", "pods": "10%"}
		}, want: "cpu 6, memory 5Gi, pods 13"},
		"carol does not let it": {policy: func(s *v1alpha1.SharingPolicySpec) { s.ReofferFrom = []string{sharing.AllProviders} }, want: "cpu 8, memory 16Gi, pods 110"},
		"not back to carol": {reoffer: true, back: true, policy: func(s *v1alpha1.SharingPolicySpec) { s.ReofferFrom = []string{sharing.AllProviders} },
			want: "cpu 8, memory 16Gi, pods 110"},
		"less what dave was promised": {reoffer: true, policy: func(s *v1alpha1.SharingPolicySpec) { s.ReofferFrom = []string{sharing.AllProviders} },
			before: func(t *testing.T, d *world) {
				dave, had := load(t), map[string]string{"cpu": "9", "memory": "1Gi", "pods": "30"}
				d.saysYes(t, dave, had)
				if _, _, err := d.signs(t, dave, d.document(dave, had)); err != nil {
					t.Fatal(err)
				}
			}, want: "cpu 3, memory 19Gi, pods 100"},
		"less what bob runs there": {reoffer: true, policy: func(s *v1alpha1.SharingPolicySpec) { s.ReofferFrom = []string{sharing.AllProviders} },
			before: func(t *testing.T, d *world) {
				for name, consumer := range map[string]string{"own": "", "guest": "x"} {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "kith-carol"}}
					if consumer != "" { // it is counted by its contract
						pod.Labels = map[string]string{v1alpha1.LabelConsumer: consumer}
					}
					pod.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1500m")}}}
					if err := d.client.Create(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
				}
			}, want: "cpu 10500m, memory 20Gi, pods 129"},
	} {
		p := sharing.Default(100)
		if c.policy != nil {
			c.policy(&p.Spec)
		}
		d, alice, carol := newWorld(t, p), load(t), load(t)
		d.consumes(t, "carol", carol, c.reoffer, amounts)
		if c.before != nil {
			c.before(t, d)
		}
		who := alice
		if c.back {
			who = carol
		}
		id, _, err := d.Ask(t.Context(), peering.Caller{ID: who.ID()}, peering.Question{Name: "alice", Attempt: 1}, "123456", false)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, r := range d.requests(t) {
			if r.Name != id {
				continue
			}
			if grant, err := d.Grant(t.Context(), &r); err != nil || grant.Summary != c.want {
				t.Errorf("%s: %s, want %s (%v)", what, strings.TrimSpace(grant.Summary), c.want, err)
			}
		}
	}
}

// TestVolumesAreNotPromisedOfOthersDisks: scratch space that a provider grants is scratch space alone.
func TestVolumesAreNotPromisedOfOthersDisks(t *testing.T) {
	p := sharing.Default(100)
	p.Spec.ReofferFrom = []string{sharing.AllProviders}
	d := newWorld(t, p)
	d.consumes(t, "carol", load(t), true, map[string]string{"cpu": "4", "ephemeral-storage": "200Gi"})
	own := supply.Supply{Nodes: list("cpu", "8", "ephemeral-storage", "100Gi", "storage", "100Gi"), Room: new(resource.MustParse("80Gi"))}
	there, err := d.SupplyUnder(t.Context(), p, own)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]string{"ephemeral-storage": "280Gi", "storage": "80Gi"} {
		if left, _, _ := there.Left(name); left.String() != want {
			t.Errorf("%s %s is left, want %s", left.String(), name, want)
		}
	}
}

// TestABrokersPricesAreNoLessThanItPays: what bob offers on has the prices that carol asks of him and his margin, in the offer, what he signs, and what he
// explains; a contract at the prices of his policy alone is not signed.
func TestABrokersPricesAreNoLessThanItPays(t *testing.T) {
	policy := sharing.Default(50)
	policy.Spec.ReofferFrom, policy.Spec.Margin, policy.Spec.Prices = []string{sharing.AllProviders}, "10%", map[string]v1alpha1.UnitPrice{"cpu": "0.01 EUR", "memory": "2 EUR"}
	d, alice := newWorld(t, policy), load(t)
	d.consumesAt(t, "carol", load(t), true, map[string]string{"cpu": "4", "memory": "4Gi", "pods": "20"}, map[string]string{"cpu": "0.02 EUR", "memory": "1 EUR"})
	d.consumesAt(t, "dave", load(t), true, map[string]string{"cpu": "4", "memory": "4Gi", "pods": "20"}, map[string]string{"cpu": "0.02 USD"})
	amounts, want := map[string]string{"cpu": "2", "memory": "1Gi", "pods": "5"}, map[string]string{"cpu": "0.022 EUR", "memory": "2 EUR"}
	d.saysYes(t, alice, amounts)
	outcome, err := d.Outcome(t.Context(), peering.Caller{ID: alice.ID()}, d.requests(t)[0].Name)
	if err != nil || outcome.Offer == nil || !maps.Equal(outcome.Offer.Prices, want) {
		t.Fatalf("%+v, %v", outcome, err)
	}
	e, err := d.Explain(t.Context(), alice.ID())
	if err != nil || len(e.From) != 1 || e.From[0].Spec.Peer != "carol" || len(e.Left) != 1 || e.Left[0].Spec.Peer != "dave" {
		t.Errorf("%+v, %v", e, err)
	}
	doc := d.document(alice, amounts)
	doc.Prices = map[string]string{"cpu": "0.01 EUR", "memory": "2 EUR"}
	doc.Version = doc.Terms.DocumentVersion()
	if _, _, err := d.signs(t, alice, doc); err == nil || !strings.Contains(err.Error(), "prices") {
		t.Errorf("signed at less than bob pays: %v", err)
	}
	doc.Prices = want
	if _, _, err := d.signs(t, alice, doc); err != nil {
		t.Error(err)
	}
}
