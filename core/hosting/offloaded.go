package hosting

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
)

// AnnotationGrace on an OffloadedPod, set by the consumer before it deletes it, is the grace period in
// whole seconds its Pod is deleted with; "0" deletes by force. The API server forgets
// DeleteOptions.gracePeriodSeconds for custom resources, hence this.
const AnnotationGrace = "kith.dev/grace-seconds"

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

// graceAsked is the grace period the consumer wants, nil for the pod's own.
func graceAsked(opod *v1alpha1.OffloadedPod) *int64 {
	s, err := strconv.ParseInt(opod.Annotations[AnnotationGrace], 10, 32)
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
