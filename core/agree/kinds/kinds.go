package kinds

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

// Object is one of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Direction is which way objects of a kind go.
type Direction string

const (
	Out  Direction = "out"  // the consumer writes them at the provider
	Back Direction = "back" // the provider makes them, the consumer reads
	Both Direction = "both" // spec out, status back
)

// Kind is one row of the table.
type Kind struct {
	Name      string // as in an object's kind
	Resource  schema.GroupVersionResource
	Type      Object // one without content
	Direction Direction

	// The provider's side.

	// Quota is how many a twin may hold.
	Quota Quota
	// MetadataPolicy names the admission policy that holds its metadata (metadataRules). Kinds of a group may share one; a kind
	// without has rules of its own.
	MetadataPolicy string
	// Bounds are more admission policies, for this kind alone.
	Bounds []Bound
	// Check validates a request body of a consumer, whose decoding cost was checked before; nil: no more checks. media is its content type.
	// weight is what it costs the provider besides its length, in bytes, also when it is refused.
	Check func(media string, body []byte) (weight int64, err error)

	// Here translates the consumer's addresses in a body that passed Check to those used at the provider; nil: the kind has none.
	Here func(body []byte, t netplan.Translation) ([]byte, error)

	// The consumer's side, of kinds that are reflected: those with Map.

	// ByReference: it goes only to peers where a pod refers to it, and no more than its metadata is held at home. Others go
	// wherever their namespace has a twin.
	ByReference bool
	// Informer watches the objects of home, of kinds that are held whole there. By name rather than by ForResource: that links the
	// clients of all API groups, a tenth of kithd.
	Informer func(informers.SharedInformerFactory) cache.SharedIndexInformer
	// Stays reports whether an object makes sense only in its own cluster and is not reflected; nil: all are.
	Stays func(home metav1.Object) bool
	// Map gives the object to write abroad, or the reason why there is none. It must not change home.
	Map func(home Object, there *There) (abroad Object, why string)
	// Depends gives a short key of everything that the object abroad depends on besides the one at home: Map runs again when the key
	// changes. nil: it depends on nothing else.
	Depends func(home Object, there *There) string
	// OfPods: it depends on which pods are healthy, so a change of that reconciles it.
	OfPods bool
	// TakeOut removes from got, which others may have changed, what a server-side apply of want leaves in it although want does
	// not name it, and reports whether there was any; nil: there never is.
	TakeOut func(got, want Object) (found bool)
}

// Quota is a limit of objects: Most, plus PerPod for each pod granted by the contract. Without a Name there is no limit.
type Quota struct {
	Name         corev1.ResourceName // in a ResourceQuota
	Most, PerPod int64
}

// There is what a mapping knows of the peer.
type There struct {
	Twin string // the namespace there
	Plan int    // counts the changes of Reaches and Seen
	// Reaches reports whether guests at the peer reach an address as home uses it: that of a pod at home, or of a guest anywhere.
	Reaches func(netip.Addr) bool
	// IPv6 reports that guests there have addresses of both families.
	IPv6 bool
	// NodeOf names the peer's node of an endpoint that is a guest; empty when it is none, or its node is not known.
	NodeOf func(*discoveryv1.Endpoint) string
	// Seen gives a slice the conditions that its endpoints have for pods at the peer.
	Seen func(home *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice
	// Healthy counts the ready pods of the home namespace that the selector takes: those at the peer, and the others.
	Healthy func(labels.Selector) (guests, elsewhere int32)
	// LeftOut counts endpoints that the peer cannot reach. It is an answer of Map.
	LeftOut int
}

// All is the table.
var All = []*Kind{OffloadedPod, Pod, Event, Service, ConfigMap, Secret, EndpointSlice, PodDisruptionBudget}

// Reflected are the kinds that pods abroad need besides themselves, of which reflection keeps the twins.
func Reflected() []*Kind { return which(func(k *Kind) bool { return k.Map != nil }) }

// Written are the kinds that consumers write at a provider.
func Written() []*Kind { return which(func(k *Kind) bool { return k.Direction != Back }) }

func which(wanted func(*Kind) bool) []*Kind {
	return slices.DeleteFunc(slices.Clone(All), func(k *Kind) bool { return !wanted(k) })
}

// Groups are the API groups with their versions besides core/v1, in their order.
func Groups() []string {
	var all []string
	for _, k := range All {
		if k.Resource.Group != "" {
			all = append(all, k.Resource.GroupVersion().String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (k *Kind) String() string { return k.Name }

// GVK is the kind with its group and version.
func (k *Kind) GVK() schema.GroupVersionKind { return k.Resource.GroupVersion().WithKind(k.Name) }

// New makes an object without content.
func (k *Kind) New() Object { return k.Type.DeepCopyObject().(Object) }

// Custom reports whether it is one of Kith's own, which API servers decode as a custom resource.
func (k *Kind) Custom() bool { return k.Resource.Group == v1alpha1.GroupVersion.Group }

// Path is where an API server has the objects of a namespace; metav1.NamespaceAll is all of them.
func (k *Kind) Path(namespace string) []string {
	path := []string{"/apis/" + k.Resource.GroupVersion().String()}
	if k.Resource.Group == "" {
		path[0] = "/api/" + k.Resource.Version
	}
	if namespace != metav1.NamespaceAll {
		path = append(path, "namespaces", namespace)
	}
	return append(path, k.Resource.Resource)
}

// Marked gives the metadata of an object abroad: none of the labels and annotations of home, by which controllers at the
// peer could be made to act.
func Marked(twin, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: twin, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
}

// mapping is a Map for objects of one Go type.
func mapping[T Object](to func(home T, there *There) (abroad T, why string)) func(Object, *There) (Object, string) {
	return func(home Object, there *There) (Object, string) {
		abroad, why := to(home.(T), there)
		if why != "" {
			return nil, why
		}
		return abroad, ""
	}
}

// takingOut is a TakeOut for objects of one Go type.
func takingOut[T Object](from func(got, want T) bool) func(got, want Object) bool {
	return func(got, want Object) bool { return from(got.(T), want.(T)) }
}

// read decodes like the API server, which takes names of fields in one case only.
func read(body []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(body, into) }
