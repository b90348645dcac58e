package tenants

import (
	"context"
	"fmt"
	"log/slog"

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
// policies that bound what it permits; and the PriorityClass of guests. Idempotent. It gives what it applied, for whoever keeps it as it is.
func Install(ctx context.Context, c client.Client, log *slog.Logger) ([]client.Object, error) {
	bounds := policies()
	if err := all(ctx, c, bounds); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // a cluster from before Kubernetes 1.30
		log.Warn("this cluster has no ValidatingAdmissionPolicies: services, config and secrets of consumers are not taken")
		bounds = nil
	} else if err != nil {
		return nil, fmt.Errorf("what tenants need: %w", err)
	}
	list, err := needed(bounds != nil)
	if err != nil {
		return nil, err
	}
	return append(list, bounds...), all(ctx, c, list)
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
func needed(bounded bool) (list []client.Object, err error) {
	for _, object := range []any{tenantClusterRole(bounded), guests.Priority()} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		list = append(list, &unstructured.Unstructured{Object: fields})
	}
	return list, nil
}
