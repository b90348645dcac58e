package provider

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// failing is an API server that does not answer.
type failing struct{ client.Reader }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no answer")
}

// While it is not known which policies there are, what was promised to anybody counts against the one that an offer is made under.
func TestWhatIsNotKnownIsNotOffered(t *testing.T) {
	id := identity.ID{7}
	d := newWorld(t, sharing.Default(50), acceptedPeer("carol", id), &v1alpha1.Contract{
		ObjectMeta: metav1.ObjectMeta{Name: "carols"},
		Spec:       v1alpha1.ContractSpec{Peer: "carol", Role: v1alpha1.RoleProvider, ID: "0123456789abcdef", Resources: list("cpu", "1")},
	})
	anew := sharing.Default(50)
	anew.Name = "anew" // it was written a moment ago
	for name, c := range map[string]struct {
		fresh client.Reader
		same  int
	}{"it answers": {d.Fresh, 0}, "it does not": {failing{d.Fresh}, 1}} {
		d.Fresh = c.fresh
		if all, same, _ := d.promised(t.Context(), d.Client.Now(), anew, new(v1alpha1.Peer)); len(all) != 1 || len(same) != c.same {
			t.Errorf("%s: %d contracts, %d of them under the policy, want 1 and %d", name, len(all), len(same), c.same)
		}
	}
}
