package reflection

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/kinds"
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
)

// item is one object at home that may have to be abroad.
type item struct {
	kind            *kinds.Kind // one that is reflected, or Pod: of a pod that has something of its own there is a Secret abroad, its companion
	namespace, name string
}

// itemOf is what an object abroad, one that was made here, stands for.
func itemOf(k *kinds.Kind, home string, o metav1.Object) item {
	if pod := o.GetAnnotations()[annotationPod]; k == kinds.Secret && pod != "" {
		return item{kinds.Pod, home, pod}
	}
	return item{k, home, o.GetName()}
}

// atHome is the item at home that it stands for: itself, but for the twin of the API server's Service, of which there is one in each twin
// namespace.
func (it item) atHome() item {
	if it.name == kinds.APIServerAbroad && slices.Contains(ofAPIServer, it.kind) {
		return item{it.kind, metav1.NamespaceDefault, kinds.APIServer}
	}
	return it
}

// ofAPIServer are the kinds by which pods find the API server.
var ofAPIServer = []*kinds.Kind{kinds.Service, kinds.EndpointSlice}

// abroad is the kind of the object at the peer: a pod's is its companion, a Secret.
func (it item) abroad() *kinds.Kind {
	if it.kind == kinds.Pod {
		return kinds.Secret
	}
	return it.kind
}
