package provider

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// A network between the clusters is there when both want one: whoever wants none gets none, the owner reads so before he says yes, and what is signed says it.
func TestWhoWantsNoNetworkGetsNone(t *testing.T) {
	amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
	for name, c := range map[string]struct {
		asked  string
		policy func(*v1alpha1.SharingPolicySpec)
		says   string
		grant  v1alpha1.Network
		refuse string // of signing it; "" when it is signed
	}{
		"as ever":                     {},
		"none, unasked":               {says: contract.NetworkNone, refuse: "the contract has no network between the clusters, the offer a network"},
		"asked for":                   {asked: contract.NetworkNone, says: contract.NetworkNone, grant: v1alpha1.NetworkNone},
		"asked for, and not said":     {asked: contract.NetworkNone, grant: v1alpha1.NetworkNone, refuse: "the contract has a network between the clusters, the offer no network"},
		"the owner's word":            {policy: func(s *v1alpha1.SharingPolicySpec) { s.Tunnel = v1alpha1.AccessDeny }, says: contract.NetworkNone, grant: v1alpha1.NetworkNone},
		"an older Kith's contract":    {policy: func(s *v1alpha1.SharingPolicySpec) { s.Tunnel = v1alpha1.AccessDeny }, grant: v1alpha1.NetworkNone, refuse: "the offer no network"},
		"and what is offered on goes": {asked: contract.NetworkNone, policy: func(s *v1alpha1.SharingPolicySpec) { s.Reoffer = v1alpha1.AccessAllow }, says: contract.NetworkNone, grant: v1alpha1.NetworkNone},
	} {
		p := sharing.Default(50)
		if c.policy != nil {
			c.policy(&p.Spec)
		}
		d, alice := newWorld(t, p), load(t)
		caller := peering.Caller{ID: alice.ID()}
		id, _, err := d.Ask(t.Context(), caller, peering.Question{Name: "alice", Resources: amounts, Attempt: 1, Network: c.asked}, "123456", false)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := d.request(t.Context(), caller, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Accept(t.Context(), r, nil, ""); err != nil {
			t.Fatal(err)
		}
		if r.Status.Grant.Network != c.grant {
			t.Errorf("%s: who accepts reads %q", name, r.Status.Grant.Network)
		}
		outcome, err := d.Outcome(t.Context(), caller, id)
		if err != nil || sharing.Network(outcome.Offer.Network) != c.grant || outcome.Offer.Validate() != nil {
			t.Errorf("%s: offered %+v, %v", name, outcome.Offer, err)
		}
		doc := d.document(alice, amounts)
		doc.Network = c.says
		doc.Version = doc.Terms.DocumentVersion()
		_, _, err = d.signs(t, alice, doc)
		if (err == nil) != (c.refuse == "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is in force keeps its network, or goes on without, however the policy is by now; and the two directions have the same.
func TestANetworkStaysAsItWasSigned(t *testing.T) {
	amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
	d, alice := newWorld(t), load(t)
	caller := peering.Caller{ID: alice.ID()}
	d.saysYes(t, alice, amounts)
	doc := d.document(alice, amounts)
	if _, _, err := d.signs(t, alice, doc); err != nil {
		t.Fatal(err)
	}
	asks := func(network, changes string) error {
		_, _, err := d.Ask(t.Context(), caller, peering.Question{Name: "alice", Resources: map[string]string{"cpu": "2"}, Attempt: 2, Network: network, Contract: changes}, "123456", false)
		return err
	}
	if err := asks(contract.NetworkNone, doc.ID); err == nil || !strings.Contains(err.Error(), "end it (kith unpeer)") {
		t.Errorf("another network for the contract in force: %v", err)
	}
	if err := asks("", doc.ID); err != nil {
		t.Errorf("as it is: %v", err)
	}
	var policy v1alpha1.SharingPolicy
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: sharing.DefaultName}, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Tunnel = v1alpha1.AccessDeny
	if err := d.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	for _, r := range d.requests(t) {
		if err := d.client.Delete(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	doc.Revision = 2
	d.signed.Delete(alice.ID()) // long enough ago
	if _, _, err := d.signs(t, alice, doc); err == nil || !strings.Contains(err.Error(), "the offer no network") {
		t.Errorf("a tunnel is renewed that the owner has no more: %v", err)
	}

	// The other direction.
	d, carol := newWorld(t), load(t)
	d.consumes(t, "carol", carol, false, map[string]string{"cpu": "1"})
	_, _, err := d.Ask(t.Context(), peering.Caller{ID: carol.ID()}, peering.Question{Name: "carol", Attempt: 1, Network: contract.NetworkNone}, "123456", false)
	if err == nil || !strings.Contains(err.Error(), "the other direction") {
		t.Errorf("a tunnel one way, and none the other: %v", err)
	}
}
