package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RelationState is the state of one direction of a relation. The transitions are in core/agree/peering.
// +kubebuilder:validation:Enum=none;requested;declined;expired;contracted;connected;unreachable;ending
type RelationState string

const (
	StateNone        RelationState = "none"
	StateRequested   RelationState = "requested"
	StateDeclined    RelationState = "declined"
	StateExpired     RelationState = "expired"
	StateContracted  RelationState = "contracted" // signed, not yet usable
	StateConnected   RelationState = "connected"
	StateUnreachable RelationState = "unreachable"
	StateEnding      RelationState = "ending"
)

// Source tells how a peer was found.
// +kubebuilder:validation:Enum=lan;dns;manual
type Source string

const (
	SourceLAN    Source = "lan"
	SourceDNS    Source = "dns"
	SourceManual Source = "manual"
)

// PeerSpec says who the peer is and what is wanted from it.
type PeerSpec struct {
	// id is the cluster ID: the hash of the peer's key, in eight groups of seven characters.
	// It is the identity; every name is a hint.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z2-7]{7}(-[A-Z2-7]{7}){7}$`
	// +kubebuilder:validation:XValidation:rule="self.size() != 63 || [0, 14, 28, 42].all(o, (32 - [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(i, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(self.substring((o + i) * 8 / 7, (o + i) * 8 / 7 + 1)) * (2 - i % 2)).map(n, n / 32 + n % 32).sum() % 32) % 32 == 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(self.substring((o + 13) * 8 / 7, (o + 13) * 8 / 7 + 1)))",message="mistyped: its check characters do not fit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the ID of a peer never changes: another key is another peer"
	ID string `json:"id"`

	// displayName is the name the peer gives itself.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DisplayName string `json:"displayName,omitempty"`

	// endpoints are host:port addresses of the peer API that were given by hand or worked before; tried in order.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=276
	// +kubebuilder:validation:items:Pattern=`^(\[[0-9A-Fa-f:.]{2,45}(%[-A-Za-z0-9_.]{1,15})?\]|[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9.])?):[1-9][0-9]{0,4}$`
	// +kubebuilder:validation:items:XValidation:rule="!self.matches(':[0-9]{5}$') || int(self.substring(self.lastIndexOf(':') + 1)) <= 65535",message="the port must be 1 to 65535"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^([[]::[]]|[[][fF][fF]|0[.]0[.]0[.]0:|(22[4-9]|23[0-9])[.][0-9]+[.][0-9]+[.][0-9]+:)')",message="must be the address of one machine"
	Endpoints []string `json:"endpoints,omitempty"`

	// dnsName is the name in the DNS by which the peer was added, with a port that of a host. It is followed: what its SRV records name,
	// or, where there are none, the addresses of the host itself. It tells where the peer is; who it is, id alone.
	// +optional
	// +kubebuilder:validation:MaxLength=260
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9.])?(:[0-9]{1,5})?$`
	DNSName string `json:"dnsName,omitempty"`

	// source tells how the peer was found first.
	// +optional
	Source Source `json:"source,omitempty"`

	// request, when set, asks the peer for resources; removing it ends the contract under which
	// this cluster consumes. It is what `kith peer` and `kith unpeer` write.
	// +optional
	Request *ResourceRequest `json:"request,omitempty"`

	// tethered, when set, says that this cluster runs the laptop that the peer is; removing it gives the laptop back to its owner.
	// The daemon sets it when the laptop asks for it and a TetherPolicy, or this cluster's owner, said yes.
	// +optional
	Tethered *Tethered `json:"tethered,omitempty"`
}

// ConditionAccepted is True on a Peer once the owner of this cluster compared its key, by a pairing code or the whole ID: no
// code is needed the next time.
const ConditionAccepted = "Accepted"

// ConditionTunnel of a Peer is False while no packet passes between the pods of the two clusters although their daemons reach
// each other, and says why.
const ConditionTunnel = "Tunnel"

// ConditionAddressesFree of a Peer is False while addresses that guests have, of this cluster there or of the peer here, are also those of
// a network that this laptop came to.
const ConditionAddressesFree = "AddressesFree"

// ConditionGrantedInFull is False on a Peer whose contract grants less than was asked for, and says of what.
const ConditionGrantedInFull = "GrantedInFull"

// Network is what there is between two clusters, where that is no tunnel.
// +kubebuilder:validation:Enum=None
type Network string

// NetworkNone: there is no tunnel, nor any addresses that both know.
const NetworkNone Network = "None"

// ResourceRequest is what a consumer asks for.
type ResourceRequest struct {
	// resources asked for. What is left out is up to the provider's policy; with a contract in force it stays as it is.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'pods', 'ephemeral-storage', 'storage'] || k.matches('^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$') || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && !k.startsWith('requests.') && (!k.endsWith('.storageclass.storage.k8s.io/requests.storage') || k.size() <= 108))",message="a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io"
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// attempt is raised by the user to ask again after a decline, an expiry or the end of a contract.
	// +optional
	// +kubebuilder:default=1
	Attempt int64 `json:"attempt,omitempty"`
	// tether asks the peer to run this laptop, instead of asking it for resources. The daemon writes it on a switch of the mode.
	// +optional
	Tether bool `json:"tether,omitempty"`
	// network: None asks for a contract without a tunnel: pods there reach nothing of home, and nothing at home reaches them. Left out, it is up to
	// the provider, and stays as a contract in force has it.
	// +optional
	Network Network `json:"network,omitempty"`
	// maxPrices by resource, which the owner agrees to beforehand: what they do not name has to be free, and an offer beyond them is not signed. Without
	// any, prices wait for the owner's word. A PeeringPolicy that asks writes its own here.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	MaxPrices map[string]UnitPrice `json:"maxPrices,omitempty"`
	// confirm is this owner's word on what status.outgoing.confirm asks.
	// +optional
	Confirm *Confirm `json:"confirm,omitempty"`
}

// Confirm is the answer of the asking owner, given once the peer accepted, to the one attempt that it names.
// +kubebuilder:validation:XValidation:rule="has(self.code) && self.code.size() > 0 || has(self.id) && self.id.size() > 0 || has(self.terms) && self.terms || has(self.reject) && self.reject || has(self.withdraw) && self.withdraw || has(self.mistyped) && self.mistyped",message="must say something: a code, an id, terms, reject or withdraw"
type Confirm struct {
	// attempt is the spec.request.attempt that is confirmed.
	Attempt int64 `json:"attempt"`
	// code is the six digits as the peer's owner sees them. Another code than the one here takes the request back.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{6})?$`
	Code string `json:"code,omitempty"`
	// mistyped: kith was given another code once, and asked to look again. The next one counts.
	// +optional
	Mistyped bool `json:"mistyped,omitempty"`
	// id is the peer's whole ID as its owner gave it: a comparison of the key itself, in place of the code. Another one than
	// spec.id takes the request back.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Z2-7]{7}(-[A-Z2-7]{7}){7})?$`
	// +kubebuilder:validation:XValidation:rule="self.size() != 63 || [0, 14, 28, 42].all(o, (32 - [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(i, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(self.substring((o + i) * 8 / 7, (o + i) * 8 / 7 + 1)) * (2 - i % 2)).map(n, n / 32 + n % 32).sum() % 32) % 32 == 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(self.substring((o + 13) * 8 / 7, (o + 13) * 8 / 7 + 1)))",message="mistyped: its check characters do not fit"
	ID string `json:"id,omitempty"`
	// terms agrees to the terms in status.outgoing.confirm, once they are there: agreed to beforehand, they take the request back.
	// +optional
	Terms bool `json:"terms,omitempty"`
	// reject takes the request back: the codes differ, or the terms are not agreed to.
	// +optional
	Reject bool `json:"reject,omitempty"`
	// withdraw takes the request back because it is no longer wanted, whether the peer answered or not. A contract in force
	// stays as it is.
	// +optional
	Withdraw bool `json:"withdraw,omitempty"`
}

