package consumer

import (
	"strings"
	"testing"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// Without a network: who asks for that signs no tunnel, and who did not ask is asked first, whatever a peer offers.
func TestANetworkIsAsItWasAskedFor(t *testing.T) {
	offers := func(network string) *contract.Terms {
		return &contract.Terms{Resources: map[string]string{"cpu": "4"}, PodSecurity: contract.Baseline, Network: network}
	}
	for name, c := range map[string]struct {
		asks   v1alpha1.Network
		offers string
		terms  string // that the owner has to agree to
		never  string // why it is not signed
	}{
		"none for none":            {asks: v1alpha1.NetworkNone, offers: contract.NetworkNone},
		"a tunnel, by an older":    {asks: v1alpha1.NetworkNone, never: "none was asked for"},
		"none, unasked":            {offers: contract.NetworkNone, terms: "there is no network between the clusters"},
		"a tunnel where any would": {},
	} {
		t.Run(name, func(t *testing.T) {
			bob, alice := newLiar(t)
			bob.terms.Store(offers(c.offers))
			peer := alice.peer(t, "bob")
			peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1, Network: c.asks}
			if err := alice.Update(t.Context(), peer); err != nil {
				t.Fatal(err)
			}
			alice.look(t)
			if c.never != "" {
				if out := alice.until(t, "declined", declined); !strings.Contains(out.Why, c.never) || bob.signed.Load() != nil {
					t.Errorf("%+v", out)
				}
				return
			}
			out := alice.until(t, "alice is asked", confirming)
			if got := strings.Join(out.Confirm.Terms, "; "); !strings.HasPrefix(got, c.terms) || (got == "") != (c.terms == "") {
				t.Errorf("agree to %q", got)
			}
			alice.say(t, v1alpha1.Confirm{Attempt: 1, Code: out.Confirm.Code, Terms: c.terms != ""})
			alice.until(t, "signed", signedIs)
			if got := bob.signed.Load().Network; got != c.offers {
				t.Errorf("signed %q", got)
			}
		})
	}
}

// What is in force stays as it was signed.
func TestARevisionDoesNotChangeTheNetwork(t *testing.T) {
	bob, alice := newLiar(t)
	peer := alice.peer(t, "bob")
	for _, was := range []string{"", contract.NetworkNone} {
		for _, is := range []string{"", contract.NetworkNone} {
			had := &contract.Document{Terms: contract.Terms{Network: was}}
			why := alice.r.otherNetwork(peer, contract.Terms{Network: is}, false, had)
			if (why == "") != (was == is) || why != "" && !strings.Contains(why, "kith unpeer bob") {
				t.Errorf("%q to %q: %q", was, is, why)
			}
		}
	}
	if bob.signed.Load() != nil {
		t.Error("something was signed")
	}
}
