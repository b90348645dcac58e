package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NamespaceMapping says how the twin namespace is named.
// +kubebuilder:validation:Enum=Default;SameName
type NamespaceMapping string

const (
	// MappingDefault appends the consumer's short ID to the home name.
	MappingDefault NamespaceMapping = "Default"
	// MappingSameName keeps the home name where the provider's policy allows it and the name is free there, or refuses.
	MappingSameName NamespaceMapping = "SameName"
)

// PodStrategy says where the pods of an offloaded namespace may run.
// +kubebuilder:validation:Enum=LocalAndRemote;Remote;Local
type PodStrategy string

const (
	StrategyLocalAndRemote PodStrategy = "LocalAndRemote"
	StrategyRemote         PodStrategy = "Remote"
	StrategyLocal          PodStrategy = "Local"
)

// VolumePlace says where the volumes of claims in an offloaded namespace may be.
// +kubebuilder:validation:Enum=Home;Anywhere
type VolumePlace string

const (
	// VolumesHome: claims, and pods that have any, stay at home.
	VolumesHome VolumePlace = "Home"
	// VolumesAnywhere: a claim of the class kith (StorageClassName) is where its first pod goes, at home or at a peer, and its pods stay there.
	VolumesAnywhere VolumePlace = "Anywhere"
)

// BudgetPeriod is what a budget is for. Hours, days, weeks from Monday on, and months are those of UTC.
// +kubebuilder:validation:Enum=Hour;Day;Week;Month
type BudgetPeriod string

const (
	BudgetHour  BudgetPeriod = "Hour"
	BudgetDay   BudgetPeriod = "Day"
	BudgetWeek  BudgetPeriod = "Week"
	BudgetMonth BudgetPeriod = "Month"
)

// NamespaceBudget bounds what new pods of a namespace may cost at peers.
type NamespaceBudget struct {
	// amount, and the currency of the prices it is for: "5 EUR". Peers that are priced in another currency get no pods.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[0-9]{1,12}(\.[0-9]{1,9})? [A-Za-z]{1,16}$`
	Amount string       `json:"amount"`
	Period BudgetPeriod `json:"period"`
}

// BudgetState says how far a budget is spent.
// +kubebuilder:validation:Enum=Within;Nearly;Spent
type BudgetState string

const (
	BudgetWithin BudgetState = "Within"
	BudgetNearly BudgetState = "Nearly" // four fifths of it
	BudgetSpent  BudgetState = "Spent"
)

// ClosedReason says why a budget closes a peer.
// +kubebuilder:validation:Enum=Spent;OtherCurrency
type ClosedReason string

const (
	ClosedSpent         ClosedReason = "Spent"
	ClosedOtherCurrency ClosedReason = "OtherCurrency"
)

// ClosedPeer is a peer to which a budget lets no more pods go.
type ClosedPeer struct {
	// +kubebuilder:validation:MaxLength=63
	Peer   string       `json:"peer"`
	Reason ClosedReason `json:"reason"`
}

// BudgetStatus tells how a budget stands.
type BudgetStatus struct {
	// The budget that this is about.
	NamespaceBudget `json:",inline"`
	// spent of it since the period began, as receipts and this cluster's own count say, within a hundredth of the amount.
	// +kubebuilder:validation:MaxLength=64
	Spent string      `json:"spent"`
	Since metav1.Time `json:"since"`
	Until metav1.Time `json:"until"`
	State BudgetState `json:"state"`
	// closed are the peers to which no more pods go now.
	// +optional
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MaxItems=1024
	Closed []ClosedPeer `json:"closed,omitempty"`
}

// WhenAsleep says what becomes of pods at a peer whose laptop goes to sleep.
// +kubebuilder:validation:Enum=Wait;Move
type WhenAsleep string

const (
	// AsleepWait: pods that are made from then on wait at a node that is not ready however long that takes, unless they say otherwise.
	AsleepWait WhenAsleep = "Wait"
	// AsleepMove: those that a controller makes again are evicted.
	AsleepMove WhenAsleep = "Move"
)

// NamespaceOffloadingName is the only name a NamespaceOffloading may have: there is one per namespace.
const NamespaceOffloadingName = "offloading"

// NamespaceOffloadingSpec says where the pods of the namespace may run.
type NamespaceOffloadingSpec struct {
	// +optional
	// +kubebuilder:default=Default
	Mapping NamespaceMapping `json:"mapping,omitempty"`
	// +optional
	// +kubebuilder:default=LocalAndRemote
	Strategy PodStrategy `json:"strategy,omitempty"`
	// peers the pods may go to, by name; empty: every peer there is a contract with.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Peers []string `json:"peers,omitempty"`
	// volumes says where the volumes of claims may be.
	// +optional
	// +kubebuilder:default=Home
	Volumes VolumePlace `json:"volumes,omitempty"`
	// spread has new pods that say nothing of it (topologySpreadConstraints) spread over home and its peers, each of which is a zone, as far as there is
	// room: the scheduler alone sees a peer as one node, and may fill the largest.
	// +optional
	Spread bool `json:"spread,omitempty"`
	// network: None says that pods of the namespace need no network but the internet, and may go to peers to which there is none (contracts without a
	// tunnel). Without it they stay away from these, unless they select such nodes (kith.dev/network: none) or tolerate their taint themselves.
	// +optional
	Network Network `json:"network,omitempty"`
	// budget bounds what pods of the namespace may cost at peers: when it is spent, no more of them go to peers at a price until its period ends.
	// +optional
	Budget *NamespaceBudget `json:"budget,omitempty"`
	// whenAsleep says what becomes of pods at a peer whose laptop goes to sleep. Without it they wait for as long as for any node that is not ready,
	// which their tolerations say: five minutes, unless they say otherwise.
	// +optional
	WhenAsleep WhenAsleep `json:"whenAsleep,omitempty"`
}