// Confirmation is what the asking owner has to agree to before a contract is signed.
type Confirmation struct {
	// code is the six digits to compare with those on the peer's screen; empty when the peer's key is known here.
	// +optional
	Code string `json:"code,omitempty"`
	// terms are sentences on what the peer's terms have beyond what was asked for.
	// +optional
	// +listType=atomic
	Terms []string `json:"terms,omitempty"`
}

// PeerStatus tells where both directions stand.
type PeerStatus struct {
	// outgoing: this cluster consumes, the peer provides.
	// +optional
	Outgoing DirectionStatus `json:"outgoing,omitempty"`
	// incoming: the peer consumes, this cluster provides.
	// +optional
	Incoming DirectionStatus `json:"incoming,omitempty"`
	// node is the name of the virtual node that stands for the peer here.
	// +optional
	Node string `json:"node,omitempty"`
	// endpoint is the host:port of the peer API in use.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// network is what both sides agreed on for the tunnel.
	// +optional
	Network *NetworkStatus `json:"network,omitempty"`
	// tether, while one of the two runs the other, or is about to.
	// +optional
	Tether *TetherStatus `json:"tether,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DirectionStatus is the state of one direction.
type DirectionStatus struct {
	// +optional
	// +kubebuilder:default=none
	State RelationState `json:"state,omitempty"`
	// why, in one sentence for the user.
	// +optional
	Why string `json:"why,omitempty"`
	// since is the time of the last change of state.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// attempt is the spec.request.attempt that was asked last (outgoing only).
	// +optional
	Attempt int64 `json:"attempt,omitempty"`
	// asking: the question is on its way, and the peer has not answered it (outgoing only).
	// +optional
	Asking bool `json:"asking,omitempty"`
	// requestID of the pending request.
	// +optional
	RequestID string `json:"requestID,omitempty"`
	// code is the six-digit pairing code of the pending request; empty when both know each other's key.
	// +optional
	Code string `json:"code,omitempty"`
	// expires is when the pending request lapses.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// confirm, while it is there, is what the owner has to agree to in spec.request.confirm (outgoing only).
	// +optional
	Confirm *Confirmation `json:"confirm,omitempty"`
	// contract is the name of the Contract object in force.
	// +optional
	Contract string `json:"contract,omitempty"`
}

// NetworkStatus is the address plan between two clusters.
type NetworkStatus struct {
	// publicKey is the peer's WireGuard key, base64.
	PublicKey string `json:"publicKey"`
	// proof, of the peer to this cluster, that it holds the private half of publicKey: a MAC that is of no use to others.
	// +optional
	Proof []byte `json:"proof,omitempty"`
	// endpoint is the peer's WireGuard address, host:port.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// guestsThere is the range of this cluster's guests at the peer: an address out of it is the same here, there and at every other
	// peer. Empty where the peer takes no guests in.
	// +optional
	// +kubebuilder:validation:Format=cidr
	GuestsThere string `json:"guestsThere,omitempty"`
	// guestsHere is the range of the peer's guests here.
	// +optional
	// +kubebuilder:validation:Format=cidr
	GuestsHere string `json:"guestsHere,omitempty"`
	// space is what else means something in the peer's address space: the range of its pods first, then those of its guests elsewhere.
	// +optional
	// +kubebuilder:validation:MaxItems=160
	// +listType=atomic
	Space []string `json:"space,omitempty"`
	// services is the range of the peer's services.
	// +optional
	// +kubebuilder:validation:Format=cidr
	Services string `json:"services,omitempty"`
	// atThere is the address of the peer's host in guestsThere.
	// +optional
	// +kubebuilder:validation:Format=ipv4
	AtThere string `json:"atThere,omitempty"`
	// atHome is the address of the peer's host in space.
	// +optional
	// +kubebuilder:validation:Format=ipv4
	AtHome string `json:"atHome,omitempty"`
	// aliases are ranges of the peer's address space as its guests here know them, where these get their addresses from somebody
	// else, the network plugin of a cluster that Kith does not run.
	// +optional
	// +kubebuilder:validation:MaxItems=160
	// +listType=map
	// +listMapKey=name
	Aliases []RangeAlias `json:"aliases,omitempty"`
	// ipv6 is what is used of IPv6 beside all of that, or why there is none. Empty where this cluster has IPv4 alone.
	// +optional
	IPv6 *NetworkIPv6 `json:"ipv6,omitempty"`
	// direct says that this cluster's guests at the peer may meet those at other peers without going by this cluster.
	// +optional
	Direct bool `json:"direct,omitempty"`
	// others are providers of the peer to which it introduced this cluster: its guests here may meet those there directly.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=id
	Others []OtherProvider `json:"others,omitempty"`
	// introducedBy is the peer's Ed25519 key, by which those are signed.
	// +optional
	IntroducedBy []byte `json:"introducedBy,omitempty"`
	// shared are pods behind services of this cluster that the peer may use (spec.services of the SharingPolicy), each by an address of its own.
	// +optional
	// +kubebuilder:validation:MaxItems=127
	// +listType=map
	// +listMapKey=address
	Shared []SharedPod `json:"shared,omitempty"`
	// relayed are the parts of guestsHere whose addresses pods of the peer have that went on from here to a provider of this cluster (spec.reofferFrom
	// of the SharingPolicy): what is sent to them, and what they send, is passed on.
	// +optional
	// +kubebuilder:validation:MaxItems=2
	// +listType=map
	// +listMapKey=id
	Relayed []RelayedRange `json:"relayed,omitempty"`
	// onward are clusters to which the peer offers on what this one grants it (spec.reoffer of the SharingPolicy), and what it says of their
	// addresses: each is a home of its own here, that is reached by way of the peer.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=id
	Onward []OnwardHome `json:"onward,omitempty"`
}

// RelayedRange is a part of a peer's range of guests here that are at another cluster.
type RelayedRange struct {
	// id of that cluster.
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`
	// guests is the part.
	// +kubebuilder:validation:Format=cidr
	Guests string `json:"guests"`
}

