package installed

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/api/v1alpha1/crds"
)

// CustomResources are the definitions of Kith's own kinds, each with the revision of the schemas.
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
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, crds.RevisionAnnotation, strconv.Itoa(crds.Revision()))
		list = append(list, crd)
		return nil
	})
	return list, err
}

// newer gives the revision of a definition in the cluster if it is higher than that of want: a newer Kith applied it, and with the older
// schema the API server would drop what that one wrote.
func newer(live, want client.Object) (revision int, is bool) {
	there, err := strconv.Atoi(live.GetAnnotations()[crds.RevisionAnnotation])
	mine, errMine := strconv.Atoi(want.GetAnnotations()[crds.RevisionAnnotation])
	return there, err == nil && errMine == nil && there > mine
}

// Define applies the custom resources and waits until the API server serves them. Those that a newer Kith applied stay as they are.
func Define(ctx context.Context, c client.Client, log *slog.Logger) error {
	list, err := CustomResources()
	if err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	for _, crd := range list {
		var live metav1.PartialObjectMetadata
		live.SetGroupVersionKind(crd.GetObjectKind().GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), &live); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look whether the custom resource %s is there: %w", crd.GetName(), err)
		}
		if revision, is := newer(&live, crd); is {
			log.Warn("a newer Kith defined this kind in the cluster, and its definition stays: bring this Kith to the same version",
				"kind", crd.GetName(), "revision", revision, "known", crds.Revision())
			continue
		}
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
