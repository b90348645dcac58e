package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	// grow has the policy ask for more while pods wait that would run at peers if there were room, and give it back later. Without it no more is
	// asked for than amounts.
	// +optional
	Grow *Grow `json:"grow,omitempty"`
}

// Grow says how far a PeeringPolicy goes when pods of this cluster wait for room.
type Grow struct {
	// maxAmounts are the most that one peer is asked for while pods wait, such as cpu "8". What is not named is not asked for beyond amounts.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'pods', 'ephemeral-storage', 'storage'] || k.matches('^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$') || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && !k.startsWith('requests.'))",message="a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !self[k].contains('%'))",message="a peer is asked for an amount, such as 2 or 4Gi, not for a share of what it has"
	MaxAmounts map[string]Amount `json:"maxAmounts"`
	// maxPeers is with how many of the selected peers there is a contract at most while pods wait; those beyond spec.maxPeers are ended when nothing
	// runs at them. Without it, spec.maxPeers: then those with which there is a contract are asked for more, and nobody else.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxPeers *int32 `json:"maxPeers,omitempty"`
	// giveBackAfter is for how long what pods need of a peer has to be the same, and less than it grants, before the rest is given back, from 1m to
	// 720h.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration from 1m to 720h"
	GiveBackAfter *metav1.Duration `json:"giveBackAfter,omitempty"`
}

// SeekingState is what a PeeringPolicy is about.
// +kubebuilder:validation:Enum=Paused;Tethered;Invalid;Enough;Asking;Waiting;Nobody;Growing;Full
type SeekingState string

const (
	SeekingPaused   SeekingState = "Paused"
	SeekingTethered SeekingState = "Tethered" // another cluster decides what this laptop uses
	SeekingInvalid  SeekingState = "Invalid"  // its amounts cannot be asked for
	SeekingEnough   SeekingState = "Enough"   // there are as many contracts as it wants
	SeekingAsking   SeekingState = "Asking"   // a question is out
	SeekingWaiting  SeekingState = "Waiting"  // nobody is to be asked before the time in its message
	SeekingNobody   SeekingState = "Nobody"   // it selects nobody who can be reached
	SeekingGrowing  SeekingState = "Growing"  // pods wait for room, and a peer is asked for more, or is about to be
	SeekingFull     SeekingState = "Full"     // pods wait for room, and nobody is to be asked for more before the time in its message, or within its limits
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
	// growth is how it stands with room beyond what it was asked for first (spec.grow).
	// +optional
	Growth *Growth `json:"growth,omitempty"`
}

// GrowthReason is how it stands with more room at a peer.
// +kubebuilder:validation:Enum=MoreAsked;ConfirmMore;MoreGranted;NotGranted;GivingBack;GaveBack;HoldsVolumes
type GrowthReason string

const (
	GrowthAsked      GrowthReason = "MoreAsked"    // it has not answered yet
	GrowthConfirm    GrowthReason = "ConfirmMore"  // it accepted, and the owner here has to say a word on it: `kith confirm`
	GrowthGranted    GrowthReason = "MoreGranted"  // all that was asked for
	GrowthNotGranted GrowthReason = "NotGranted"   // less than was asked for, or nothing: the message says why
	GrowthGivingBack GrowthReason = "GivingBack"   // it is asked for less
	GrowthGaveBack   GrowthReason = "GaveBack"     // it grants no more than is needed
	GrowthHeld       GrowthReason = "HoldsVolumes" // nothing runs there, and volumes are: the contract stays for their sake
)

// Growth is room at a peer that was asked for because pods waited.
type Growth struct {
	// reason is one of a closed set.
	Reason GrowthReason `json:"reason"`
	// message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// since is the time of the last change of the reason.
	Since metav1.Time `json:"since"`
	// attempt is the spec.request.attempt of the Peer by which the policy asked it last for more, or less.
	Attempt int64 `json:"attempt"`
	// base is what it granted, or was asked for, before: no less is given back.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Base corev1.ResourceList `json:"base,omitempty"`
	// extra: the contract itself was asked for because pods waited, and is ended when nothing runs there, and no volume is.
	// +optional
	Extra bool `json:"extra,omitempty"`
	// needed is what pods need there of that, where that is less than is granted.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Needed corev1.ResourceList `json:"needed,omitempty"`
	// neededSince is since when they need just that.
	// +optional
	NeededSince *metav1.Time `json:"neededSince,omitempty"`
	// tries in a row by which less was granted than was asked for.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// until then it is not asked for more, or less.
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
	// waiting are how many pods wait that would run at peers that it selects if there were room; with spec.grow only.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
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
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`,priority=1
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
