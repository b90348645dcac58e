package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/provide/hosting/grants"
)

// grow has a claim ask for so much, within the contract, if that is more than it asked for; and tells how large its volume is by now. That becomes
// larger by whoever made it.
func (c *Claims) grow(ctx context.Context, terms *grants.Terms, is *corev1.PersistentVolumeClaim, size resource.Quantity) (remote.ClaimState, error) {
	state := volumes.StateOf(is)
	if state.Phase != corev1.ClaimBound { // Kubernetes lets none grow that has no volume
		return state, nil
	}
	var v corev1.PersistentVolume
	if err := c.live.Get(ctx, client.ObjectKey{Name: is.Spec.VolumeName}, &v); err != nil {
		return state, fmt.Errorf("volume of claim %s/%s: %w", is.Namespace, is.Name, err)
	}
	if err := c.label(ctx, &v); err != nil { // it may be under another contract by now
		return state, err
	}
	asks, has := is.Spec.Resources.Requests[corev1.ResourceStorage], is.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(asks) <= 0 && asks.Cmp(has) <= 0 {
		return state, nil
	}
	class, err := c.class(ctx, classOf(is))
	if _, gone := errors.AsType[*api.Error](err); gone && size.Cmp(asks) <= 0 { // the claim keeps the volume that it has, and pods start with it
		return state, nil
	}
	if err != nil {
		return state, err
	}
	if size.Cmp(asks) > 0 {
		if is, err = c.askMore(ctx, terms, class, is, size); err != nil {
			return state, err
		}
	}
	if volumes.LimitsNothing(class) { // so nobody makes it larger: it is
		asks = is.Spec.Resources.Requests[corev1.ResourceStorage]
		if err := volumes.Grown(ctx, c.client, is, &v, asks); err != nil {
			return state, err
		}
		return remote.ClaimState{Phase: corev1.ClaimBound, Capacity: asks.String()}, nil
	}
	return volumes.StateOf(is), nil
}

// askMore has a claim ask for more of whoever makes volumes here.
func (c *Claims) askMore(ctx context.Context, terms *grants.Terms, class *storagev1.StorageClass, is *corev1.PersistentVolumeClaim, size resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	if !volumes.MayGrow(class) {
		return nil, &api.Error{Code: api.CodeForbidden, Message: "claim " + is.Name, Reason: "the storage class here lets no volumes grow (allowVolumeExpansion)"}
	}
	if err := c.beingCopied(ctx, terms.Consumer.Compact, is); err != nil {
		return nil, err
	}
	if err := c.fits(ctx, terms, classOf(is), "claim", is, size); err != nil {
		return nil, err
	}
	next := is.DeepCopy()
	next.Spec.Resources.Requests[corev1.ResourceStorage] = size
	err := c.client.Patch(ctx, next, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.ManagedBy))
	switch {
	case apierrors.IsConflict(err), apierrors.IsForbidden(err): // the quota of the namespace, or the class, is that of a moment ago
		c.log.Debug("a consumer's claim does not grow yet", "namespace", is.Namespace, "claim", is.Name, "err", err)
		return nil, &api.Error{Code: api.CodeNotReady, Message: "claim " + is.Name, Reason: "what it is held to here is being changed", Do: "try again in a moment"}
	case err != nil:
		return nil, c.refused(terms, is.Name, err)
	}
	c.log.Info("a consumer's claim is to grow", "peer", terms.Consumer.Name, "namespace", is.Namespace, "claim", is.Name, "size", size.String())
	return next, c.count(ctx, terms.Consumer.Compact, terms.Contract)
}
