package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/v1alpha1/crds"
	"kith.dev/core/sharing"
)

// installCRDs applies the custom resources and waits until the API server serves them.
func installCRDs(ctx context.Context, c client.Client) error {
	var names []string
	err := fs.WalkDir(crds.FS, ".", func(path string, entry fs.DirEntry, err error) error {
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
		names = append(names, crd.Name)
		return apply(ctx, c, crd)
	})
	if err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	for _, name := range names {
		if err := waitEstablished(ctx, c, name); err != nil {
			return fmt.Errorf("wait for the custom resource %s: %w", name, err)
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
	//nolint:staticcheck // generated apply configurations exist for none of these kinds
	return c.Patch(ctx, obj, client.Apply, client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership)
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
