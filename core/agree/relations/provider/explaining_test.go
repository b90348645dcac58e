package provider

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// What is explained is what is offered, to the last amount, and each policy is there in the order in which it counts.
func TestExplainIsTheOffer(t *testing.T) {
	alice, carol := load(t), load(t)
	for name, c := range map[string]struct {
		policies []*v1alpha1.SharingPolicy
		before   func(t *testing.T, d *world)
		looks    string
		offers   string
		bounds   string
	}{
		"one policy": {nil, nil, "default Everybody applies", "cpu 4, memory 8Gi, pods 55", "cpu Amount, memory Amount, pods Amount"},
		"a policy before it": {[]*v1alpha1.SharingPolicy{named("alice", 5, "25%", alice.ID().String())}, nil,
			"alice ID applies; default Everybody", "cpu 2, memory 4Gi, pods 27", "cpu Amount, memory Amount, pods Amount"},
		"a policy for somebody else": {[]*v1alpha1.SharingPolicy{named("carol", 5, "100%", carol.ID().String())}, nil,
			"carol NotNamed; default Everybody applies", "cpu 4, memory 8Gi, pods 55", "cpu Amount, memory Amount, pods Amount"},
		"paused, and the next does not stand in": {[]*v1alpha1.SharingPolicy{paused(named("alice", 5, "100%", alice.ID().String()))}, nil,
			"alice ID applies Paused; default Everybody", "Paused", "cpu Allocatable, memory Allocatable, pods Allocatable"},
		"own pods": {nil, func(t *testing.T, d *world) { d.start(t, "a", "6", "") },
			"default Everybody applies", "cpu 2, memory 8Gi, pods 55", "cpu OwnPods, memory Amount, pods Amount"},
		"carol has a part": {nil, func(t *testing.T, d *world) { d.grants(t, carol, "cpu", "3", "memory", "1Gi", "pods", "5") },
			"default Everybody applies", "cpu 1, memory 7Gi, pods 50", "cpu Others, memory Others, pods Others"},
		"carol has all": {nil, func(t *testing.T, d *world) { d.grants(t, carol, "cpu", "4", "memory", "1Gi", "pods", "5") },
			"default Everybody applies UsedUp", "UsedUp cpu", "cpu Others, memory Others, pods Others"},
		"carol has it under another policy": {[]*v1alpha1.SharingPolicy{named("carol", 5, "75%", carol.ID().String())},
			func(t *testing.T, d *world) { d.grants(t, carol, "cpu", "6", "memory", "1Gi", "pods", "5") },
			"carol NotNamed; default Everybody applies", "cpu 2, memory 8Gi, pods 55", "cpu Granted, memory Amount, pods Amount"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newWorld(t, sharing.Default(50))
			for _, p := range c.policies {
				if err := d.client.Create(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			if c.before != nil {
				c.before(t, d)
			}
			e, err := d.Explain(t.Context(), alice.ID())
			if err != nil {
				t.Fatal(err)
			}
			var looks, bounds []string
			for _, l := range e.Looks {
				words := []string{l.Policy.Name, string(l.By) + string(l.Not)}
				if e.Applies(l.Policy) {
					words = append(words, "applies")
				}
				if no := e.No[l.Policy.Name]; no != nil {
					words = append(words, string(no.Why))
				}
				looks = append(looks, strings.Join(words, " "))
			}
			for _, p := range e.Now.Parts {
				bounds = append(bounds, string(p.Name)+" "+string(p.Bound))
			}
			offers := api.Resources(peeringAmounts(e.Now)).String()
			if no := e.Now.No; no != nil {
				offers = strings.TrimSpace(string(no.Why) + " " + string(no.Of))
			}
			if got := strings.Join(looks, "; "); got != c.looks {
				t.Errorf("policies: %s\nwant %s", got, c.looks)
			}
			if got := strings.Join(bounds, ", "); got != c.bounds {
				t.Errorf("bound by %s\nwant %s", got, c.bounds)
			}
			if offers != c.offers {
				t.Errorf("%s, want %s", offers, c.offers)
			}
			gives, err := d.WouldGive(t.Context(), peering.Caller{ID: alice.ID()})
			if err != nil || (gives.State == peering.SupplySome) != (e.Now.No == nil) || !maps.Equal(gives.Resources, peeringAmounts(e.Now)) {
				t.Errorf("the peer hears %+v, %v", gives, err)
			}
		})
	}
}

func peeringAmounts(w Would) map[string]string {
	if w.No != nil {
		return nil
	}
	return sharing.Words(w.Offer)
}

// named is a policy for peers by ID.
func named(name string, priority int32, share v1alpha1.Amount, peers ...string) *v1alpha1.SharingPolicy {
	p := sharing.Default(0)
	p.Name, p.Spec.Priority, p.Spec.Peers = name, priority, slices.Clone(peers)
	for resource := range p.Spec.Amounts {
		p.Spec.Amounts[resource] = share
	}
	return p
}

func paused(p *v1alpha1.SharingPolicy) *v1alpha1.SharingPolicy {
	p.Spec.Paused = true
	return p
}
