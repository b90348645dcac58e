package kinds

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
)

// OffloadedPod, Pod and Event are the kinds of the pods themselves: virtualnode brings them, and is told of them.
var (
	OffloadedPod = &Kind{
		Name: "OffloadedPod", Resource: v1alpha1.GroupVersion.WithResource("offloadedpods"), Type: &v1alpha1.OffloadedPod{}, Direction: Both,
		Bounds: []Bound{{Name: "tenants-pods", Rules: ownRules}}, Check: checkOffloaded,
	}
	Pod = &Kind{
		Name: "Pod", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Type: &corev1.Pod{}, Direction: Back,
		Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Pods().Informer()
		},
	}
	Event = &Kind{Name: "Event", Resource: corev1.SchemeGroupVersion.WithResource("events"), Type: &corev1.Event{}, Direction: Back}
)

// EventsOf are the kinds whose objects at a provider, besides pods, have their events told at home: what a pod there needs of home. It is a list of
// names of home's own objects; others are the provider's. A disruption budget there counts pods of its own, so its events say nothing of home's.
var EventsOf = []string{"PersistentVolumeClaim", Service.Name, ConfigMap.Name, Secret.Name}

// podRights: WebSocket exec, attach and port-forward are a get and, since Kubernetes 1.35, a create as well (KEP-4006 and its
// authorization follow-up).
var podRights = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
}

// ownRules hold for the metadata of an OffloadedPod: there is nothing on it but what is Kith's, or the cluster's own.
var ownRules = []Rule{
	{`!has(object.metadata.ownerReferences) || size(object.metadata.ownerReferences) == 0`, "metadata.ownerReferences: are not taken"},
	{fmt.Sprintf(`!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, f == %q || oldObject != null && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers)`, v1alpha1.FinalizerOffloadedPod),
		"metadata.finalizers: others than kith.dev/pod are not taken"},
	{`!has(object.metadata.labels) || object.metadata.labels.all(k, k.startsWith("kith.dev/") || oldObject != null && has(oldObject.metadata.labels) && k in oldObject.metadata.labels && oldObject.metadata.labels[k] == object.metadata.labels[k])`,
		"metadata.labels: others than those of kith.dev are not taken"},
	{`!has(object.metadata.annotations) || object.metadata.annotations.all(k, k.startsWith("kith.dev/") || oldObject != null && has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations && oldObject.metadata.annotations[k] == object.metadata.annotations[k])`,
		"metadata.annotations: others than those of kith.dev are not taken"},
	marksRule, writersRule,
}

// checkOffloaded: a template is sent whole. Patch by patch a pod could be made of what no single body may be.
func checkOffloaded(media string, body []byte) (int64, error) {
	if media == runtime.ContentTypeJSON {
		return 0, nil
	}
	var fields map[string]json.RawMessage
	if err := read(body, &fields); err != nil {
		return 0, err
	}
	for field := range fields {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) {
			return 0, fmt.Errorf("%.64s: of an OffloadedPod only the metadata can be patched; write it whole", field)
		}
	}
	return 0, nil
}
