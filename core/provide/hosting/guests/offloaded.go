package guests

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/codec"
)

// NewOffloaded is an OffloadedPod as hosting reads it: without a Go type. The template's schema is open, so
// a consumer can write one no Go type takes, and a typed cache would then stop for every consumer.
func NewOffloaded() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("OffloadedPod"))
	return u
}

// A template is kept as the text it came in: as values of any type it would take many times its bytes, in a cache that holds
// those of all consumers, and it is only read when its pod is made or changed.
const templateText = "template"

// Textual makes the template of an OffloadedPod a text, for the cache. It must not be written back like that: see whole.
func Textual(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok { // a tombstone
		return o, nil
	}
	u.SetManagedFields(nil)
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok {
		return o, nil
	}
	template, ok := spec[templateText].(map[string]any)
	if !ok {
		return o, nil
	}
	text, err := json.Marshal(template)
	if err != nil {
		return o, nil //nolint:nilerr // of values that came as JSON it does not fail
	}
	spec[templateText] = string(text)
	return o, nil
}

// Whole is a copy of u for the API server, with its template as an object again.
func Whole(u *unstructured.Unstructured) *unstructured.Unstructured {
	next := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	spec, ok := next.Object["spec"].(map[string]any)
	if !ok {
		return next
	}
	if text, ok := spec[templateText].(string); ok {
		spec = maps.Clone(spec)
		spec[templateText] = json.RawMessage(text)
		next.Object["spec"] = spec
	}
	return next
}

// Shapes of what is read of an OffloadedPod.
var templateShape = codec.Types().Of(reflect.TypeFor[corev1.PodTemplateSpec]())

// typed reads u into the Go type. With a malformed template, or one that costs too much, it gives everything but that, and why.
func typed(u *unstructured.Unstructured) (*v1alpha1.OffloadedPod, *grants.Refusal) {
	bare := map[string]any{"metadata": u.Object["metadata"], "status": u.Object["status"]}
	spec, isObject := u.Object["spec"].(map[string]any)
	if isObject {
		bare["spec"] = map[string]any{"homeNamespace": spec["homeNamespace"], "homeUID": spec["homeUID"], "chain": spec["chain"], "via": spec["via"]}
	}
	opod := &v1alpha1.OffloadedPod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(bare, opod); err != nil {
		opod = &v1alpha1.OffloadedPod{}
		opod.Name, opod.Namespace, opod.UID = u.GetName(), u.GetNamespace(), u.GetUID()
		return opod, grants.Refused(grants.ReasonInvalid, "%v", err)
	}
	if !isObject && u.Object["spec"] != nil {
		return opod, grants.Refused(grants.ReasonInvalid, "spec must be an object")
	}
	text, err := textOf(spec[templateText])
	if err == nil {
		err = templateShape.Check(text, door.BodyBound)
	}
	if err == nil {
		err = door.Read(text, &opod.Spec.Template)
	}
	if at := (*wire.Error)(nil); errors.As(err, &at) && at.Field != "" {
		return opod, grants.Refused(grants.ReasonInvalid, "spec.template.%v", at)
	}
	if err != nil {
		opod.Spec.Template = corev1.PodTemplateSpec{}
		return opod, grants.Refused(grants.ReasonInvalid, "spec.template is not a pod template that is taken: %v", err)
	}
	return opod, nil
}

// textOf a template, in whichever form.
func textOf(template any) ([]byte, error) {
	switch template := template.(type) {
	case string:
		return []byte(template), nil
	case json.RawMessage:
		return template, nil
	case nil:
		return []byte("{}"), nil
	}
	return json.Marshal(template)
}

// graceAsked is the grace period the consumer wants, nil for the pod's own.
func graceAsked(opod *v1alpha1.OffloadedPod) *int64 {
	s, err := strconv.ParseInt(opod.Annotations[v1alpha1.AnnotationGrace], 10, 32)
	if err != nil || s < 0 {
		return nil
	}
	return ptr.To(s)
}

func held(opod *v1alpha1.OffloadedPod) bool {
	return slices.Contains(opod.Finalizers, v1alpha1.FinalizerOffloadedPod)
}
