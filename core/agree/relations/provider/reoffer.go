package provider

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
)

// SupplyUnder is what there is to promise under a policy to a peer that provides nothing itself: that of this cluster, and what it offers on.
func (p *Provider) SupplyUnder(ctx context.Context, policy *v1alpha1.SharingPolicy, own supply.Supply) (supply.Supply, error) {
	in := sharing.OfferInput{Policy: policy, Supply: own, Now: time.Now()}
	err := p.addReoffered(ctx, p.Client.Now(), &in, &v1alpha1.Peer{})
	return in.Supply, err
}

// addReoffered adds to what there is what others grant this cluster and let be offered on to the peer, less what the owner's own pods there request. What
// is promised is counted against all of it, whomever it was promised to: so nothing is promised twice. The policy gets the prices that hold with it.
func (p *Provider) addReoffered(ctx context.Context, now *ledger.Snapshot, in *sharing.OfferInput, peer *v1alpha1.Peer) error {
	from := sharing.Reoffered(in.Policy, peer, now.Peers, now.Contracts, in.Now)
	in.Policy = sharing.WithMargin(in.Policy, from)
	if len(from) == 0 || len(in.Supply.Nodes) == 0 {
		return nil
	}
	in.Supply = sharing.WithReoffered(in.Supply, from, in.Now)
	at := map[string]bool{}
	for _, ctr := range from {
		at[v1alpha1.VirtualNode(ctr.Spec.Peer)] = true
	}
	if in.Supply.Own == nil {
		return nil
	}
	var pods corev1.PodList
	if err := p.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("see which of the owner's pods are at peers: %w", err)
	}
	in.Supply.Own = maps.Clone(in.Supply.Own)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if peer, _ := v1alpha1.PeerOfNode(pod.Spec.NodeName); !at[v1alpha1.VirtualNode(peer)] || pod.Labels[v1alpha1.LabelConsumer] != "" || v1alpha1.Ended(pod.Status.Phase) {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
		requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
		for _, name := range sharing.OfferedOn {
			sum := in.Supply.Own[name].DeepCopy()
			sum.Add(requests[name])
			in.Supply.Own[name] = sum
		}
	}
	return nil
}
