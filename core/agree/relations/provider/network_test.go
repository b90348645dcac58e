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
	d.change(t, func(s *v1alpha1.SharingPolicySpec) { s.Tunnel = v1alpha1.AccessDeny })
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

// change has the owner edit his policy.
func (d *world) change(t *testing.T, edit func(*v1alpha1.SharingPolicySpec)) {
	t.Helper()
	var policy v1alpha1.SharingPolicy
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: sharing.DefaultName}, &policy); err != nil {
		t.Fatal(err)
	}
	edit(&policy.Spec)
	if err := d.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
}

// What the owner said yes to without a network stays so, and he reads of it, whatever his policy says when it is signed.
func TestAYesToNoNetworkBinds(t *testing.T) {
	amounts := map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}
	p := sharing.Default(50)
	p.Spec.Tunnel = v1alpha1.AccessDeny
	d, alice := newWorld(t, p), load(t)
	d.saysYes(t, alice, amounts)
	r := d.requests(t)[0]
	if want := "with no network between the clusters"; !strings.HasSuffix(r.Status.Grant.Summary, want) || !strings.Contains(received("alice", &r, *r.Status.Grant), want) {
		t.Errorf("he reads %q", r.Status.Grant.Summary)
	}
	if got := atMost(*r.Status.Grant, r.Status.Grant.Resources, r.Spec.Resources); got.Summary != r.Status.Grant.Summary {
		t.Errorf("as he was shown: %q", got.Summary)
	}
	d.change(t, func(s *v1alpha1.SharingPolicySpec) { s.Tunnel = v1alpha1.AccessAllow })
	outcome, err := d.Outcome(t.Context(), peering.Caller{ID: alice.ID()}, r.Name)
	if err != nil || outcome.Offer.Network != contract.NetworkNone {
		t.Errorf("offered %+v, %v", outcome.Offer, err)
	}
	doc := d.document(alice, amounts)
	if _, _, err := d.signs(t, alice, doc); err == nil || !strings.Contains(err.Error(), "the offer no network") {
		t.Errorf("a tunnel is signed: %v", err)
	}
	doc.Network = contract.NetworkNone
	doc.Version = doc.Terms.DocumentVersion()
	if _, _, err := d.signs(t, alice, doc); err != nil {
		t.Error(err)
	}
}

// A contract without a network goes on under a policy by which what others grant is offered on: nothing of theirs is in it. And where what is offered may
// be offered on, which it cannot be without a network, the owner is not asked about what would change nothing.
func TestWithoutANetworkNothingOfOthersIsOffered(t *testing.T) {
	amounts := map[string]string{"cpu": "8", "memory": "16Gi", "pods": "110"}
	p := sharing.Default(100)
	p.Spec.Tunnel = v1alpha1.AccessDeny
	d, alice := newWorld(t, p), load(t)
	d.consumes(t, "carol", load(t), true, map[string]string{"cpu": "4", "memory": "4Gi", "pods": "10"})
	d.change(t, func(s *v1alpha1.SharingPolicySpec) {
		s.Reoffer, s.ReofferFrom = v1alpha1.AccessAllow, []string{sharing.AllProviders}
	})
	d.saysYes(t, alice, nil)
	if r := d.requests(t)[0]; r.Status.Grant.Resources.Cpu().String() != "8" {
		t.Errorf("%s is granted", r.Status.Grant.Summary)
	}
	doc := d.document(alice, amounts)
	doc.Network = contract.NetworkNone
	doc.Version = doc.Terms.DocumentVersion()
	for doc.Revision = 1; doc.Revision < 3; doc.Revision++ {
		d.signed.Delete(alice.ID()) // long enough ago
		if _, _, err := d.signs(t, alice, doc); err != nil {
			t.Errorf("revision %d: %v", doc.Revision, err)
		}
	}
	_, _, err := d.Ask(t.Context(), peering.Caller{ID: alice.ID()}, peering.Question{Name: "alice", Attempt: 2, Network: contract.NetworkNone, Contract: doc.ID}, "123456", false)
	if err == nil || !strings.Contains(err.Error(), "nothing would change") {
		t.Errorf("the owner is asked: %v", err)
	}
}

// A company has a tunnel to the laptop that it runs, whatever the owner's policy says to others.
func TestWhoRunsTheLaptopHasANetwork(t *testing.T) {
	p := sharing.Default(50)
	p.Spec.Tunnel = v1alpha1.AccessDeny
	if sharing.NoTunnel(whole(p, nil)) || !sharing.NoTunnel(p) {
		t.Error("the company gets a node without a network")
	}
}
