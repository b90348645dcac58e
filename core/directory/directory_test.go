package directory

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
)

func TestANameThatStartsAnothersIDMeansNeither(t *testing.T) {
	bob, mallory := identity.ID{1, 2, 3}, identity.ID{9}
	dave := identity.ID{7}
	all := []Known{{ID: bob, Name: "bob"}, {ID: mallory, Name: bob.Short()}, {ID: dave, Name: mallory.Short(), Peer: &v1alpha1.Peer{}}}
	for ref, want := range map[string]identity.ID{
		"bob": bob, bob.String(): bob, bob.Compact(): bob, bob.Compact()[:20]: bob, mallory.Compact(): mallory, mallory.Short(): dave,
		bob.Short(): {}, "carol": {}, "": {}, bob.Compact()[:3]: {},
	} {
		k, err := pick(all, ref)
		if k.ID != want || (err == nil) == want.IsZero() {
			t.Errorf("%q means %s (%s), %v", ref, k.Name, k.ID.Short(), err)
		}
	}
}

// A namespace goes to peers by the names they have here; one that stands for nobody is refused, or said to give nothing.
func TestANamespaceGoesToPeersThatThereAre(t *testing.T) {
	bob, carol := identity.ID{1, 2, 3}, identity.ID{9}
	all := []Known{{ID: bob, Name: "bob", Peer: &v1alpha1.Peer{}}, {ID: carol, Name: "carol"}}
	if names, err := NamesOf(all, []string{"bob", carol.String(), bob.Compact()}); err != nil || !slices.Equal(names, []string{"bob", "carol"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := NamesOf(all, []string{"bob", "nobody"}); !errors.Is(err, &api.Error{Code: api.CodeNotFound}) || !strings.Contains(err.Error(), `no peer "nobody" here`) {
		t.Errorf("%v, %v", names, err)
	}
}
