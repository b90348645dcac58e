package sharing

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

func signedWith(t *testing.T, peer string, reoffer bool, change func(*v1alpha1.Contract)) *v1alpha1.Contract {
	t.Helper()
	return signedAt(t, peer, reoffer, nil, change)
}

func pricesIn(t *testing.T, ctr *v1alpha1.Contract) map[string]string {
	t.Helper()
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		t.Fatal(err)
	}
	return doc.Prices
}

func signedAt(t *testing.T, peer string, reoffer bool, prices map[string]string, change func(*v1alpha1.Contract)) *v1alpha1.Contract {
	t.Helper()
	consumer, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	provider, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	party := func(of *identity.Identity) contract.Party {
		return contract.Party{ID: of.ID(), Name: "x", Key: of.Public()}
	}
	now := time.Now()
	d := contract.Document{ID: contract.NewID(), Revision: 1, Consumer: party(consumer), Provider: party(provider), NotBefore: now, NotAfter: now.Add(time.Hour), Created: now,
		Terms: contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Reoffer: reoffer, Prices: prices}}
	d.Version = d.Terms.DocumentVersion()
	doc, err := contract.Canonical(d)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "from-" + peer}, Spec: v1alpha1.ContractSpec{Peer: peer, Role: v1alpha1.RoleConsumer, Document: doc}}
	if change != nil {
		change(c)
	}
	return c
}

// TestWhatOthersGrantIsOfferedOn: what the policy names and their contracts let, never back to who grants it, and no more than guests can go on to.
func TestWhatOthersGrantIsOfferedOn(t *testing.T) {
	accepted := func(name string, n byte) *v1alpha1.Peer {
		return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: v1alpha1.PeerSpec{ID: identity.ID{n}.String()},
			Status: v1alpha1.PeerStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}}}
	}
	alice, carol, dave, erin := accepted("alice", 1), accepted("carol", 3), accepted("dave", 4), accepted("erin", 5)
	stranger := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "zoe", ResourceVersion: "1"}, Spec: v1alpha1.PeerSpec{ID: identity.ID{6}.String()}}
	peers := []*v1alpha1.Peer{alice, carol, dave, erin, stranger}
	now := time.Now()
	is := func(peer string) *v1alpha1.Contract { return signedWith(t, peer, true, nil) }
	for what, c := range map[string]struct {
		from      []string
		contracts []*v1alpha1.Contract
		goes      string // where guests go on to already
		want      string
	}{
		"nothing is named":          {nil, []*v1alpha1.Contract{is("carol")}, "", ""},
		"by name":                   {[]string{"carol"}, []*v1alpha1.Contract{is("carol"), is("dave")}, "", "carol"},
		"by ID":                     {[]string{dave.Spec.ID}, []*v1alpha1.Contract{is("carol"), is("dave")}, "", "dave"},
		"all":                       {[]string{AllProviders}, []*v1alpha1.Contract{is("dave"), is("carol")}, "", "carol dave"},
		"more than two":             {[]string{AllProviders}, []*v1alpha1.Contract{is("carol"), is("dave"), is("erin")}, "", "carol dave"},
		"those to which they go":    {[]string{AllProviders}, []*v1alpha1.Contract{is("carol"), is("dave"), is("erin")}, erin.Spec.ID, "erin carol"},
		"not back":                  {[]string{AllProviders}, []*v1alpha1.Contract{is("alice"), is("carol")}, "", "carol"},
		"not back, named":           {[]string{"alice"}, []*v1alpha1.Contract{is("alice")}, "", ""},
		"without the term":          {[]string{AllProviders}, []*v1alpha1.Contract{signedWith(t, "carol", false, nil)}, "", ""},
		"a name of nobody's":        {[]string{"zoe"}, []*v1alpha1.Contract{is("zoe")}, "", ""},
		"as a provider":             {[]string{AllProviders}, []*v1alpha1.Contract{signedWith(t, "carol", true, func(c *v1alpha1.Contract) { c.Spec.Role = v1alpha1.RoleProvider })}, "", ""},
		"that ends":                 {[]string{AllProviders}, []*v1alpha1.Contract{signedWith(t, "carol", true, func(c *v1alpha1.Contract) { c.DeletionTimestamp = &metav1.Time{Time: now} })}, "", ""},
		"that ran out":              {[]string{AllProviders}, []*v1alpha1.Contract{signedWith(t, "carol", true, func(c *v1alpha1.Contract) { c.Spec.NotAfter = &metav1.Time{Time: now} })}, "", ""},
		"what cannot be read":       {[]string{AllProviders}, []*v1alpha1.Contract{signedWith(t, "carol", true, func(c *v1alpha1.Contract) { c.Spec.Document = []byte(`{"reoffer":true}`) })}, "", ""},
		"two with one of them":      {[]string{AllProviders}, []*v1alpha1.Contract{is("carol"), is("carol")}, "", "carol"},
		"of a peer that is no more": {[]string{AllProviders}, []*v1alpha1.Contract{is("frank")}, "", ""},
	} {
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) { s.ReofferFrom = c.from })
		to := alice.DeepCopy()
		if c.goes != "" {
			to.Status.Network = &v1alpha1.NetworkStatus{Relayed: []v1alpha1.RelayedRange{{ID: c.goes}}}
		}
		var got []string
		for _, ctr := range Reoffered(&p, to, peers, c.contracts, now) {
			got = append(got, ctr.Spec.Peer)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if Reoffered(nil, alice, peers, []*v1alpha1.Contract{is("carol")}, now) != nil {
		t.Error("without a policy something is offered on")
	}
}

// TestABrokersOfferGoesOnNoFurther: a policy that offers on what others grant lets nobody do so with that, whatever else it says.
func TestABrokersOfferGoesOnNoFurther(t *testing.T) {
	for _, c := range []struct {
		reoffer v1alpha1.Access
		from    []string
		want    bool
	}{{"", nil, false}, {v1alpha1.AccessDeny, nil, false}, {v1alpha1.AccessAllow, nil, true}, {v1alpha1.AccessAllow, []string{"carol"}, false}, {"", []string{"carol"}, false}} {
		p := Default(50)
		p.Spec.Reoffer, p.Spec.ReofferFrom = c.reoffer, c.from
		if Reoffer(p) != c.want {
			t.Errorf("%q, from %q: %t", c.reoffer, c.from, !c.want)
		}
		if both := c.reoffer == v1alpha1.AccessAllow && c.from != nil; (Validate(p) != nil) != both {
			t.Errorf("%q, from %q: %v", c.reoffer, c.from, Validate(p))
		}
	}
	if Reoffer(nil) {
		t.Error("without a policy")
	}
}

// A document of before there was the term has the bytes that it had.
func TestTheTermIsReadFromWhatWasSigned(t *testing.T) {
	with, without := signedWith(t, "carol", true, nil), signedWith(t, "carol", false, nil)
	if !MayReoffer(with) || MayReoffer(without) || strings.Contains(string(without.Spec.Document), "reoffer") {
		t.Errorf("%s\n%s", with.Spec.Document, without.Spec.Document)
	}
	var said map[string]any
	if err := json.Unmarshal(without.Spec.Document, &said); err != nil {
		t.Fatal(err)
	}
	said["reoffer"] = false // what is meant without is not said
	raw, _ := json.Marshal(said)
	raw, _ = jcs.Transform(raw)
	if _, err := contract.Parse(raw); err == nil || slices.Equal(raw, without.Spec.Document) {
		t.Errorf("%s is taken", raw)
	}
}
