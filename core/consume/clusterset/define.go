package clusterset

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// define waits until the owner has services in common with anybody, and then has the cluster know ServiceExports and ServiceImports, as the project that
// has them publishes them. Until then they would cost each laptop some megabytes for nothing. In a cluster where kithd may not define kinds, that is for
// its owner.
func (s *Set) define(ctx context.Context) {
	for {
		changed := s.changed.Wait()
		if slices.ContainsFunc(s.cfg.Ledger.Now().Policies, func(p v1alpha1.SharingPolicy) bool { return len(sharing.Services(&p)) > 0 }) {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	_ = wait.PollUntilContextCancel(ctx, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		err := Define(ctx, s.definer)
		if apierrors.IsForbidden(err) {
			s.cfg.Log.Info("services in common need kinds that kithd may not define here", "why", err)
			return true, nil
		}
		if err != nil {
			s.cfg.Log.Warn("services in common, trying again", "err", err)
		}
		return err == nil, nil
	})
}

// Define makes the two definitions, or brings those that Kith made to this release. Those that somebody else made stay.
func Define(ctx context.Context, c client.Client) error {
	for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
		want := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(text, want); err != nil {
			return fmt.Errorf("definition of a kind: %w", err)
		}
		metav1.SetMetaDataLabel(&want.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
		err := c.Create(ctx, want, client.FieldOwner(v1alpha1.ManagedBy))
		if apierrors.IsAlreadyExists(err) {
			err = update(ctx, c, want)
		}
		if err != nil {
			return fmt.Errorf("define %s: %w", want.Name, err)
		}
	}
	return nil
}

func update(ctx context.Context, c client.Client, want *apiextensionsv1.CustomResourceDefinition) error {
	have := new(apiextensionsv1.CustomResourceDefinition)
	if err := c.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return err
	}
	is, wrong := version.ParseSemantic(have.Labels[crd.ReleaseVersionLabel])
	this, err := version.ParseSemantic(want.Labels[crd.ReleaseVersionLabel])
	if err != nil || wrong != nil || !isOurs(have) || !is.LessThan(this) {
		return err
	}
	want.ResourceVersion = have.ResourceVersion
	return c.Update(ctx, want, client.FieldOwner(v1alpha1.ManagedBy))
}
