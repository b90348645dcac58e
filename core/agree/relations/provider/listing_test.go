package provider

import (
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// Who is named as a catalogue hears what somebody new would be offered, signed; nobody else hears anything, and neither does he when nothing is offered.
func TestACatalogueHearsWhatIsOffered(t *testing.T) {
	alice, eve := load(t), load(t)
	named := acceptedPeer("alice", alice.ID())
	d := newWorld(t, sharing.Default(50), client.Object(named))
	lists := func(who string) string {
		t.Helper()
		from := alice
		if who == "eve" {
			from = eve
		}
		signed, err := d.Listing(t.Context(), from.ID())
		if problem, ok := errors.AsType[*peering.Problem](err); ok && problem.Code == peering.CodeNotFound {
			return "nothing"
		}
		if err != nil {
			t.Fatal(err)
		}
		doc, err := signed.Verify()
		if err != nil || doc.Provider.ID != d.me.ID() || !doc.Current(time.Now()) {
			t.Fatalf("%+v, %v", doc, err)
		}
		return doc.Resources["cpu"] + " " + doc.Prices["cpu"]
	}
	if got := lists("alice"); got != "nothing" {
		t.Errorf("without a word of the owner %s is listed", got)
	}
	for name, c := range map[string]struct {
		change     func(*v1alpha1.SharingPolicySpec)
		alice, eve string
	}{
		"by name":        {func(s *v1alpha1.SharingPolicySpec) { s.Catalogues = []string{"alice"} }, "4 ", "nothing"},
		"by ID":          {func(s *v1alpha1.SharingPolicySpec) { s.Catalogues = []string{eve.ID().String()} }, "nothing", "4 "},
		"for money":      {func(s *v1alpha1.SharingPolicySpec) { s.Prices = map[string]v1alpha1.UnitPrice{"cpu": "0.02 EUR"} }, "4 0.02 EUR", "nothing"},
		"less of it":     {func(s *v1alpha1.SharingPolicySpec) { s.MaxPerPeer = map[string]v1alpha1.Amount{"cpu": "1"} }, "1 ", "nothing"},
		"paused":         {func(s *v1alpha1.SharingPolicySpec) { s.Paused = true }, "nothing", "nothing"},
		"nothing of it":  {func(s *v1alpha1.SharingPolicySpec) { s.Amounts = map[string]v1alpha1.Amount{"cpu": "0"} }, "nothing", "nothing"},
		"for carol only": {func(s *v1alpha1.SharingPolicySpec) { s.Peers = []string{"carol"} }, "4 ", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			d.share(t, func(s *v1alpha1.SharingPolicySpec) {
				*s = sharing.Default(50).Spec
				s.Catalogues = []string{"alice"}
				c.change(s)
			})
			if got := lists("alice"); got != c.alice {
				t.Errorf("alice hears %s, want %s", got, c.alice)
			}
			if got := lists("eve"); got != c.eve {
				t.Errorf("eve hears %s, want %s", got, c.eve)
			}
		})
	}
}

// A name is no identity: who calls himself as somebody whose key was accepted hears nothing.
func TestANameMakesNoCatalogue(t *testing.T) {
	alice := load(t)
	called := acceptedPeer("alice", alice.ID())
	called.Status.Conditions = nil
	d := newWorld(t, sharing.Default(50), client.Object(called))
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Catalogues = []string{"alice"} })
	if _, err := d.Listing(t.Context(), alice.ID()); err == nil {
		t.Error("a name was enough")
	}
}
