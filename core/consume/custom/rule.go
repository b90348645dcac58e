package custom

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/reflection"
)

// definitions are where the API server has the definitions of custom kinds.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// rule is a kind of a policy, with what home knows of it.
type rule struct {
	Kind
	policy   string
	spec     v1alpha1.ReflectedKind
	selector labels.Selector
	// definition is what a peer is sent that has none; empty: nothing.
	definition json.RawMessage
	// subresource: the status is written by itself.
	subresource bool
}

// same reports whether two rules say the same.
func (r *rule) same(o *rule) bool {
	a, _ := json.Marshal(r.spec)
	b, _ := json.Marshal(o.spec)
	return r.Kind == o.Kind && r.policy == o.policy && string(a) == string(b) && string(r.definition) == string(o.definition) && r.subresource == o.subresource
}

// rules are those of all policies, by kind: of two that name the same, the first policy by its name counts. What home itself does not have is refused.
func rules(ctx context.Context, client dynamic.Interface, policies []v1alpha1.ReflectionPolicy) (list []*rule, no []refused, err error) {
	policies = slices.SortedFunc(slices.Values(policies), func(a, b v1alpha1.ReflectionPolicy) int { return strings.Compare(a.Name, b.Name) })
	for i := range policies {
		for _, spec := range policies[i].Spec.Kinds {
			r := &rule{Kind: Kind{Group: spec.Group, Version: spec.Version, Resource: spec.Resource}, policy: policies[i].Name, spec: spec}
			if slices.ContainsFunc(list, func(o *rule) bool { return o.Name() == r.Name() }) {
				continue
			}
			why, err := r.know(ctx, client)
			if err != nil {
				return nil, nil, err
			}
			if why == nil && len(list) == MaxKinds {
				why = &Refusal{Reason: TooMany, Why: fmt.Sprintf("policies name more than %d kinds", MaxKinds)}
			}
			if why != nil {
				no = append(no, refused{policy: r.policy, kind: r.Name(), reason: why.Reason, why: why.Why})
				continue
			}
			list = append(list, r)
		}
	}
	return list, no, nil
}

// know completes a rule by the definition that home has of the kind. A kind that an API server has built in has none, and does not travel so.
func (r *rule) know(ctx context.Context, client dynamic.Interface) (no *Refusal, err error) {
	if r.selector, err = metav1.LabelSelectorAsSelector(r.spec.Selector); err != nil {
		return &Refusal{Reason: Invalid, Why: "selector: " + err.Error()}, nil
	}
	if r.spec.Selector == nil {
		r.selector = labels.Everything()
	}
	if r.Group == v1alpha1.GroupVersion.Group || r.Group == definitions.Group {
		return &Refusal{Reason: NotAllowed, Why: "objects of Kith and definitions of kinds do not travel"}, nil
	}
	crd, err := client.Resource(definitions).Get(ctx, r.Name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return &Refusal{Reason: Unknown, Why: "there is no CustomResourceDefinition " + r.Name() + " at home"}, nil
	case err != nil:
		return nil, fmt.Errorf("read the definition of %s: %w", r.Name(), err)
	}
	if scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope"); scope != "Namespaced" {
		return &Refusal{Reason: ClusterScoped, Why: "its objects are in no namespace"}, nil
	}
	var version map[string]any
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		if v["served"] == true && (v["name"] == r.Version || r.Version == "" && v["storage"] == true) {
			version = v
		}
	}
	if version == nil {
		return &Refusal{Reason: NotServed, Why: "home does not serve version " + r.Version}, nil
	}
	r.Version, _ = version["name"].(string)
	_, r.subresource, _ = unstructured.NestedMap(version, "subresources", "status")
	if r.spec.Definition == v1alpha1.AccessAllow {
		names, _, _ := unstructured.NestedMap(crd.Object, "spec", "names")
		r.definition, err = json.Marshal(map[string]any{"spec": map[string]any{"group": r.Group, "scope": "Namespaced", "names": names, "versions": []any{version}}})
		if err != nil || len(r.definition) > MaxDefinition {
			r.definition = nil
		}
	}
	return nil, nil
}

// goesTo reports whether the kind is meant for a peer.
func (r *rule) goesTo(peer string) bool {
	return len(r.spec.Peers) == 0 || slices.Contains(r.spec.Peers, peer)
}

// content is what of an object goes; nil: it stays.
func (r *rule) content(o *unstructured.Unstructured) (c *Content, no *Refusal) {
	if o == nil || o.GetDeletionTimestamp() != nil || !r.selector.Matches(labels.Set(o.GetLabels())) || o.GetLabels()[reflection.LabelReflect] == "false" {
		return nil, nil
	}
	fields := maps.Clone(o.Object)
	for _, own := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(fields, own)
	}
	if len(r.spec.Fields) > 0 {
		some := map[string]any{}
		for _, path := range r.spec.Fields {
			steps := strings.Split(path, ".")
			if v, there, err := unstructured.NestedFieldNoCopy(fields, steps...); there && err == nil {
				put(some, steps, v)
			}
		}
		fields = some
	}
	raw, err := json.Marshal(fields)
	switch {
	case err != nil:
		return nil, &Refusal{Reason: Invalid, Why: err.Error()}
	case len(raw) > MaxContent:
		return nil, &Refusal{Reason: TooLarge, Why: fmt.Sprintf("it has %d bytes, at most %d go", len(raw), MaxContent)}
	}
	if err := open.Check(raw, bound); err != nil { // the other end would hear no more
		return nil, &Refusal{Reason: TooLarge, Why: err.Error()}
	}
	sum := sha256.Sum256(raw)
	return &Content{Digest: hex.EncodeToString(sum[:16]), Content: raw}, nil
}

// put sets a field without changing what is shared with the object.
func put(into map[string]any, steps []string, v any) {
	for _, step := range steps[:len(steps)-1] {
		next, is := into[step].(map[string]any)
		if next = maps.Clone(next); !is {
			next = map[string]any{}
		}
		into[step] = next
		into = next
	}
	into[steps[len(steps)-1]] = v
}

// status is what home writes of a peer's status: generations in it are home's.
func status(raw json.RawMessage, there, here int64) (map[string]any, error) {
	fields, err := Fields(raw, MaxContent)
	if err != nil || fields == nil {
		return nil, err
	}
	observed := func(m map[string]any) {
		if g, is := m["observedGeneration"].(int64); is {
			m["observedGeneration"] = here
			if g < there {
				m["observedGeneration"] = max(here-1, 0)
			}
		}
	}
	observed(fields)
	conditions, _ := fields["conditions"].([]any)
	for _, c := range conditions {
		if c, is := c.(map[string]any); is {
			observed(c)
		}
	}
	return fields, nil
}
