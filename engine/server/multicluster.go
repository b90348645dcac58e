package server

import (
	"context"
	"fmt"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"
)

// multicluster defines ServiceExport and ServiceImport (KEP-1645), as the project that has them publishes them. Newer definitions, which somebody
// put there, stay.
func multicluster(ctx context.Context, client apiextensions.CustomResourceDefinitionInterface) error {
	for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
		want := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(text, want); err != nil {
			return fmt.Errorf("multi-cluster services: %w", err)
		}
		have, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(ctx, want, metav1.CreateOptions{FieldManager: "kith-k8s"})
		case err == nil && older(have, want):
			want.ResourceVersion = have.ResourceVersion
			_, err = client.Update(ctx, want, metav1.UpdateOptions{FieldManager: "kith-k8s"})
		}
		if err != nil {
			return fmt.Errorf("multi-cluster services: define %s: %w", want.Name, err)
		}
	}
	return nil
}

// older reports whether a definition is of a release before that of another. One that says nothing of its release is somebody's own.
func older(have, want *apiextensionsv1.CustomResourceDefinition) bool {
	is, errHave := version.ParseSemantic(have.Labels[crd.ReleaseVersionLabel])
	new, errWant := version.ParseSemantic(want.Labels[crd.ReleaseVersionLabel])
	if errHave != nil || errWant != nil {
		return false
	}
	if c, _ := is.Compare(new.String()); c != 0 {
		return c < 0
	}
	number := func(d *apiextensionsv1.CustomResourceDefinition) int {
		n, _ := strconv.Atoi(d.Labels[crd.CustomResourceDefinitionSchemaRevisionLabel])
		return n
	}
	return number(have) < number(want)
}
