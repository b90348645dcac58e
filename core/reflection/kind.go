package reflection

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

const (
	// LabelReflect on an object at home: "true" sends a ConfigMap or Secret to every peer its namespace has a twin at,
	// referred to or not; "false" keeps an object of any reflected kind at home.
	LabelReflect = "kith.dev/reflect"
	// FieldOwner of everything written abroad.
	FieldOwner = "kith-reflection"

	// annotationPod on a Secret abroad names the pod it was made for.
	annotationPod    = "kith.dev/pod"
	annotationPodUID = "kith.dev/pod-uid"
	// annotationFields is the stamp of the fields of the downward API in it.
	annotationFields = "kith.dev/pod-fields"
	// annotationRenew tells when the tokens in the Secret have to be made anew, RFC 3339.
	annotationRenew = "kith.dev/renew-at"

	sliceManager = "kith.dev"
)

// kind of what is reflected. Companions are Secrets abroad only: one for each pod that has something of its own.
type kind string

const (
	kindService   kind = "Service"
	kindSlice     kind = "EndpointSlice"
	kindConfigMap kind = "ConfigMap"
	kindSecret    kind = "Secret"
	kindPod       kind = "Pod"
)

// kindsAbroad are the kinds of the objects abroad.
var kindsAbroad = []kind{kindService, kindSlice, kindConfigMap, kindSecret}

func (k kind) gvk() schema.GroupVersionKind {
	if k == kindSlice {
		return discoveryv1.SchemeGroupVersion.WithKind(string(k))
	}
	return corev1.SchemeGroupVersion.WithKind(string(k))
}

func (k kind) gvr() schema.GroupVersionResource {
	name := map[kind]string{kindService: "services", kindSlice: "endpointslices", kindConfigMap: "configmaps", kindSecret: "secrets", kindPod: "pods"}[k]
	return k.gvk().GroupVersion().WithResource(name)
}

// abroad is the kind of the object at the peer.
func (k kind) abroad() kind {
	if k == kindPod {
		return kindSecret
	}
	return k
}

// item is one object at home that may have to be abroad.
type item struct {
	kind            kind
	namespace, name string
}

// itemOf is what an object abroad, one that was made here, stands for.
func itemOf(k kind, home string, o metav1.Object) item {
	if pod := o.GetAnnotations()[annotationPod]; k == kindSecret && pod != "" {
		return item{kindPod, home, pod}
	}
	return item{k, home, o.GetName()}
}

// marked gives the metadata of an object abroad: none of the labels and annotations of home, by which controllers at the
// peer could be made to act.
func marked(twin, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: twin, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
}

// typed sets what server-side apply wants to see.
func typed(k kind, o client.Object) client.Object {
	o.GetObjectKind().SetGroupVersionKind(k.abroad().gvk())
	return o
}