// OnwardHome is a home whose guests come by way of a peer.
type OnwardHome struct {
	// id of the home.
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`
	// network is the range of its guests at the peer, of which those here have a part.
	// +kubebuilder:validation:Format=cidr
	Network string `json:"network"`
	// guests is that part.
	// +kubebuilder:validation:Format=cidr
	Guests string `json:"guests"`
	// space is what else means something in its address space.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Space []string `json:"space"`
	// services is the range of its services.
	// +optional
	// +kubebuilder:validation:Format=cidr
	Services string `json:"services,omitempty"`
}

// SharedPod is a pod of this cluster that a peer reaches.
type SharedPod struct {
	// address by which the peer knows it, in guestsHere.
	// +kubebuilder:validation:MaxLength=15
	Address string `json:"address"`
	// pod is its address here.
	// +kubebuilder:validation:MaxLength=15
	Pod string `json:"pod"`
	// ports of it that the peer reaches.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Ports []SharedPort `json:"ports"`
}

// SharedPort is a port of a pod.
type SharedPort struct {
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// OtherProvider is another provider of a peer, as the peer introduced it.
type OtherProvider struct {
	// id of the other cluster.
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`
	// publicKey is its WireGuard key, base64.
	// +kubebuilder:validation:MaxLength=64
	PublicKey string `json:"publicKey"`
	// guests is the range of the peer's guests there.
	// +kubebuilder:validation:Format=cidr
	Guests string `json:"guests"`
	// endpoints are where the peer reaches its WireGuard, host:port.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	Endpoints []string `json:"endpoints"`
	// signature by the peer, of all but the endpoints.
	Signature []byte `json:"signature"`
}

