package v1alpha1

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdvertisementSpec is an offer as the provider sent it.
type AdvertisementSpec struct {
	// peer is the name of the Peer that offers.
	Peer string `json:"peer"`
	// resources offered.
	Resources corev1.ResourceList `json:"resources"`
	// storageClasses that may be used.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []string `json:"storageClasses,omitempty"`
	// nodeLabels the virtual node gets, for example kubernetes.io/arch.
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// podSecurity is the pod security level (KEP-2579) guests are held to.
	// +optional
	PodSecurity PodSecurityLevel `json:"podSecurity,omitempty"`
	// prices per unit and hour, as in spec.prices of the provider's SharingPolicy; empty means free.
	// +optional
	Prices map[string]string `json:"prices,omitempty"`
	// keepVolumes is how long the data of volumes is kept there after the end, where storage is offered.
	// +optional
	KeepVolumes *metav1.Duration `json:"keepVolumes,omitempty"`
	// notice is how long before it the provider tells that it lowers what it grants; without it, it does not while a contract is in force.
	// +optional
	Notice *metav1.Duration `json:"notice,omitempty"`
	// wake is how often within a day its machine may be woken; without it, never.
	// +optional
	Wake int32 `json:"wake,omitempty"`
	// reoffer: what is offered may be offered on to others.
	// +optional
	Reoffer bool `json:"reoffer,omitempty"`
	// network: None, where it is offered without a tunnel.
	// +optional
	Network Network `json:"network,omitempty"`
	// validUntil is when the offer lapses unless it became a contract.
	ValidUntil metav1.Time `json:"validUntil"`
}

// Advertisement is the offer a consumer received.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=adv,categories=kith
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.spec.peer`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.resources.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resources.memory`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.resources.pods`
// +kubebuilder:printcolumn:name="Valid until",type=string,JSONPath=`.spec.validUntil`
type Advertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AdvertisementSpec `json:"spec"`
}

// AdvertisementList is a list of Advertisements.
// +kubebuilder:object:root=true
type AdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Advertisement `json:"items"`
}

// Role is the part this cluster plays in a contract.
// +kubebuilder:validation:Enum=Consumer;Provider
type Role string

const (
	RoleConsumer Role = "Consumer"
	RoleProvider Role = "Provider"
)

// ContractSpec is what both signed. A changed amount is a new revision, signed again.
// +kubebuilder:validation:XValidation:rule="self.id == oldSelf.id && self.role == oldSelf.role && self.peer == oldSelf.peer",message="a contract keeps its id, role and peer"
// +kubebuilder:validation:XValidation:rule="self.revision >= oldSelf.revision",message="a contract's revision never goes back"
// +kubebuilder:validation:XValidation:rule="self.revision > oldSelf.revision || self.document == oldSelf.document",message="signed bytes change only with a new revision"
type ContractSpec struct {
	// id is the contract's own ID, chosen by the consumer.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{8,32}$`
	ID string `json:"id"`
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`
	Role     Role  `json:"role"`
	// peer is the name of the Peer object of the other side.
	Peer string `json:"peer"`
	// document is the canonical JSON (RFC 8785) that was signed.
	// +kubebuilder:validation:MaxLength=65536
	Document []byte `json:"document"`
	// consumerSignature and providerSignature are Ed25519 signatures of the document.
	ConsumerSignature []byte `json:"consumerSignature"`
	ProviderSignature []byte `json:"providerSignature"`
	// resources repeats the document's amounts for kubectl; the document decides.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// notAfter repeats the document's end for kubectl; the document decides.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}

// EndReason is why a contract ends.
// +kubebuilder:validation:Enum=EndedByPeer;EndedHere;RanOut;PeerForgotten;Untethered;Uninstalled
type EndReason string

// The reasons.
const (
	EndedByPeer      EndReason = "EndedByPeer"
	EndedHere        EndReason = "EndedHere"
	EndRanOut        EndReason = "RanOut"        // its time is over, and it was not renewed
	EndPeerForgotten EndReason = "PeerForgotten" // by `kith peers forget`, or by the end of its Peer
	EndUntethered    EndReason = "Untethered"    // the owner took this laptop back
	EndUninstalled   EndReason = "Uninstalled"   // Kith is being removed here
)

// ContractStatus is the use against the contract.
type ContractStatus struct {
	// +optional
	State RelationState `json:"state,omitempty"`
	// endReason is why the contract ends, once state is Ending.
	// +optional
	EndReason EndReason `json:"endReason,omitempty"`
	// +optional
	Why string `json:"why,omitempty"`
	// lowering is what the provider lowers the contract to, and when, as long as that is not signed.
	// +optional
	Lowering *Lowering `json:"lowering,omitempty"`
	// wake is what there is of waking the provider's machine, where it is a term.
	// +optional
	Wake *WakeStatus `json:"wake,omitempty"`
	// used is the sum of the requests of the pods under the contract.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// namespaces are the twin namespaces under the contract (provider: all; consumer: those it knows).
	// +optional
	// +listType=map
	// +listMapKey=home
	Namespaces []TwinNamespace `json:"namespaces,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WakeStatus is what one side knows of waking the provider's machine.
