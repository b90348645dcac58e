package link

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Addresses are those of a peer's guests here, by the pods that a cache has.
func Addresses(c client.Reader) func(context.Context, *v1alpha1.Peer) ([]netip.Addr, error) {
	return func(ctx context.Context, peer *v1alpha1.Peer) (list []netip.Addr, err error) {
		id, err := identity.ParseID(peer.Spec.ID)
		if err != nil {
			return nil, fmt.Errorf("the ID of peer %s: %w", peer.Name, err)
		}
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.MatchingLabels{v1alpha1.LabelConsumer: id.Compact()}); err != nil {
			return nil, fmt.Errorf("list guests: %w", err)
		}
		for i := range pods.Items {
			if a, err := netip.ParseAddr(pods.Items[i].Status.PodIP); err == nil && !v1alpha1.Ended(pods.Items[i].Status.Phase) {
				list = append(list, a)
			}
		}
		return list, nil
	}
}

// WentOn reports whether guests of a peer are at a provider, by its Peer's name and the pods that a cache has.
func WentOn(c client.Reader) func(ctx context.Context, peer *v1alpha1.Peer, provider string) (bool, error) {
	return func(ctx context.Context, peer *v1alpha1.Peer, provider string) (bool, error) {
		id, err := identity.ParseID(peer.Spec.ID)
		if err != nil {
			return false, fmt.Errorf("the ID of peer %s: %w", peer.Name, err)
		}
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.MatchingLabels{v1alpha1.LabelConsumer: id.Compact()}); err != nil {
			return false, fmt.Errorf("list guests: %w", err)
		}
		return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return v1alpha1.AtPeer(pod.Spec.NodeName, provider) && !v1alpha1.Ended(pod.Status.Phase)
		}), nil
	}
}

// Pods tells of guests by the pods that a cache has. One that has not ended has an address, or is about to get one.
func Pods(c client.Reader) Guests {
	return func(ctx context.Context, peer *v1alpha1.Peer) (here, there bool, err error) {
		id, err := identity.ParseID(peer.Spec.ID)
		if err != nil {
			return false, false, fmt.Errorf("the ID of peer %s: %w", peer.Name, err)
		}
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
			return false, false, fmt.Errorf("list pods: %w", err)
		}
		for i := range pods.Items {
			switch pod := &pods.Items[i]; {
			case v1alpha1.Ended(pod.Status.Phase):
			case pod.Labels[v1alpha1.LabelConsumer] == id.Compact():
				here = true
			case v1alpha1.AtPeer(pod.Spec.NodeName, peer.Name):
				there = true
			}
		}
		return here, there, nil
	}
}
