package daemon

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
	all := []known{{id: bob, name: "bob"}, {id: mallory, name: bob.Short()}, {id: dave, name: mallory.Short(), peer: &v1alpha1.Peer{}}}
	for ref, want := range map[string]identity.ID{
		"bob": bob, bob.String(): bob, bob.Compact(): bob, bob.Compact()[:20]: bob, mallory.Compact(): mallory, mallory.Short(): dave,
		bob.Short(): {}, "carol": {}, "": {}, bob.Compact()[:3]: {},
	} {
		k, err := pick(all, ref)
		if k.id != want || (err == nil) == want.IsZero() {
			t.Errorf("%q means %s (%s), %v", ref, k.name, k.id.Short(), err)
		}
	}
}

// A namespace goes to peers by the names they have here; one that stands for nobody is refused, or said to give nothing.
func TestANamespaceGoesToPeersThatThereAre(t *testing.T) {
	bob, carol := identity.ID{1, 2, 3}, identity.ID{9}
	all := []known{{id: bob, name: "bob", peer: &v1alpha1.Peer{}}, {id: carol, name: "carol"}}
	if names, err := namesOf(all, []string{"bob", carol.String(), bob.Compact()}); err != nil || !slices.Equal(names, []string{"bob", "carol"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := namesOf(all, []string{"bob", "nobody"}); !errors.Is(err, &api.Error{Code: api.CodeNotFound}) || !strings.Contains(err.Error(), `no peer "nobody" here`) {
		t.Errorf("%v, %v", names, err)
	}
	contracts := []v1alpha1.Contract{{Spec: v1alpha1.ContractSpec{Role: v1alpha1.RoleConsumer, Peer: "bob"}}, {Spec: v1alpha1.ContractSpec{Role: v1alpha1.RoleProvider, Peer: "carol"}}}
	for want, peers := range map[string][]string{
		"": {"bob"}, "of the peers it may go to, these provide nothing: carol": {"bob", "carol"},
		"none of the peers it may go to provides anything: carol, dave": {"carol", "dave"},
	} {
		if got := noneOf(peers, contracts); got != want {
			t.Errorf("%v: %q, want %q", peers, got, want)
		}
	}
}
