package grants

import (
	"net/netip"
	"strings"
	"testing"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// TestWhatIsForAnotherCluster: a consumer has here for others what its contract lets it, once, and nothing that goes round.
func TestWhatIsForAnotherCluster(t *testing.T) {
	link := func(n byte) v1alpha1.ChainLink {
		return v1alpha1.ChainLink{Cluster: identity.ID{n}.String(), Contract: "abcdefgh", Namespace: "shop"}
	}
	const alice, bob, carol, ann = 1, 2, 3, 4
	for what, c := range map[string]struct {
		reoffer bool
		chain   []v1alpha1.ChainLink
		want    string // the reason
		says    string
	}{
		"its own":                    {false, nil, "", ""},
		"its own, with the term":     {true, nil, "", ""},
		"another's":                  {true, []v1alpha1.ChainLink{link(alice)}, "", ""},
		"another's, by its compact":  {true, []v1alpha1.ChainLink{{Cluster: identity.ID{alice}.Compact()}}, "", ""},
		"another's, not granted":     {false, []v1alpha1.ChainLink{link(alice)}, ReasonNotReoffered, "does not let"},
		"of another broker":          {true, []v1alpha1.ChainLink{link(alice), link(ann)}, ReasonNotReoffered, "is offered on once"},
		"the provider's own":         {true, []v1alpha1.ChainLink{link(carol)}, ReasonNotReoffered, "where it was already"},
		"the consumer's own":         {true, []v1alpha1.ChainLink{link(bob)}, ReasonNotReoffered, "where it was already"},
		"the provider's, spelled so": {true, []v1alpha1.ChainLink{{Cluster: strings.ToLower(identity.ID{carol}.String())}}, ReasonNotReoffered, "where it was already"},
		"nobody's":                   {true, []v1alpha1.ChainLink{{Cluster: "alice"}}, ReasonInvalid, "is not the ID"},
		"an ID with a flaw":          {true, []v1alpha1.ChainLink{{Cluster: identity.ID{alice}.String() + "A"}}, ReasonInvalid, "is not the ID"},
	} {
		no := ForAnother(&Terms{Contract: "c", Reoffer: c.reoffer, Consumer: Consumer{ID: identity.ID{bob}.String()}, Provider: identity.ID{carol}.String()}, c.chain)
		if (no == nil) != (c.want == "") || no != nil && (no.Reason != c.want || !strings.Contains(no.Message, c.says)) {
			t.Errorf("%s: %v, want %q (%s)", what, no, c.want, c.says)
		}
	}
}

// TestEachHomeHasItsOwnAddresses: what holds in a namespace that a broker has for another is that cluster's; of one of which it said nothing there are none.
func TestEachHomeHasItsOwnAddresses(t *testing.T) {
	alice := identity.ID{1}
	peer := &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{
		GuestsHere: "198.19.4.0/24", Space: []string{"10.42.0.0/16"},
		Onward: []v1alpha1.OnwardHome{{ID: alice.String(), Network: "198.18.5.0/24", Guests: "198.18.5.64/27", Space: []string{"10.42.0.0/16", "198.18.9.0/24"}, Services: "10.43.0.0/16"}},
	}}}
	terms := &Terms{Contract: "c", Reoffer: true, Network: NetworkOf(peer, netip.Prefix{}), Onward: []OnwardTo{{Peer: "dave"}}}
	terms.onward(peer, nil)
	if terms.in(Twin{}) != terms {
		t.Error("the consumer's own namespaces have others' terms")
	}
	of := terms.in(Twin{Origin: alice.Compact()})
	if of.Guests != "198.18.5.0/24" || of.Part != "198.18.5.64/27" || of.Services != "10.43.0.0/16" || of.Contract != "c" || len(of.Onward) != 0 ||
		of.Space != "198.18.5.0/26,198.18.5.96/27,198.18.5.128/25,10.42.0.0/16,198.18.9.0/24" {
		t.Errorf("%+v", of.Network)
	}
	if none := terms.in(Twin{Origin: identity.ID{9}.Compact()}); none.Guests != "" || none.Space != "" || none.Contract != "c" {
		t.Errorf("%+v", none.Network)
	}
	without := &Terms{Contract: "c"} // when the contract was renewed under those that run
	without.onward(peer, nil)
	if kept := without.in(Twin{Origin: alice.Compact()}); kept.Part != of.Part || ForAnother(kept, []v1alpha1.ChainLink{{Cluster: alice.String()}}) == nil {
		t.Errorf("without the term: %+v, and others are let in", kept.Network)
	}
}

// TestATwinIsNeverThisClustersOwn: also when nothing can be said of its contract; nobody may take its pods for the owner's.
func TestATwinIsNeverThisClustersOwn(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	p := newProvider(t, peer, contractWith("bob", "c1"))
	if err := p.contracts.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.contracts.Learn(Twin{Name: bobsShop, Home: "shop", Contract: "c1", Consumer: bob.Compact})
	p.contracts.Learn(Twin{Name: "unread", Home: "shop", Contract: "c2", Consumer: bob.Compact})
	for namespace, c := range map[string]struct{ is, known bool }{"default": {false, false}, bobsShop: {true, true}, "unread": {true, false}} {
		onward, is := p.contracts.Onward(namespace, "carol")
		if is != c.is || (onward.Known(namespace) == nil) != c.known || c.known && (onward.Link.Cluster != bob.ID || onward.Link.Namespace != "shop") {
			t.Errorf("%s: %t, %+v", namespace, is, onward)
		}
	}
}

// TestNoMoreGoToWhoIsWithdrawn: those there keep their addresses.
func TestNoMoreGoToWhoIsWithdrawn(t *testing.T) {
	terms := &Terms{Onward: []OnwardTo{{Peer: "carol", Guests: "198.18.5.64/27"}, {Peer: "dave", Guests: "198.18.5.96/27"}}}
	terms.withdraw([]*v1alpha1.Contract{{Spec: v1alpha1.ContractSpec{Peer: "dave"}}})
	if may := terms.MayGoOn(); len(may) != 1 || may[0].Peer != "dave" || len(terms.Onward) != 2 || !terms.Onward[0].Withdrawn {
		t.Errorf("%+v of %+v", may, terms.Onward)
	}
	terms.withdraw(nil)
	if len(terms.MayGoOn()) != 0 || len(terms.Onward) != 2 {
		t.Errorf("%+v", terms.Onward)
	}
}
