package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/v1alpha1/crds"
	"kith.dev/core/guestnet"
	"kith.dev/core/hosting"
	"kith.dev/core/installed"
	"kith.dev/core/offloading"
	"kith.dev/core/sharing"
)

// customResources are the definitions of Kith's own kinds.
func customResources() (list []client.Object, err error) {
	err = fs.WalkDir(crds.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(crds.FS, path)
		if err != nil {
			return err
		}
		crd := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, crd)
		return nil
	})
	return list, err
}

// installCRDs applies the custom resources and waits until the API server serves them.
func installCRDs(ctx context.Context, c client.Client) error {
	list, err := customResources()
	if err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	for _, crd := range list {
		if err := apply(ctx, c, crd.DeepCopyObject().(client.Object)); err != nil {
			return fmt.Errorf("install the custom resources: %w", err)
		}
	}
	for _, crd := range list {
		if err := waitEstablished(ctx, c, crd.GetName()); err != nil {
			return fmt.Errorf("wait for the custom resource %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

func waitEstablished(ctx context.Context, c client.Client, name string) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// apply puts an object into the cluster by server-side apply.
func apply(ctx context.Context, c client.Client, obj client.Object) error {
	put := func() error {
		//nolint:staticcheck // generated apply configurations exist for none of these kinds
		return c.Patch(ctx, obj, client.Apply, client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership)
	}
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	err := put()
	if installed.Unchangeable(kind, err) {
		if err := c.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			return err
		}
		err = put()
	}
	return err
}

// policies are the admission policies of this side, which say how pods travel and where guests are.
func (d *Daemon) policies() []client.Object {
	list := offloading.Objects()
	if d.engine.Facts().GuestLinks {
		list = append(list, guestnet.Objects()...)
	}
	return list
}

// keepInstalled has all that Kith put into the cluster kept as it is.
func (d *Daemon) keepInstalled(mgr ctrl.Manager, direct client.Client, host *hosting.Host) error {
	custom, err := customResources()
	if err != nil {
		return err
	}
	hosts, err := host.Objects()
	if err != nil {
		return err
	}
	keeper := installed.New(direct, d.tellMended, d.log)
	if err := keeper.Keep(slices.Concat(custom, hosts, d.policies())...); err != nil {
		return err
	}
	return keeper.SetupWithManager(mgr)
}

func (d *Daemon) tellMended(what string) {
	d.publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning,
		Message: what + " was deleted or changed in this cluster, and is as it was again: Kith needs it to keep guests apart"})
}

// installPolicy makes the default SharingPolicy at the first start; later the owner's word stands.
func installPolicy(ctx context.Context, c client.Client, percent int, autoAccept bool, images []string) error {
	policy := sharing.Default(percent)
	policy.Spec.AutoAccept = autoAccept
	if len(images) > 0 {
		policy.Spec.Images = &v1alpha1.ImageRules{Present: images}
	}
	if err := c.Create(ctx, policy); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the default sharing policy: %w", err)
	}
	return nil
}