type WakeStatus struct {
	// document is the provider's last word before it was suspended on whether it may be woken, in canonical JSON, with its Ed25519 signature: there while it is
	// suspended, at the consumer alone.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Document []byte `json:"document,omitempty"`
	// +optional
	Signature []byte `json:"signature,omitempty"`
	// times are when the consumer woke it within the last day, or tried to, as each side counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Times []metav1.Time `json:"times,omitempty"`
	// over is how often within the last day the provider was woken beyond what was agreed, as it counts.
	// +optional
	Over int32 `json:"over,omitempty"`
	// state is how far waking it is, at the consumer; message is for people, since when it is so.
	// +optional
	State WakeState `json:"state,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// WakeState is how far waking a machine is.
// +kubebuilder:validation:Enum=Waking;Woken;OnBattery;Withdrawn;Spent;NoDevice;Expired;NoWay;NotWoken
type WakeState string

// The states.
const (
	WakeSent      WakeState = "Waking"    // packets were sent
	WakeWoken     WakeState = "Woken"     // it is awake again, after that
	WakeOnBattery WakeState = "OnBattery" // its last word is that it runs on battery
	WakeWithdrawn WakeState = "Withdrawn" // its last word is that its owner lets nobody wake it any more
	WakeSpent     WakeState = "Spent"     // it was woken as often within a day as was agreed
	WakeNoDevice  WakeState = "NoDevice"  // it has no network device by which it could be woken
	WakeExpired   WakeState = "Expired"   // its last word held until then
	WakeNoWay     WakeState = "NoWay"     // neither this machine nor a peer that is awake is on its network
	WakeNotWoken  WakeState = "NotWoken"  // packets were sent, and it did not come
)

// Lowering is a notice by which a provider lowers what a contract in force grants: the consumer signs it as the next revision.
type Lowering struct {
	// resources are what is granted from then on; what is not named is granted no more.
	Resources corev1.ResourceList `json:"resources"`
	// from is when that begins, by the provider's clock, whether it is signed or not.
	From metav1.Time `json:"from"`
	// until is what is granted until then, where a notice before this one has begun and was not signed; without it, what was signed.
	// +optional
	Until corev1.ResourceList `json:"until,omitempty"`
}

// ConditionAsSigned of a Contract says whether what was signed is granted. It is there once a lowering was told.
const ConditionAsSigned = "AsSigned"

// The reasons of ConditionAsSigned.
const (
	ReasonAsSigned    = "AsSigned"    // True: it is
	ReasonNowSigned   = "NowSigned"   // True: it is, and the revision of observedGeneration is one by which it was lowered
	ReasonNoticeGiven = "NoticeGiven" // True: it is lowered at the time that the message says
	ReasonLowered     = "Lowered"     // False: that time has come, and the lowering is not signed
)

// Grants is what the contract grants now: what was signed, or less, by a notice whose time has come.
func (c *Contract) Grants(now time.Time) corev1.ResourceList {
	switch l := c.Status.Lowering; {
	case l == nil:
		return c.Spec.Resources
	case !now.Before(l.From.Time):
		return c.signed(l.Resources)
	case l.Until != nil:
		return c.signed(l.Until)
	}
	return c.Spec.Resources
}

// Lowered reports whether what it grants now is by a lowering, which may be signed by now: what runs beyond that does so no longer.
func (c *Contract) Lowered(now time.Time) bool {
	if l := c.Status.Lowering; l != nil && (l.Until != nil || !now.Before(l.From.Time)) {
		return true
	}
	return slices.ContainsFunc(c.Status.Conditions, func(is metav1.Condition) bool {
		return is.Type == ConditionAsSigned && is.Reason == ReasonNowSigned && is.ObservedGeneration == c.Generation
	})
}

// signed is so much as was signed of what a notice says: less may have been signed since.
func (c *Contract) signed(says corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	for name, q := range says {
		if most, has := c.Spec.Resources[name]; !has {
			continue
		} else if q.Cmp(most) > 0 {
			q = most
		}
		all[name] = q.DeepCopy()
	}
	return all
}

// TwinNamespace pairs a namespace at the consumer with the one at the provider that stands for it.
type TwinNamespace struct {
	Home   string `json:"home"`
	Abroad string `json:"abroad"`
}

// Contract is what both sides signed: the same bytes on both.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ctr,categories=kith
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.spec.peer`
// +kubebuilder:printcolumn:name="Rev",type=integer,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.resources.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resources.memory`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.resources.pods`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Contract struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ContractSpec `json:"spec"`
	// +optional
	Status ContractStatus `json:"status,omitempty"`
}

// ContractList is a list of Contracts.
// +kubebuilder:object:root=true
type ContractList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Contract `json:"items"`
}
