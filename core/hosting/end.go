package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

const (
	endGrace  = 30 * time.Second // the longest grace period of a guest whose contract ended
	endSlack  = 5 * time.Second  // and what the kubelet may take on top before force is used
	clearTime = 60 * time.Second // for the namespace itself to go
	pollEvery = 200 * time.Millisecond
)

// endContract clears away every twin namespace under the contract.
func (t *tenants) endContract(ctx context.Context, contractID string) error {
	t.contracts.end(contractID)
	return t.clear(ctx, client.MatchingLabels{v1alpha1.LabelContract: contractID})
}

// release clears away the twin of one home namespace.
func (t *tenants) release(ctx context.Context, contractID, home string) error {
	return t.clear(ctx, client.MatchingLabels{v1alpha1.LabelContract: contractID, v1alpha1.LabelHomeNamespace: home})
}

// clear removes the namespaces with these labels. It can be called again after any failure or restart: it
// looks at what is there, not at what was done.
func (t *tenants) clear(ctx context.Context, which client.MatchingLabels) error {
	which[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	var list corev1.NamespaceList
	if err := t.live.List(ctx, &list, which); err != nil {
		return fmt.Errorf("listing twin namespaces: %w", err)
	}
	var work errgroup.Group // not WithContext: one that hangs must not stop the others
	work.SetLimit(8)
	errs := make([]error, len(list.Items))
	for i := range list.Items {
		clear := t.clearNamespace
		if tw, ok := twinOf(&list.Items[i]); !ok || !genuine(&list.Items[i], tw) {
			clear = t.disown
		}
		work.Go(func() error {
			errs[i] = clear(ctx, &list.Items[i])
			return nil
		})
	}
	_ = work.Wait()
	return errors.Join(errs...)
}

// disown takes what is the consumer's out of a namespace that has the labels of a twin and is none, or none any more because
// somebody edited them. The namespace itself is somebody else's.
func (t *tenants) disown(ctx context.Context, ns *corev1.Namespace) error {
	t.log.Warn("a namespace has the labels of a twin and is none; it is left alone", "namespace", ns.Name)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: tenantRole}}
	if err := t.client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("shutting namespace %s: %w", ns.Name, err)
	}
	if err := t.clearPods(ctx, ns.Name); err != nil {
		return fmt.Errorf("ending guests in namespace %s: %w", ns.Name, err)
	}
	return nil
}

func (t *tenants) clearNamespace(ctx context.Context, ns *corev1.Namespace) error {
	if err := t.clearPods(ctx, ns.Name); err != nil {
		return fmt.Errorf("clearing namespace %s: %w", ns.Name, err)
	}
	err := t.client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting namespace %s: %w", ns.Name, err)
	}
	gone, err := t.poll(ctx, clearTime, func(ctx context.Context) (bool, error) {
		var now corev1.Namespace
		err := t.live.Get(ctx, client.ObjectKeyFromObject(ns), &now)
		return apierrors.IsNotFound(err) || err == nil && now.UID != ns.UID, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of namespace %s: %w", ns.Name, err)
	}
	if !gone {
		return fmt.Errorf("namespace %s is still there %s after it was deleted: something in it holds it back", ns.Name, clearTime)
	}
	t.contracts.forget(ns.Name)
	t.log.Info("twin namespace cleared away", "namespace", ns.Name, "peer", ns.Labels[v1alpha1.LabelConsumerName])
	return nil
}

// clearPods lets the guests end in their grace period, by the reconciler's hand, and makes an end of those
// that do not. Finalizers that a consumer put on its OffloadedPods hold nothing back.
func (t *tenants) clearPods(ctx context.Context, namespace string) error {
	if err := t.client.DeleteAllOf(ctx, newOffloaded(), client.InNamespace(namespace)); err != nil {
		return err
	}
	gone, err := t.poll(ctx, endGrace+endSlack, func(ctx context.Context) (bool, error) { return t.quiet(ctx, namespace) })
	if err != nil {
		return err
	}
	if !gone {
		t.log.Warn("guests did not end in time, ending them by force", "namespace", namespace)
		if err := t.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), guests, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	}
	rest, err := t.list(ctx, "OffloadedPodList", client.InNamespace(namespace))
	if err != nil {
		return err
	}
	for i := range rest {
		one := newOffloaded()
		one.SetNamespace(namespace)
		one.SetName(rest[i].Name)
		err := t.client.Patch(ctx, one, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// guests are the Pods that hosting made.
var guests = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// quiet: no guest is there any more, and no OffloadedPod that could still make one.
func (t *tenants) quiet(ctx context.Context, namespace string) (bool, error) {
	pods, err := t.list(ctx, "PodList", client.InNamespace(namespace), guests)
	if err != nil || len(pods) > 0 {
		return false, err
	}
	rest, err := t.list(ctx, "OffloadedPodList", client.InNamespace(namespace))
	return !slices.ContainsFunc(rest, func(o metav1.PartialObjectMetadata) bool {
		return o.DeletionTimestamp.IsZero() || slices.Contains(o.Finalizers, v1alpha1.FinalizerOffloadedPod)
	}), err
}

func (t *tenants) list(ctx context.Context, kind string, opts ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if kind == "PodList" {
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	}
	err := t.live.List(ctx, list, append(opts, recent())...)
	return list.Items, err
}

// poll asks until done says yes, at most for the given time: then it gives false.
func (t *tenants) poll(ctx context.Context, atMost time.Duration, done func(context.Context) (bool, error)) (bool, error) {
	deadline := time.NewTimer(atMost)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return ok, err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
