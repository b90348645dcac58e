package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PeeringPolicySpec says which peers are asked for what without a word of the owner each time. A question of a policy is one as `kith peer` asks it: the
// contract that comes of it is renewed, revised and ended as any other, and stays when the policy goes.
type PeeringPolicySpec struct {
	// paused: nothing is asked for now. Contracts and questions that are out stay.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// peers selects by cluster ID, or by the name of a Peer whose key was accepted here: anybody can call himself by a name. Who is named by his
	// whole ID is asked whether his key was accepted or not: the ID is compared with it.
	// Empty, with an empty peerSelector: each whose key was accepted here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	Peers []string `json:"peers,omitempty"`
	// peerSelector selects by labels of the Peer objects, of those whose key was accepted here.
	// +optional
	PeerSelector *metav1.LabelSelector `json:"peerSelector,omitempty"`
	// amounts that each peer is asked for, such as cpu "2". It may grant less. What is not named is up to the peer.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'pods', 'ephemeral-storage', 'storage'] || k.matches('^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$') || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && !k.startsWith('requests.') && (!k.endsWith('.storageclass.storage.k8s.io/requests.storage') || k.size() <= 108))",message="a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !self[k].contains('%'))",message="a peer is asked for an amount, such as 2 or 4Gi, not for a share of what it has"
	Amounts map[string]Amount `json:"amounts"`
	// maxPeers is with how many of the selected peers there is a contract under which this cluster consumes, or is about to be, whoever asked for it:
	// nobody else is asked while there are as many.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxPeers *int32 `json:"maxPeers,omitempty"`
	// maxPrices by resource: an offer within them is signed without a word of the owner on its prices, and one beyond them is not signed. What is not
	// named has to be free, and a price in another currency is beyond. Without any, an offer that has a price waits for the owner (`kith confirm`).
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	MaxPrices map[string]UnitPrice `json:"maxPrices,omitempty"`
}

// SeekingState is what a PeeringPolicy is about.
// +kubebuilder:validation:Enum=Paused;Tethered;Invalid;Enough;Asking;Waiting;Nobody
type SeekingState string

const (
	SeekingPaused   SeekingState = "Paused"
	SeekingTethered SeekingState = "Tethered" // another cluster decides what this laptop uses
	SeekingInvalid  SeekingState = "Invalid"  // its amounts cannot be asked for
	SeekingEnough   SeekingState = "Enough"   // there are as many contracts as it wants
	SeekingAsking   SeekingState = "Asking"   // a question is out
	SeekingWaiting  SeekingState = "Waiting"  // nobody is to be asked before the time in its message
	SeekingNobody   SeekingState = "Nobody"   // it selects nobody who can be reached
)

// SoughtReason is how a PeeringPolicy stands with a peer.
// +kubebuilder:validation:Enum=Contracted;Asked;Confirm;Declined;Expired;Ended;Unreachable;Next
type SoughtReason string

const (
	SoughtContracted  SoughtReason = "Contracted"
	SoughtAsked       SoughtReason = "Asked"       // it has not answered yet
	SoughtConfirm     SoughtReason = "Confirm"     // it accepted, and the owner here has to say a word on it: `kith confirm`
	SoughtDeclined    SoughtReason = "Declined"    // by it, or its offer here
	SoughtExpired     SoughtReason = "Expired"     // nobody answered in time, here or there
	SoughtEnded       SoughtReason = "Ended"       // the contract did, or the owner here took the question back
	SoughtUnreachable SoughtReason = "Unreachable" // it is asked when it can be reached
	SoughtNext        SoughtReason = "Next"        // it may be asked
)

// SoughtPeer is how a PeeringPolicy stands with a peer.
type SoughtPeer struct {
	// id of its cluster.
	ID string `json:"id"`
	// peer is its name as a Peer here.
	Peer string `json:"peer"`
	// reason is one of a closed set.
	Reason SoughtReason `json:"reason"`
	// message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// since is the time of the last change of the reason.
	Since metav1.Time `json:"since"`
	// attempt is the spec.request.attempt of the Peer by which the policy asked it last; 0: never.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`
	// tries in a row that came to nothing.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// until then it is not asked.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// PeeringPolicyStatus tells what was asked, and what came of it.
type PeeringPolicyStatus struct {
	// observedGeneration is that of the spec which the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	State SeekingState `json:"state,omitempty"`
	// message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// contracts are how many are in force with peers that it selects.
	// +optional
	Contracts int32 `json:"contracts"`
	// peers that it selects: those with which there was something first, then by name.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=128
	Peers []SoughtPeer `json:"peers,omitempty"`
}

// PeeringPolicy has this cluster ask peers for resources by itself. Without one nobody is asked but by the owner.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kith
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Contracts",type=integer,JSONPath=`.status.contracts`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxPeers`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PeeringPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PeeringPolicySpec `json:"spec"`
	// +optional
	Status PeeringPolicyStatus `json:"status,omitempty"`
}

// PeeringPolicyList is a list of PeeringPolicies.
// +kubebuilder:object:root=true
type PeeringPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PeeringPolicy `json:"items"`
}
