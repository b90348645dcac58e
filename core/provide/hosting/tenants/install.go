package tenants

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/local/installed"
	"kith.dev/core/provide/hosting/guests"
)

// Install applies what every tenant needs, by a client that does not read from a cache: the ClusterRole kith:tenant, and first the admission
// policies that bound what it permits; and the PriorityClass of guests. Idempotent.
func (t *Tenants) Install(ctx context.Context, c client.Client) error {
	err := all(ctx, c, policies())
	if t.bounded = err == nil; meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // a cluster from before Kubernetes 1.30
		t.log.Warn("this cluster has no ValidatingAdmissionPolicies: services, config and secrets of consumers are not taken")
	} else if err != nil {
		return err
	}
	needed, err := t.needed()
	if err != nil {
		return err
	}
	return all(ctx, c, needed)
}

// all applies objects, all at once: consumers wait for it.
func all(ctx context.Context, c client.Client, objects []client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range objects {
		group.Go(func() error {
			if err := installed.Apply(ctx, c, object); err != nil {
				return fmt.Errorf("installing %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// needed is what tenants need besides the policies. They must not be given the rights that policies bound where there are none.
func (t *Tenants) needed() (list []client.Object, err error) {
	for _, object := range []any{tenantClusterRole(t.bounded), guests.Priority()} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		list = append(list, &unstructured.Unstructured{Object: fields})
	}
	return list, nil
}

// Objects are what Install applied, for whoever keeps it as it is.
func (t *Tenants) Objects() ([]client.Object, error) {
	list, err := t.needed()
	if t.bounded {
		list = append(list, policies()...)
	}
	return list, err
}