// NetworkIPv6 is the IPv6 part of the address plan between two clusters, field by field as that of IPv4.
type NetworkIPv6 struct {
	// guestsThere is the range of this cluster's guests at the peer.
	// +optional
	// +kubebuilder:validation:Format=cidr
	GuestsThere string `json:"guestsThere,omitempty"`
	// guestsHere is the range of the peer's guests here.
	// +optional
	// +kubebuilder:validation:Format=cidr
	GuestsHere string `json:"guestsHere,omitempty"`
	// space is what else means something in the peer's address space: the range of its pods first, then those of its guests elsewhere.
	// +optional
	// +kubebuilder:validation:MaxItems=160
	// +listType=atomic
	Space []string `json:"space,omitempty"`
	// services is the range of the peer's services.
	// +optional
	// +kubebuilder:validation:Format=cidr
	Services string `json:"services,omitempty"`
	// atThere is the address of the peer's host in guestsThere.
	// +optional
	// +kubebuilder:validation:Format=ipv6
	AtThere string `json:"atThere,omitempty"`
	// atHome is the address of the peer's host in space.
	// +optional
	// +kubebuilder:validation:Format=ipv6
	AtHome string `json:"atHome,omitempty"`
	// message says why the two have IPv4 alone.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// RangeAlias maps a range of addresses, as its owner uses it, to the range of the same length as the other side sees it.
type RangeAlias struct {
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`
	// +kubebuilder:validation:Format=cidr
	Real string `json:"real"`
	// +kubebuilder:validation:Format=cidr
	Alias string `json:"alias"`
}

// Peer is a known cluster: one that was asked, has asked, or was added by hand.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kith
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 58 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",optionalOldSelf=true,message="the name of a Peer must be at most 58 of a-z, 0-9 and -: its node is called kith-NAME"
// +kubebuilder:printcolumn:name="Outgoing",type=string,JSONPath=`.status.outgoing.state`
// +kubebuilder:printcolumn:name="Incoming",type=string,JSONPath=`.status.incoming.state`
// +kubebuilder:printcolumn:name="Tether",type=string,JSONPath=`.status.tether.step`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ID",type=string,priority=1,JSONPath=`.spec.id`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.outgoing.why`
type Peer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PeerSpec `json:"spec"`
	// +optional
	Status PeerStatus `json:"status,omitempty"`
}

// PeerList is a list of Peers.
// +kubebuilder:object:root=true
type PeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peer `json:"items"`
}
