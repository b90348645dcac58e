package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/custom"
	"kith.dev/core/provide/hosting/grants"
)

// definitions are where the API server has the definitions of custom kinds.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// allowed gives what the owner lets the consumer keep of a kind; nil: nothing.
func allowed(t *grants.Terms, k custom.Kind) *v1alpha1.GuestKind {
	i := slices.IndexFunc(t.Kinds, func(g v1alpha1.GuestKind) bool { return g.Group == k.Group && g.Resource == k.Resource })
	if i < 0 || k.Group == v1alpha1.GroupVersion.Group || k.Group == definitions.Group {
		return nil
	}
	return &t.Kinds[i]
}

// known gives the kind's name in objects; a refusal when this cluster has none that can be in a namespace. It is asked of definitions alone: so no kind that an
// API server has built in can be written, whatever a policy says.
func (o *Objects) known(ctx context.Context, k custom.Kind) (kind string, no *custom.Refusal, err error) {
	crd, err := o.client.Resource(definitions).Get(ctx, k.Name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", refuse(custom.Unknown, "there is no CustomResourceDefinition %s", k.Name()), nil
	case err != nil:
		return "", nil, fmt.Errorf("read the definition of %s: %w", k.Name(), err)
	}
	if scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope"); scope != "Namespaced" {
		return "", refuse(custom.ClusterScoped, "its objects are in no namespace"), nil
	}
	kind, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, is := v.(map[string]any); is && v["name"] == k.Version && v["served"] == true {
			return kind, nil, nil
		}
	}
	return "", refuse(custom.NotServed, "version %s is not served", k.Version), nil
}

func refuse(reason custom.Reason, format string, about ...any) *custom.Refusal {
	return &custom.Refusal{Reason: reason, Why: grants.Cut(fmt.Sprintf(format, about...), 500)}
}

// define makes a definition that the consumer brought, if there is none and the owner lets it. What is made is what the definition says of names and
// schemas, with nothing by which this cluster would call somebody (conversion by webhook), and of the version that was asked for, served and stored.
func (o *Objects) define(ctx context.Context, k custom.Kind, raw json.RawMessage) (no *custom.Refusal, err error) {
	brought, err := custom.Fields(raw, custom.MaxDefinition)
	if err != nil {
		return refuse(custom.Invalid, "its definition: %v", err), nil
	}
	spec, _ := brought["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	if spec["group"] != k.Group || names["plural"] != k.Resource || spec["scope"] != "Namespaced" {
		return refuse(custom.Invalid, "the definition that was brought is of another kind, or its objects are in no namespace"), nil
	}
	if strings.HasSuffix(k.Group, ".k8s.io") || strings.HasSuffix(k.Group, ".kubernetes.io") {
		return refuse(custom.NotAllowed, "definitions of groups of Kubernetes are not taken from peers"), nil
	}
	var versions []any
	list, _ := spec["versions"].([]any)
	for _, v := range list {
		if v, is := v.(map[string]any); is && v["name"] == k.Version {
			v["served"], v["storage"] = true, true
			versions = append(versions, v)
		}
	}
	if len(versions) != 1 {
		return refuse(custom.NotServed, "the definition that was brought has no version %s", k.Version), nil
	}
	delete(names, "categories") // of kubectl get all
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": definitions.GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.Name(), "labels": map[string]any{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		"spec":     map[string]any{"group": k.Group, "scope": "Namespaced", "names": names, "versions": versions},
	}}
	_, err = o.client.Resource(definitions).Create(ctx, crd, metav1.CreateOptions{FieldManager: fieldOwner})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refuse(custom.Invalid, "its definition: %v", err), nil
	case err != nil:
		return nil, fmt.Errorf("make the definition of %s: %w", k.Name(), err)
	}
	o.log.Info("a peer brought the definition of a kind", "kind", k.Name())
	return nil, nil
}