// NamespaceOffloadingStatus tells what became of it.
type NamespaceOffloadingStatus struct {
	// twins per peer.
	// +optional
	// +listType=map
	// +listMapKey=peer
	Twins []PeerNamespace `json:"twins,omitempty"`
	// budget tells how it stands.
	// +optional
	Budget *BudgetStatus `json:"budget,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PeerNamespace is the twin namespace at one peer.
type PeerNamespace struct {
	Peer      string `json:"peer"`
	Namespace string `json:"namespace"`
}

// NamespaceOffloading lets the pods of its namespace run at peers.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nso,categories=kith
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="there is one NamespaceOffloading per namespace, named offloading"
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Mapping",type=string,JSONPath=`.spec.mapping`
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceOffloading struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NamespaceOffloadingSpec `json:"spec,omitempty"`
	// +optional
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceOffloadingList is a list of NamespaceOffloadings.
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceOffloading `json:"items"`
}

// OffloadedPodSpec is a pod that a consumer wants to run here.
// +kubebuilder:validation:XValidation:rule="self.homeNamespace == oldSelf.homeNamespace && self.homeUID == oldSelf.homeUID",message="an OffloadedPod belongs to one pod at home for ever"
// +kubebuilder:validation:XValidation:rule="has(self.via) == has(oldSelf.via) && (!has(self.via) || self.via == oldSelf.via)",message="an OffloadedPod belongs to who is to run it for ever"
// +kubebuilder:validation:XValidation:rule="has(self.chain) == has(oldSelf.chain) && (!has(self.chain) || self.chain == oldSelf.chain)",message="an OffloadedPod belongs to the clusters of its chain for ever"
type OffloadedPodSpec struct {
	// homeNamespace and homeUID name the pod at the consumer; its name is the OffloadedPod's.
	// +kubebuilder:validation:MaxLength=63
	HomeNamespace string    `json:"homeNamespace"`
	HomeUID       types.UID `json:"homeUID"`
	// chain says for whom the pod is, where the consumer offers on what this cluster grants it: the clusters by which it came, the first of them its
	// home. Empty: it is the consumer's own. The consumer says it, and proves nothing of it but that it is itself who says so.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Chain []ChainLink `json:"chain,omitempty"`
	// via is who is to run the pod, where this cluster tells the consumer of each provider whose grant it offers on: the cluster ID of one of these, or
	// this cluster's own. Empty: whoever has room.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Via string `json:"via,omitempty"`
	// template is the pod's metadata (labels, annotations) and spec as at home, less what cannot mean
	// anything abroad. The provider checks and completes it.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template corev1.PodTemplateSpec `json:"template"`
}

// ChainLink is one of the clusters by which a pod came.
type ChainLink struct {
	// cluster is its ID.
	// +kubebuilder:validation:MaxLength=128
	Cluster string `json:"cluster"`
	// name by which the next one knows it: a hint.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// contract under which it sent the pod on to the next one.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{8,32}$`
	Contract string `json:"contract"`
	// namespace of the pod in it.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// OffloadedPodStatus is the provider's answer. The running pod's own status is read from the Pod of
// the same name and namespace.
type OffloadedPodStatus struct {
	// phase: Accepted once the Pod was made, Refused when policy, security level or contract forbid it
	// (see reason and message), Succeeded or Failed once it ended for good.
	// +optional
	// +kubebuilder:validation:Enum=Accepted;Refused;Succeeded;Failed
	Phase OffloadedPodPhase `json:"phase,omitempty"`
	// reason is a word in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is for the owner of the pod.
	// +optional
	Message string `json:"message,omitempty"`
	// podUID is the UID of the Pod made last.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// remade counts how often a lost Pod was made again.
	// +optional
	Remade int32 `json:"remade,omitempty"`
	// conditions are there while something is not as the template says: PodResizePending while other amounts are refused
	// (reason Deferred or Infeasible, as on a Pod, KEP-1287), EphemeralContainersRefused while some may not be added.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// final is the status of the Pod when it ended for good, kept because the Pod itself may be cleared away.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Final *corev1.PodStatus `json:"final,omitempty"`
}

// Conditions of an OffloadedPod.
const (
	ConditionResizePending              = string(corev1.PodResizePending)
	ConditionEphemeralContainersRefused = "EphemeralContainersRefused"
)

// OffloadedPodPhase is where an OffloadedPod stands.
type OffloadedPodPhase string

const (
	OffloadedPodAccepted  OffloadedPodPhase = "Accepted"
	OffloadedPodRefused   OffloadedPodPhase = "Refused"
	OffloadedPodSucceeded OffloadedPodPhase = "Succeeded"
	OffloadedPodFailed    OffloadedPodPhase = "Failed"
)

// OffloadedPod is a pod wanted by a consumer, in one of its tenant namespaces. The provider turns it into a
// Pod of the same name and keeps that alive whether the consumer is reachable or not.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=opod,categories=kith
// +kubebuilder:printcolumn:name="Consumer",type=string,JSONPath=`.metadata.labels.kith\.dev/consumer-name`
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.spec.homeNamespace`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Remade",type=integer,JSONPath=`.status.remade`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OffloadedPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OffloadedPodSpec `json:"spec"`
	// +optional
	Status OffloadedPodStatus `json:"status,omitempty"`
}

// OffloadedPodList is a list of OffloadedPods.
// +kubebuilder:object:root=true
type OffloadedPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OffloadedPod `json:"items"`
}

// Ended reports whether a pod in that phase has ended for good: none of its containers runs, or will be started again.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
