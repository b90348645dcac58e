package installed

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1/crds"
)

// The schemas of an older Kith would prune what a newer one wrote: whichever of the two starts last, the newer stay.
func TestDefinitionsOfANewerKithStay(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	all, err := CustomResources()
	if err != nil {
		t.Fatal(err)
	}
	// In the cluster: one of a newer Kith, one of an older, one of a Kith from before there were revisions, the others none.
	revisions := []string{strconv.Itoa(crds.Revision() + 1), strconv.Itoa(crds.Revision() - 1), ""}
	var there []client.Object
	for i, crd := range all {
		live := crd.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
		live.Spec.Names.Singular = "another"
		delete(live.Annotations, crds.RevisionAnnotation)
		if i < len(revisions) && revisions[i] != "" {
			metav1.SetMetaDataAnnotation(&live.ObjectMeta, crds.RevisionAnnotation, revisions[i])
		}
		live.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		there = append(there, live)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build()
	look := func(when string) {
		t.Helper()
		for i, crd := range all {
			var live apiextensionsv1.CustomResourceDefinition
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), &live); err != nil {
				t.Fatal(err)
			}
			if stays := live.Spec.Names.Singular == "another"; stays != (i == 0) {
				t.Errorf("%s: %s, of revision %q, has the name %q", when, crd.GetName(), live.Annotations[crds.RevisionAnnotation], live.Spec.Names.Singular)
			}
			if revision := live.Annotations[crds.RevisionAnnotation]; i > 0 && revision != strconv.Itoa(crds.Revision()) {
				t.Errorf("%s: %s has revision %q", when, crd.GetName(), revision)
			}
		}
	}
	log := slog.New(slog.DiscardHandler)
	if err := Define(t.Context(), c, log); err != nil {
		t.Fatal(err)
	}
	look("defined")
	keeper := New(c, func(what string) { t.Errorf("%s was mended", what) }, log)
	if err := keeper.Keep(all...); err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if _, err := keeper.mend(t.Context(), keeper.want(keyOf("CustomResourceDefinition", crd.GetName()))); err != nil {
			t.Error(err)
		}
	}
	look("kept")
}

// The revision is raised with each change of a definition, which `make generate` does.
func TestTheRevisionIsThatOfTheDefinitions(t *testing.T) {
	sum := sha256.New()
	err := fs.WalkDir(crds.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(crds.FS, path)
		sum.Write(text)
		return err
	})
	if got := hex.EncodeToString(sum.Sum(nil)); err != nil || got != crds.Sum() || crds.Revision() < 1 {
		t.Errorf("the definitions have changed since revision %d: run scripts/generate.sh (%v)", crds.Revision(), err)
	}
}
