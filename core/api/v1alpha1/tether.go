package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tethered says that this cluster, a company's, runs the laptop that the Peer is.
type Tethered struct {
	// policy is the name of the TetherPolicy under which it was accepted. The one that selects the peer at each moment counts.
	// +optional
	Policy string `json:"policy,omitempty"`
}

// TetherRole is which of the two this cluster is.
// +kubebuilder:validation:Enum=laptop;company
type TetherRole string

const (
	TetherLaptop  TetherRole = "laptop"  // the peer runs this laptop
	TetherCompany TetherRole = "company" // this cluster runs the peer
)

// The steps of a tether at a company.
const (
	TetherStepAccepted = "accepted" // the laptop is to be run; it was not asked for its node yet
	TetherStepJoining  = "joining"  // it is asked for its node
	TetherStepTethered = "tethered" // its node is there
	TetherStepLost     = "lost"     // its node was there, and does not answer, or its contract ended and it is asked again
	TetherStepRefused  = "refused"  // the laptop says that it is not tethered here any more (peering.CodeNotTethered): the tether ends
	TetherStepEnding   = "ending"   // it is given back: what runs there is brought away
)

// TetherStatus is how far a tether is.
type TetherStatus struct {
	// role of this cluster.
	Role TetherRole `json:"role"`
	// step that it is at. At a laptop: one of those of core/mode; at a company: accepted, joining, tethered, lost, refused, ending.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Step string `json:"step,omitempty"`
	// why, in one sentence for the user.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
	// since is the time of the last change of step.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// accepted is the spec.request.attempt to be run that the company said yes to (at a laptop only).
	// +optional
	Accepted int64 `json:"accepted,omitempty"`
	// user is who the laptop's users are to the company's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	User string `json:"user,omitempty"`
}

// TetherPolicySpec says which laptops may have this cluster run them, and what that means. Of the policies that select a peer the one
// with the highest priority counts, then the first by name. A peer that none selects cannot be tethered.
type TetherPolicySpec struct {
	// priority breaks ties; higher counts first.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// peers selects by cluster ID, or by the name of a Peer whose key was accepted here. Empty, with an empty peerSelector: everybody,
	// each after a yes of this cluster's owner unless autoAccept says otherwise.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	Peers []string `json:"peers,omitempty"`
	// peerSelector selects by labels of the Peer objects.
	// +optional
	PeerSelector *metav1.LabelSelector `json:"peerSelector,omitempty"`
	// autoAccept answers requests without asking the owner. It counts for peers whose key was accepted here, or whose ID is in peers.
	// +optional
	AutoAccept bool `json:"autoAccept,omitempty"`
	// namespaces are those in which the users of the laptop may work; none: they may not ask for anything.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Namespaces []LaptopNamespace `json:"namespaces,omitempty"`
	// node is what the node of the laptop carries besides what every peer's has.
	// +optional
	Node TetheredNode `json:"node,omitempty"`
}

// LaptopNamespace is a namespace in which the users of a laptop may work.
type LaptopNamespace struct {
	// name of the namespace; {laptop} in it stands for the name of the Peer. One that is not there is made (pod security level baseline), and
	// stays when the laptop goes: it holds running work. Laptops give themselves their names, so {laptop} means only a namespace
	// that was made for this very laptop, or has the label kith.dev/laptop with its ID in compact form.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[-a-z0-9]*(\{laptop\})?[-a-z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('kube-') && !self.startsWith('kith-')",message="namespaces of Kubernetes (kube-) and of Kith (kith-) are not for laptops"
	Name string `json:"name"`
	// clusterRole is what they may do there, the name of a ClusterRole. While there is none of that name, nothing.
	// +optional
	// +kubebuilder:default=edit
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'cluster-admin' && !self.startsWith('system:')",message="cluster-admin and the roles of Kubernetes' own parts (system:) are not for laptops: admin is the most"
	ClusterRole string `json:"clusterRole,omitempty"`
	// quota bounds what is in the namespace, as spec.hard of a ResourceQuota; none: no bound. Laptops that share the namespace share it.
	// +optional
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// offload: whether pods of the namespace may run on the nodes of peers, tethered laptops among them. A namespace that was there
	// before keeps what was said of it.
	// +optional
	// +kubebuilder:default=true
	Offload *bool `json:"offload,omitempty"`
}

// TetheredNode is what the node of a tethered laptop carries. It is put there once, and again when the policy says something else: what
// an administrator changes on the node by hand meanwhile stays. Keys of Kubernetes (kubernetes.io, k8s.io) and of Kith are refused. Besides,
// each has the label kith.dev/tethered=true. A DaemonSet runs on such nodes if its namespace is offloaded and its template tolerates
// kith.dev/tethered; select the label to run there alone.
type TetheredNode struct {
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a key must be that of a label: a name, or a domain, a slash and a name"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k == 'type' || k.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|kith[.]dev)/'))",message="keys of kubernetes.io, k8s.io and kith.dev are not for policies, nor is type"
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="!self.exists(t, ['kith.dev/', 'kubernetes.io/', 'k8s.io/', 'node.kubernetes.io/', 'node-role.kubernetes.io/', 'node.cloudprovider.kubernetes.io/'].exists(p, t.key.startsWith(p)))",message="keys of kubernetes.io, k8s.io and kith.dev are not for policies"
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.effect == 'NoSchedule' || t.effect == 'PreferNoSchedule' || t.effect == 'NoExecute')",message="the effect of a taint is NoSchedule, PreferNoSchedule or NoExecute"
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// ConditionRolesAllowed of a TetherPolicy is False while it names ClusterRoles that kithd may not give: users of laptops have nothing by
// these. It is True only where kithd was told which it may give (its key tetherClusterRoles): elsewhere Kubernetes decides of all but
// cluster-admin and the roles of its own parts.
const ConditionRolesAllowed = "RolesAllowed"

// Reasons of ConditionRolesAllowed.
const (
	ReasonAllRolesAllowed = "AllRolesAllowed"
	ReasonRoleNotAllowed  = "RoleNotAllowed"
)

// TetherPolicyStatus tells what of a TetherPolicy does not come about.
type TetherPolicyStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TetherPolicy is a company's word on which laptops its cluster runs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tetherpol,categories=kith
// +kubebuilder:printcolumn:name="Auto",type=boolean,JSONPath=`.spec.autoAccept`
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.namespaces[*].name`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TetherPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TetherPolicySpec   `json:"spec"`
	Status TetherPolicyStatus `json:"status,omitempty"`
}

// TetherPolicyList is a list of TetherPolicies.
// +kubebuilder:object:root=true
type TetherPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TetherPolicy `json:"items"`
}
