package tenants

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmountsOfNamespaces(t *testing.T) {
	docs.Say(t, "security.md", fmt.Sprintf(" KiB for each; %d namespaces |", maxTwins))
}

func TestAContractHasSoManyNamespaces(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	d := newProvider(t, peer, cb)
	for _, home := range []string{"n7", "n8"} {
		if _, err := d.ensure(cb, bob, home, ""); err != nil {
			t.Fatalf("namespace %s: %v", home, err)
		}
	}
	for i := range maxTwins - 2 {
		home := fmt.Sprintf("m%d", i)
		d.contracts.Learn(grants.Twin{Name: home + "-" + bob.Compact[:7], Home: home, Contract: "contractb", Consumer: bob.Compact})
	}
	if _, err := d.ensure(cb, bob, "more", ""); !errors.Is(err, &api.Error{Code: api.CodeForbidden}) || !strings.Contains(err.Error(), "more are not allowed") {
		t.Errorf("one more: %v", err)
	}
	if _, err := d.ensure(cb, bob, "n7", ""); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}
