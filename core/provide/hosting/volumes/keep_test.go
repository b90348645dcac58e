package volumes

import (
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// signs puts a contract with bob in the place of the one that is in force, by which volumes are kept for so long.
func (p *provider) signs(keep time.Duration) {
	p.Helper()
	bob, me := someone(p.T), someone(p.T)
	is := record.NewDocument(bob, "bob", contract.Party{ID: me.ID(), Name: "me", Key: me.Public()},
		contract.Terms{Resources: map[string]string{"storage": "10Gi"}, PodSecurity: contract.Baseline, KeepVolumes: contract.KeepFor(keep)}, time.Hour)
	is.NotBefore = is.Created // where the clock begins with the year 2000
	doc, err := contract.Canonical(is)
	if err != nil {
		p.Fatal(err)
	}
	var ctr v1alpha1.Contract
	if err := p.client.Get(p.Context(), client.ObjectKey{Name: "bob-bob-1"}, &ctr); err != nil {
		p.Fatal(err)
	}
	ctr.Spec.Document = doc
	ctr.Spec.Revision++
	if err := p.client.Update(p.Context(), &ctr); err != nil {
		p.Fatal(err)
	}
	for _, r := range p.under(p.Context(), &ctr) {
		if _, err := p.reconcile(p.Context(), r); err != nil {
			p.Fatal(err)
		}
	}
}

func someone(t *testing.T) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// What is kept is kept for as long as the last contract said, also when that is gone by then.
func TestDataIsKeptForTheTimeOfTheContract(t *testing.T) {
	for _, keep := range []time.Duration{time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(t)
			p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
			p.bind("bob", "data", "pv-1")
			p.signs(2 * time.Hour)
			p.signs(keep)
			p.gone("bob", "data", "pv-1")
			var ctr v1alpha1.Contract
			if err := p.client.Get(t.Context(), client.ObjectKey{Name: "bob-bob-1"}, &ctr); err != nil {
				t.Fatal(err)
			}
			if err := p.client.Delete(t.Context(), &ctr); err != nil {
				t.Fatal(err)
			}
			if again := p.look("pv-1").RequeueAfter; again <= keep-time.Minute || again > keep {
				t.Errorf("kept for %s, want %s", again, keep)
			}
		})
	}
}

// What somebody wrote on a volume keeps it no longer than a contract may say.
func TestNothingIsKeptForEver(t *testing.T) {
	for said, want := range map[string]time.Duration{"": contract.DefaultKeep, "much": contract.DefaultKeep, "1000000h": contract.MaxKeep, "-1h": contract.MinKeep} {
		p := newProvider(t)
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
		p.bind("bob", "data", "pv-1")
		v := p.volume("pv-1")
		v.Annotations[v1alpha1.AnnotationKeepFor] = said
		if err := p.client.Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if got := keptFor(p.volume("pv-1")); got != want {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
}
