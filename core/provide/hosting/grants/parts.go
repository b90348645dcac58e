package grants

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Part is what a consumer has at this cluster itself, or at one of the providers to which its guests may go on, of what its contract grants. It is how that
// is divided now; what was signed is the sum.
type Part struct {
	ID    string // of the cluster
	Peer  string // the Peer's name here; "" for this cluster
	Limit corev1.ResourceList
	Arch  string // of its machines; "" where that is not known
	Why   string // why no guest starts there at this moment; empty when they do
}

// PartOf is the part at a cluster, by its ID; nil when there is none.
func (t *Terms) PartOf(id string) *Part {
	is, err := identity.ParseID(id)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(t.Parts, func(p Part) bool { return p.ID == is.String() }); i >= 0 {
		return &t.Parts[i]
	}
	return nil
}

// divided are the terms of a contract whose consumer is told of each provider, and the contracts by which its guests may go on.
type divided struct {
	terms    *Terms
	contract *v1alpha1.Contract
	on       []*v1alpha1.Contract
}

// divide fills in the parts: the oldest contract takes first. One whose guests go on to nobody now is not divided.
func (c *Contracts) divide(ctx context.Context, each []divided) error {
	for i := range each {
		may := each[i].terms.MayGoOn()
		each[i].on = slices.DeleteFunc(each[i].on, func(ctr *v1alpha1.Contract) bool {
			return !slices.ContainsFunc(may, func(to OnwardTo) bool { return to.Peer == ctr.Spec.Peer })
		})
	}
	each = slices.DeleteFunc(each, func(d divided) bool { return len(d.on) == 0 || d.terms.Why != "" })
	if len(each) == 0 {
		return nil
	}
	var nodes corev1.NodeList
	if err := c.live.List(ctx, &nodes, Recent()); err != nil {
		return fmt.Errorf("reading nodes: %w", err)
	}
	slices.SortFunc(each, func(a, b divided) int {
		return cmp.Or(a.contract.CreationTimestamp.Compare(b.contract.CreationTimestamp.Time), cmp.Compare(a.contract.Name, b.contract.Name))
	})
	var shares []sharing.Share
	for _, d := range each {
		shares = append(shares, sharing.Share{Granted: d.terms.Limit, By: d.on})
	}
	for i, amounts := range sharing.Divide(supply.Nodes(nodes.Items), shares, time.Now()) {
		t := each[i].terms
		t.Parts = []Part{{ID: t.Provider, Limit: amounts[0]}}
		for j, ctr := range each[i].on {
			to := slices.IndexFunc(t.Onward, func(to OnwardTo) bool { return to.Peer == ctr.Spec.Peer })
			part := Part{ID: t.Onward[to].ID, Peer: ctr.Spec.Peer, Limit: amounts[j+1]}
			part.Arch, part.Why = there(nodes.Items, ctr.Spec.Peer)
			t.Parts = append(t.Parts, part)
		}
	}
	return nil
}

// there is what the node of a provider shows of its machines, and why nothing starts there.
func there(nodes []corev1.Node, peer string) (arch, why string) {
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == v1alpha1.VirtualNode(peer) })
	if i < 0 {
		return "", peer + " is no node here"
	}
	if why := NotThere(&nodes[i]); why != "" {
		return nodes[i].Labels[corev1.LabelArchStable], why
	}
	return nodes[i].Labels[corev1.LabelArchStable], ""
}

// NotThere says why no guest starts on the node of a provider now; empty when they do.
func NotThere(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			return cmp.Or(c.Message, c.Reason, "not ready")
		case c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue:
			return cmp.Or(c.Message, c.Reason, "no network")
		}
	}
	if node.Spec.Unschedulable {
		return "cordoned"
	}
	return ""
}

// PartsOf are the parts of the contract in force with a consumer (identity.ID.String); none when it is not divided.
func (c *Contracts) PartsOf(consumerID string) []Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, t := range c.terms {
		if t.Consumer.ID == consumerID && t.InForce(now) && len(t.Parts) > 0 {
			return t.Parts
		}
	}
	return nil
}
