package daemon

import (
	"testing"

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
