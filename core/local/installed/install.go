package installed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// Define applies the custom resources and waits until the API server serves them, all at once: a laptop that starts waits for it. Those that a
// newer Kith applied stay as they are.
func Define(ctx context.Context, c client.Client, log *slog.Logger) error {
	list, err := CustomResources()
	if err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, crd := range list {
		group.Go(func() error { return define(ctx, c, crd, log) })
	}
	return group.Wait()
}

func define(ctx context.Context, c client.Client, crd client.Object, log *slog.Logger) error {
	live, err := look(ctx, c, crd)
	if err != nil {
		return fmt.Errorf("look whether the custom resource %s is there: %w", crd.GetName(), err)
	}
	if revision, is := newer(live, crd); is {
		log.Warn("a newer Kith defined this kind in the cluster, and its definition stays: bring this Kith to the same version",
			"kind", crd.GetName(), "revision", revision, "known", crds.Revision())
	} else if err := apply(ctx, c, crd, live); err != nil {
		return fmt.Errorf("install the custom resource %s: %w", crd.GetName(), err)
	}
	if err := waitEstablished(ctx, c, crd.GetName()); err != nil {
		return fmt.Errorf("wait for the custom resource %s: %w", crd.GetName(), err)
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

// ContentAnnotation names what Kith applied to an object, by a digest of it.
const ContentAnnotation = "kith.dev/content"

// Apply puts an object into the cluster by server-side apply, unless it was put there as it is to be. A laptop that starts finds all of them so,
// and an apply costs its API server as much as a pod. What others changed since is for a Keeper to mend. c must not read from a cache.
func Apply(ctx context.Context, c client.Client, obj client.Object) error {
	live, err := look(ctx, c, obj)
	if err != nil {
		return err
	}
	return apply(ctx, c, obj, live)
}

// look gives the metadata of an object as it is in the cluster; without a name if there is none.
func look(ctx context.Context, c client.Client, obj client.Object) (*metav1.PartialObjectMetadata, error) {
	live := new(metav1.PartialObjectMetadata)
	live.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(obj), live)
	return live, client.IgnoreNotFound(err)
}

func apply(ctx context.Context, c client.Client, obj client.Object, live *metav1.PartialObjectMetadata) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(content, "status")
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	digest := fmt.Sprintf("%.16x", sha256.Sum256(text))
	if live.Annotations[ContentAnnotation] == digest && live.DeletionTimestamp == nil {
		return nil
	}
	want := &unstructured.Unstructured{Object: content}
	annotations := maps.Clone(want.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ContentAnnotation] = digest
	want.SetAnnotations(annotations)
	put := func() error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(want.DeepCopy()), client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership)
	}
	err = put()
	if Unchangeable(want.GetKind(), err) { // another stands under its name
		if err := c.Delete(ctx, live); client.IgnoreNotFound(err) != nil {
			return err
		}
		err = put()
	}
	return err
}
