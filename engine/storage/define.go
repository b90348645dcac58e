package storage

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

//go:embed crds/*.yaml
var crds embed.FS

// release is that of external-snapshotter whose definitions they are; the annotation of it says which those in a cluster are of.
const (
	release           = "v8.7.0"
	annotationRelease = "kith.dev/external-snapshotter"
)

// errOthers: somebody else defined the kinds, whose own controller makes snapshots.
var errOthers = errors.New("somebody else defined the kinds of volume snapshots in this cluster, and makes them")

// define has the cluster know the kinds of volume snapshots, and waits until it does. The error is errOthers when somebody else defined one of them.
func define(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface) error {
	files, err := crds.ReadDir("crds")
	if err != nil {
		return err
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	missing := map[string]bool{}
	for _, f := range files {
		text, err := crds.ReadFile("crds/" + f.Name())
		if err != nil {
			return err
		}
		want := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(text, want); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		metav1.SetMetaDataLabel(&want.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, annotationRelease, release)
		is, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing[want.Name] = true
		case err != nil:
			return fmt.Errorf("definition of %s: %w", want.Name, err)
		case is.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
			return errOthers
		case is.Annotations[annotationRelease] == release:
			continue
		default:
			want.ResourceVersion = is.ResourceVersion
		}
		all = append(all, want)
	}
	for _, want := range all {
		if missing[want.Name] {
			_, err = client.Create(ctx, want, metav1.CreateOptions{FieldManager: Provisioner})
		} else {
			_, err = client.Update(ctx, want, metav1.UpdateOptions{FieldManager: Provisioner})
		}
		if err != nil {
			return fmt.Errorf("define %s: %w", want.Name, err)
		}
	}
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, f := range []string{snapshotv1.Snapshots.Resource, snapshotv1.Contents.Resource, snapshotv1.Classes.Resource} {
			is, err := client.Get(ctx, f+"."+snapshotv1.GroupVersion.Group, metav1.GetOptions{})
			if err != nil || !established(is) {
				return false, err
			}
		}
		return true, nil
	})
}

// established reports whether the API server serves a kind.
func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// class makes the class of snapshots, unless it is there. Whether it is the default one, and what becomes of the files, is the owner's choice from then on.
func (s *snapshotter) defineClass(ctx context.Context) error {
	want, err := snapshotv1.Write(&snapshotv1.Class{
		TypeMeta:   metav1.TypeMeta{APIVersion: snapshotv1.GroupVersion.String(), Kind: snapshotv1.KindClass},
		ObjectMeta: metav1.ObjectMeta{Name: Class, Annotations: map[string]string{snapshotv1.AnnotationDefault: "true"}},
		Driver:     snapshotv1.Driver, DeletionPolicy: snapshotv1.Delete,
	})
	if err != nil {
		return err
	}
	_, err = s.kinds.Resource(snapshotv1.Classes).Create(ctx, want, metav1.CreateOptions{FieldManager: Provisioner})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// keepSnapshots has snapshots made until ctx ends, unless somebody else makes them.
func (s *snapshotter) keepSnapshots(ctx context.Context, definitions apiextensions.CustomResourceDefinitionInterface) {
	_ = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: time.Minute}.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := define(ctx, definitions)
		if err == nil {
			err = s.defineClass(ctx)
		}
		if errors.Is(err, errOthers) {
			s.log.Info("no snapshots are made of volumes of this laptop", "why", err)
			return true, nil
		}
		if err == nil {
			s.folders.snapshots.Store(s)
			err = s.run(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Log(ctx, slog.LevelWarn, "snapshots of volumes, trying again", "err", err)
		}
		return err == nil, nil
	})
}
