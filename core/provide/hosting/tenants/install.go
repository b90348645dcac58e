package tenants

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/installed"
	"kith.dev/core/provide/hosting/guests"
)

// Install applies what every tenant needs: the ClusterRole kith:tenant, and first the admission policies that bound what
// it permits; and the PriorityClass of guests. Idempotent.
func (t *Tenants) Install(ctx context.Context) error {
	bounded, err := t.installBounds(ctx)
	if err != nil {
		return err
	}
	if err := t.apply(ctx, tenantClusterRole(bounded)); err != nil {
		return fmt.Errorf("installing ClusterRole %s: %w", tenantRole, err)
	}
	err = t.apply(ctx, guests.Priority())
	if installed.Unchangeable("PriorityClass", err) { // another stands under its name
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuestPriorityClass}}
		if err = client.IgnoreNotFound(t.client.Delete(ctx, class)); err == nil {
			err = t.apply(ctx, guests.Priority())
		}
	}
	if err != nil {
		return fmt.Errorf("installing PriorityClass %s: %w", v1alpha1.GuestPriorityClass, err)
	}
	return nil
}

// installBounds puts the policies into force, all at once: consumers wait for it. False: this cluster has none (before
// Kubernetes 1.30), so consumers must not be given the rights they bound.
func (t *Tenants) installBounds(ctx context.Context) (bool, error) {
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range policies() {
		group.Go(func() error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				return err
			}
			unstructured.RemoveNestedField(content, "status")
			if err := t.apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})); err != nil {
				return fmt.Errorf("installing admission policy %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	err := group.Wait()
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		t.log.Warn("this cluster has no ValidatingAdmissionPolicies: services, config and secrets of consumers are not taken")
		return false, nil
	}
	t.bounded = err == nil
	return t.bounded, err
}

// Objects are what Install applied, for whoever keeps it as it is.
func (t *Tenants) Objects() ([]client.Object, error) {
	var list []client.Object
	for _, object := range []any{tenantClusterRole(t.bounded), guests.Priority()} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		list = append(list, &unstructured.Unstructured{Object: fields})
	}
	if t.bounded {
		list = append(list, policies()...)
	}
	return list, nil
}
