package installed

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/v1alpha1/crds"
)

// CustomResources are the definitions of Kith's own kinds.
func CustomResources() (list []client.Object, err error) {
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

// Define applies the custom resources and waits until the API server serves them.
func Define(ctx context.Context, c client.Client) error {
	list, err := CustomResources()
	if err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	for _, crd := range list {
		if err := Apply(ctx, c, crd.DeepCopyObject().(client.Object)); err != nil {
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

// Apply puts an object into the cluster by server-side apply.
func Apply(ctx context.Context, c client.Client, obj client.Object) error {
	put := func() error {
		//nolint:staticcheck // generated apply configurations exist for none of these kinds
		return c.Patch(ctx, obj, client.Apply, client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership)
	}
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	err := put()
	if Unchangeable(kind, err) {
		if err := c.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			return err
		}
		err = put()
	}
	return err
}
