package sharing

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// asking is a contract with a provider that lets it be offered on at these prices, "cpu=0.02 EUR,memory=1 EUR".
func asking(t *testing.T, peer, prices string) *v1alpha1.Contract {
	t.Helper()
	all := map[string]string{}
	for part := range strings.SplitSeq(prices, ",") {
		if name, price, ok := strings.Cut(part, "="); ok {
			all[name] = price
		}
	}
	return signedAt(t, peer, true, all, nil)
}

// TestAMarginIsOnTheDearestProvider: what is offered on costs no less than what it costs here, and so much more, and never less than the policy says.
func TestAMarginIsOnTheDearestProvider(t *testing.T) {
	for what, c := range map[string]struct{ margin, own, carol, dave, want string }{
		"none":                   {"", "cpu=0.01 EUR", "cpu=0.02 EUR", "", "cpu=0.01 EUR"},
		"of one":                 {"10%", "", "cpu=0.02 EUR,memory=0.004 EUR,network=1 EUR", "", "cpu=0.022 EUR,memory=0.0044 EUR,network=1.1 EUR"},
		"at cost":                {"0%", "", "cpu=0.02 EUR", "", "cpu=0.02 EUR"},
		"the dearest of two":     {"50%", "", "cpu=0.02 EUR,memory=3 EUR", "cpu=0.04 EUR,memory=1 EUR", "cpu=0.06 EUR,memory=4.5 EUR"},
		"one is free":            {"50%", "", "", "cpu=0.04 EUR", "cpu=0.06 EUR"},
		"the policy's is higher": {"10%", "cpu=1 EUR,memory=0.001 EUR", "cpu=0.02 EUR,memory=0.02 EUR", "", "cpu=1 EUR,memory=0.022 EUR"},
		"what is not offered on": {"10%", "storage=0.1 EUR", "storage=1 EUR,nvidia.com/gpu=2 EUR", "", "storage=0.1 EUR"},
		"rounded up":             {"33.33%", "", "cpu=0.000000001 EUR", "", "cpu=0.000000002 EUR"},
		"without a provider":     {"10%", "cpu=0.01 EUR", "-", "", "cpu=0.01 EUR"},
	} {
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Margin, s.ReofferFrom = c.margin, []string{AllProviders} })
		own := asking(t, "x", c.own)
		for name, price := range pricesIn(t, own) {
			if p.Spec.Prices == nil {
				p.Spec.Prices = map[string]v1alpha1.UnitPrice{}
			}
			p.Spec.Prices[name] = v1alpha1.UnitPrice(price)
		}
		before := maps.Clone(p.Spec.Prices)
		var from []*v1alpha1.Contract
		if c.carol != "-" {
			from = []*v1alpha1.Contract{asking(t, "carol", c.carol), asking(t, "dave", c.dave)}
		}
		are, not := payable(&p, from)
		got := WithMargin(&p, are)
		want := pricesIn(t, asking(t, "x", c.want))
		all := map[string]string{"cpu": "1", "memory": "1", "storage": "1", "nvidia.com/gpu": "1", "network": "1"}
		if is := Prices(got, all); len(not) > 0 || len(is)+len(want) > 0 && !maps.Equal(is, want) {
			t.Errorf("%s: %v, want %v (%d left out)", what, is, want, len(not))
		}
		if !maps.Equal(before, p.Spec.Prices) {
			t.Errorf("%s: the policy itself was changed", what)
		}
		if err := contract.CheckPrices(Prices(got, all)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if WithMargin(nil, nil) != nil {
		t.Error("without a policy there is one")
	}
}

// TestWhoseCurrencyIsAnotherIsLeftOut: of the policy's, or else of the first that asks for money; so is whose price would have too many digits.
func TestWhoseCurrencyIsAnotherIsLeftOut(t *testing.T) {
	accepted := func(name string, n byte) *v1alpha1.Peer {
		return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: v1alpha1.PeerSpec{ID: identity.ID{n}.String()},
			Status: v1alpha1.PeerStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}}}
	}
	peers := []*v1alpha1.Peer{accepted("alice", 1), accepted("carol", 3), accepted("dave", 4), accepted("erin", 5)}
	for what, c := range map[string]struct{ margin, own, carol, dave, erin, want, left string }{
		"one currency":              {"10%", "", "cpu=1 EUR", "cpu=2 EUR", "", "carol dave", ""},
		"not that of the first":     {"10%", "", "cpu=1 EUR", "cpu=2 USD", "cpu=3 EUR", "carol erin", "dave"},
		"not that of the policy":    {"10%", "1 USD", "cpu=1 EUR", "cpu=2 USD", "", "dave erin", "carol"},
		"who is free has none":      {"10%", "", "", "cpu=2 USD", "cpu=1 EUR", "carol dave", "erin"},
		"of what is not offered on": {"10%", "", "nvidia.com/gpu=1 EUR", "cpu=2 USD", "", "carol dave", ""},
		"too many digits":           {"10%", "", "cpu=999999999999 EUR", "cpu=2 EUR", "", "dave erin", "carol"},
		"and without a margin":      {"", "1 USD", "cpu=1 EUR", "cpu=2 USD", "", "carol dave", ""},
	} {
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.Margin, s.ReofferFrom = c.margin, []string{AllProviders} })
		if c.own != "" {
			p.Spec.Prices = map[string]v1alpha1.UnitPrice{"cpu": v1alpha1.UnitPrice(c.own)}
		}
		contracts := []*v1alpha1.Contract{asking(t, "carol", c.carol), asking(t, "dave", c.dave), asking(t, "erin", c.erin)}
		names := func(list []*v1alpha1.Contract) string {
			var names []string
			for _, ctr := range list {
				names = append(names, ctr.Spec.Peer)
			}
			return strings.Join(names, " ")
		}
		now := time.Now()
		if got, left := names(Reoffered(&p, peers[0], peers, contracts, now)), names(NotPayable(&p, peers[0], peers, contracts, now)); got != c.want || left != c.left {
			t.Errorf("%s: %q, left out %q, want %q and %q", what, got, left, c.want, c.left)
		}
	}
}

func TestAMarginGoesWithWhatIsOfferedOn(t *testing.T) {
	for margin, fine := range map[string]bool{"": true, "0%": true, "10%": true, "12.5%": true, "999.99%": true, "10": false, "-1%": false, "1000%": false, "1.234%": false, "01%": false, "%": false} {
		p := Default(50)
		p.Spec.Margin, p.Spec.ReofferFrom = margin, []string{"carol"}
		if err := Validate(p); (err == nil) != fine {
			t.Errorf("%q: %v", margin, err)
		}
		p.Spec.ReofferFrom = nil
		if err := Validate(p); (err == nil) != (margin == "") {
			t.Errorf("%q of nothing: %v", margin, err)
		}
	}
}
