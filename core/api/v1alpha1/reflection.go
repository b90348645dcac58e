package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReflectedDirection says which way a custom resource goes.
// +kubebuilder:validation:Enum=Out;Both
type ReflectedDirection string

const (
	// ReflectOut: what it says goes to peers, and nothing comes back.
	ReflectOut ReflectedDirection = "Out"
	// ReflectBoth: its status comes back, too.
	ReflectBoth ReflectedDirection = "Both"
)

// ReflectedKind is a kind of custom resources whose objects go to the peers of their namespace.
type ReflectedKind struct {
	// group of the API, "example.com".
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:XValidation:rule="self != 'kith.dev' && self != 'apiextensions.k8s.io'",message="objects of Kith and definitions of kinds do not travel"
	Group string `json:"group"`
	// resource is its plural name in the API, "widgets".
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`
	// version that both clusters serve; without it, the one that home stores.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*$`
	Version string `json:"version,omitempty"`
	// direction: whether the status that the peer's cluster writes comes back.
	// +optional
	// +kubebuilder:default=Both
	Direction ReflectedDirection `json:"direction,omitempty"`
	// fields that go, with dots between their names: "spec.size". Without any, all but the status. Labels, annotations, finalizers and owners never go.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z_][-A-Za-z0-9_]*(\.[A-Za-z_][-A-Za-z0-9_]*)*$`
	// +kubebuilder:validation:XValidation:rule="self.all(f, !(f.split('.')[0] in ['metadata', 'status', 'apiVersion', 'kind']))",message="metadata and status do not go"
	Fields []string `json:"fields,omitempty"`
	// peers that it goes to, by name; without any, each that pods of the namespace may go to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Peers []string `json:"peers,omitempty"`
	// selector of the objects that go, by their labels; without it, all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// definition: whether a peer that does not know the kind is sent its CustomResourceDefinition, without conversion. It takes it where its owner lets it.
	// +optional
	// +kubebuilder:default=Deny
	Definition Access `json:"definition,omitempty"`
}

// ReflectionPolicySpec says which custom resources follow their namespaces to peers.
type ReflectionPolicySpec struct {
	// kinds by group and resource.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	Kinds []ReflectedKind `json:"kinds"`
}

// ReflectionRefusal is why a kind of a policy, or some of its objects, are not at a peer.
type ReflectionRefusal struct {
	// peer by name; empty when it is home that has no such kind.
	// +optional
	Peer string `json:"peer,omitempty"`
	// kind as RESOURCE.GROUP.
	Kind string `json:"kind"`
	// reason is one of a closed set: NotAllowed, Unknown, NotServed, ClusterScoped, TooMany, TooLarge, Invalid, NotOurs, Failed.
	Reason string `json:"reason"`
	// message for people; of objects, about the first.
	Message string `json:"message"`
	// objects that are refused; 0 is the kind as a whole.
	// +optional
	Objects int32 `json:"objects,omitempty"`
}

// ReflectionPolicyStatus tells what became of it.
type ReflectionPolicyStatus struct {
	// refusals of peers, and of home.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Refusals []ReflectionRefusal `json:"refusals,omitempty"`
}

// ReflectionPolicy has objects of custom kinds follow their namespaces to peers, where the owners there allow their kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kith
// +kubebuilder:printcolumn:name="Kinds",type=string,JSONPath=`.spec.kinds[*].resource`
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.refusals[*].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReflectionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ReflectionPolicySpec `json:"spec"`
	// +optional
	Status ReflectionPolicyStatus `json:"status,omitempty"`
}

// ReflectionPolicyList is a list of ReflectionPolicies.
// +kubebuilder:object:root=true
type ReflectionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReflectionPolicy `json:"items"`
}
