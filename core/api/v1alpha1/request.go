package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer to a PeeringRequest.
// +kubebuilder:validation:Enum=Pending;Accepted;Declined;Expired
type Answer string

const (
	AnswerPending  Answer = "Pending"
	AnswerAccepted Answer = "Accepted"
	AnswerDeclined Answer = "Declined"
	AnswerExpired  Answer = "Expired"
)

// PeeringRequestSpec is the question, written by the daemon and immutable.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a request is answered, not edited: set status.answer"
type PeeringRequestSpec struct {
	// peerID is the cluster ID proved by the peer's key in the TLS handshake.
	PeerID string `json:"peerID"`
	// peerName is the name the peer gives itself.
	PeerName string `json:"peerName"`
	// resources asked for.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// network: None, where the peer asks for a contract without a tunnel.
	// +optional
	Network Network `json:"network,omitempty"`
	// code is the six-digit pairing code that the peer's screen shows too; empty when its key was compared before.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{6})?$`
	Code string `json:"code,omitempty"`
	// tether: the peer asks to be run by this cluster, and not for resources.
	// +optional
	Tether bool `json:"tether,omitempty"`
	// expires is when the question lapses.
	Expires metav1.Time `json:"expires"`
	// address is the IP address that the question came from.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`
	// endpoints of the peer API of the peer, as it tells them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Endpoints []string `json:"endpoints,omitempty"`
}

// PeeringRequestStatus is the answer; whoever may write it decides.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.answer) || oldSelf.answer == 'Pending' || has(self.answer) && self.answer == oldSelf.answer",message="a request is answered once: have the peer ask again"
// +kubebuilder:validation:XValidation:rule="!has(self.answer) || self.answer != 'Accepted' || !has(self.grant) || !has(self.grant.refusal) || self.grant.refusal.size() == 0",message="nothing can be granted: status.grant.refusal says why"
type PeeringRequestStatus struct {
	// +optional
	// +kubebuilder:default=Pending
	Answer Answer `json:"answer,omitempty"`
	// answeredBy says who, in words: "owner", "policy default".
	// +optional
	AnsweredBy string `json:"answeredBy,omitempty"`
	// policy is the SharingPolicy that answered by itself, or, to a laptop that asks to be run, the TetherPolicy; none when the owner did.
	// +optional
	Policy string `json:"policy,omitempty"`
	// reason for a decline, shown to the peer.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// grant is what accepting gives the peer. While the request waits it is computed anew whenever a policy, the machine or a
	// contract changes; once it is accepted, the contract has no more than that.
	// +optional
	Grant *Grant `json:"grant,omitempty"`
}

// Grant is what accepting a request gives.
type Grant struct {
	// resources the peer gets, all of them; none when nothing can be granted.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// inForce are the resources it has already, by its contract in force; none without one.
	// +optional
	InForce corev1.ResourceList `json:"inForce,omitempty"`
	// network: None, where there would be no tunnel between the clusters: the peer asks for none, or the policy lets it have none.
	// +optional
	Network Network `json:"network,omitempty"`
	// refusal is why nothing can be granted.
	// +optional
	Refusal string `json:"refusal,omitempty"`
	// summary says it in words: "cpu 2, memory 4Gi, pods 20", of a change "cpu 1 → 2, memory 4Gi, pods 20".
	Summary string `json:"summary"`
}

// PeeringRequest is a peer's pending question for resources.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=preq,categories=kith
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.spec.peerName`
// +kubebuilder:printcolumn:name="Code",type=string,JSONPath=`.spec.code`
// +kubebuilder:printcolumn:name="Would get",type=string,JSONPath=`.status.grant.summary`
// +kubebuilder:printcolumn:name="Answer",type=string,JSONPath=`.status.answer`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PeeringRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PeeringRequestSpec `json:"spec"`
	// +optional
	Status PeeringRequestStatus `json:"status,omitempty"`
}

// PeeringRequestList is a list of PeeringRequests.
// +kubebuilder:object:root=true
type PeeringRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PeeringRequest `json:"items"`
}
