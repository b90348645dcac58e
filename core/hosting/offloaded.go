package hosting

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
)

// newOffloaded is an OffloadedPod as hosting reads it: without a Go type. The template's schema is open, so
// a consumer can write one no Go type takes, and a typed cache would then stop for every consumer.
func newOffloaded() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("OffloadedPod"))
	return u
}

// typed reads u into the Go type. With a malformed template it gives everything but the spec, and why.
func typed(u *unstructured.Unstructured) (*v1alpha1.OffloadedPod, *refusal) {
	opod := &v1alpha1.OffloadedPod{}
	if field := outlandish(u.Object["spec"], "spec"); field != "" {
		bare := u.DeepCopy()
		delete(bare.Object, "spec")
		opod, _ = typed(bare)
		return opod, refused(reasonInvalid, "%s is no amount of anything", field)
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, opod)
	if err == nil {
		return opod, nil
	}
	bare := map[string]any{"metadata": u.Object["metadata"], "status": u.Object["status"]}
	opod = &v1alpha1.OffloadedPod{}
	if bareErr := runtime.DefaultUnstructuredConverter.FromUnstructured(bare, opod); bareErr != nil {
		opod.Name, opod.Namespace, opod.UID = u.GetName(), u.GetNamespace(), u.GetUID()
	}
	return opod, refused(reasonInvalid, "spec.template is not a pod template: %v", err)
}

// outlandish names the first amount in a pod template that must not be parsed. Amounts are where a pod's spec has them.
func outlandish(v any, at string) string {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			field := at + "." + key
			text, isText := v[key].(string)
			switch list, isList := v[key].(map[string]any); {
			case isList && (key == "requests" || key == "limits" || key == "overhead"):
				for _, name := range slices.Sorted(maps.Keys(list)) {
					if q, ok := list[name].(string); ok && !v1alpha1.PlainAmount(q) {
						return cut(field+"."+name, 200)
					}
				}
			case isText && (key == "sizeLimit" || key == "divisor") && !v1alpha1.PlainAmount(text):
				return cut(field, 200)
			default:
				if bad := outlandish(v[key], field); bad != "" {
					return bad
				}
			}
		}
	case []any:
		for i := range v {
			if bad := outlandish(v[i], fmt.Sprintf("%s[%d]", at, i)); bad != "" {
				return bad
			}
		}
	}
	return ""
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

func keyOf(opod *v1alpha1.OffloadedPod) string {
	return fmt.Sprintf("%s/%s", opod.Namespace, opod.Name)
}
