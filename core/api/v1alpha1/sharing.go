package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodSecurityLevel is a level of the Pod Security Standards (KEP-2579).
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurityLevel string

const (
	PodSecurityPrivileged PodSecurityLevel = "privileged"
	PodSecurityBaseline   PodSecurityLevel = "baseline"
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// Amount is a Kubernetes quantity ("2", "4Gi"), a share of what the nodes can allocate ("50%"), or a share of what of that the owner's own pods do
// not request ("50% of free").
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^(([0-9]{1,2}|100)%( of free)?|[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?)$`
type Amount string

// UnitPrice is what one unit of a resource costs for one hour: a decimal number and a currency ("0.02 EUR").
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:Pattern=`^[0-9]{1,12}(\.[0-9]{1,9})? [A-Za-z]{1,16}$`
type UnitPrice string

// SharingPolicySpec says what is offered to whom. For each peer one policy applies: of those that select it the one with the
// highest priority, then the first by name. Policies do not add up, and when the one that applies offers nothing, because it is paused for
// example, no other takes its place. A peer that none selects is offered nothing.
// +kubebuilder:validation:XValidation:rule="!has(self.tunnel) || self.tunnel != 'Deny' || (!has(self.reoffer) || self.reoffer != 'Allow') && (!has(self.reofferFrom) || size(self.reofferFrom) == 0) && (!has(self.services) || size(self.services) == 0)",message="reoffer, reofferFrom and services need a tunnel: they and tunnel Deny exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.reoffer) || self.reoffer != 'Allow' || !has(self.reofferFrom) || size(self.reofferFrom) == 0",message="what is offered on from others goes on no further: reoffer and reofferFrom exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.reofferAs) || self.reofferAs != 'Each' || has(self.reofferFrom) && size(self.reofferFrom) > 0",message="there is nobody to tell of without reofferFrom: reofferAs is One"
// +kubebuilder:validation:XValidation:rule="!has(self.margin) || has(self.reofferFrom) && size(self.reofferFrom) > 0",message="a margin is on what is offered on from others: it goes with reofferFrom"
type SharingPolicySpec struct {
	// priority breaks ties; higher counts first.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// peers selects by cluster ID, or by the name of a Peer whose key was accepted here: anybody can call himself by a name.
	// Empty, with an empty peerSelector: everybody.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	Peers []string `json:"peers,omitempty"`
	// peerSelector selects by labels of the Peer objects.
	// +optional
	PeerSelector *metav1.LabelSelector `json:"peerSelector,omitempty"`
	// amounts per resource name (cpu, memory, ephemeral-storage, pods, nvidia.com/gpu, …) for all peers
	// under this policy together; CLASS.storageclass.storage.k8s.io/requests.storage, as in a ResourceQuota, is storage of one of this cluster's
	// storage classes, and storage that of its default class. What is not named is not offered, and devices (nvidia.com/gpu and other extended resources) never
	// are unless they are named.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'pods', 'ephemeral-storage', 'storage'] || k.matches('^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$') || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && !k.startsWith('requests.') && (!k.endsWith('.storageclass.storage.k8s.io/requests.storage') || k.size() <= 108))",message="a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('/') || k.endsWith('.storageclass.storage.k8s.io/requests.storage') || self[k].matches('^[0-9]{1,9}(%( of free)?)?$'))",message="devices are shared in whole numbers, or as a share of them such as 50%"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.endsWith('.storageclass.storage.k8s.io/requests.storage') || !self[k].contains('%'))",message="storage of a class is shared as an amount, such as 20Gi: of how much it would be a part is not known"
	Amounts map[string]Amount `json:"amounts"`
	// reserve is what stays free for the owner, beside what the owner's own pods request: an offer under this policy takes nothing of it. What was
	// signed stays. Amounts of free are not meant here.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'pods', 'ephemeral-storage', 'storage'] || k.matches('^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$') || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && !k.startsWith('requests.') && (!k.endsWith('.storageclass.storage.k8s.io/requests.storage') || k.size() <= 108))",message="a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('/') || k.endsWith('.storageclass.storage.k8s.io/requests.storage') || self[k].matches('^[0-9]{1,9}(%( of free)?)?$'))",message="devices are shared in whole numbers, or as a share of them such as 50%"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.endsWith('.storageclass.storage.k8s.io/requests.storage') || !self[k].contains('%'))",message="storage of a class is shared as an amount, such as 20Gi: of how much it would be a part is not known"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !self[k].endsWith(' of free'))",message="a reserve is an amount, or a share of all that there is, such as 20%"
	Reserve map[string]Amount `json:"reserve,omitempty"`
	// maxPerPeer is how much of the amounts one peer may have at most; what is not named here is bounded by the amounts alone.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'pods', 'ephemeral-storage', 'storage'] || k.matches('^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$') || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && !k.startsWith('requests.') && (!k.endsWith('.storageclass.storage.k8s.io/requests.storage') || k.size() <= 108))",message="a key must be the name of a resource, such as cpu, memory or nvidia.com/gpu, not of the domain kubernetes.io"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('/') || k.endsWith('.storageclass.storage.k8s.io/requests.storage') || self[k].matches('^[0-9]{1,9}(%( of free)?)?$'))",message="devices are shared in whole numbers, or as a share of them such as 50%"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.endsWith('.storageclass.storage.k8s.io/requests.storage') || !self[k].contains('%'))",message="storage of a class is shared as an amount, such as 20Gi: of how much it would be a part is not known"
	MaxPerPeer map[string]Amount `json:"maxPerPeer,omitempty"`
	// maxPeers is how many peers may hold contracts under this policy at once; without it, as many as the amounts are enough for. Contracts in
	// force stay.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxPeers *int32 `json:"maxPeers,omitempty"`
	// prices of what is offered, per resource name, for one unit and one hour of what a peer's pods request: "0.02 EUR". A unit is a core of cpu, a
	// GiB of memory and of storage, one of any device. That of network is for each GB that guests send and receive by the tunnel. The currency, a
	// code of ISO 4217 or any other unit of account such as credits, is the same for all. What is not named is free. They hold for what is signed from now on; contracts in force keep theirs until they are renewed.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage', 'storage', 'network'] || k.size() <= 240 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && !k.contains('kubernetes.io/') && (!k.endsWith('.storageclass.storage.k8s.io/requests.storage') || k.size() <= 108))",message="a key must be the name of a resource that has a price, such as cpu, memory or nvidia.com/gpu: pods have none"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.all(b, self[a].split(' ')[1] == self[b].split(' ')[1]))",message="all prices must be in one currency"
	Prices map[string]UnitPrice `json:"prices,omitempty"`
	// autoAccept answers requests without asking the owner.
	// +optional
	AutoAccept bool `json:"autoAccept,omitempty"`
	// podSecurity is the level guests are held to.
	// +optional
	// +kubebuilder:default=baseline
	PodSecurity PodSecurityLevel `json:"podSecurity,omitempty"`
	// contractValidity is how long a contract runs before it must be signed again, from 1h to 87600h (ten years). It is
	// signed again, without a question, when two thirds of it are over. Consumers sign for 720h at most.
	// +optional
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h') && duration(self) <= duration('87600h')",message="must be a duration from 1h to 87600h (ten years)"
	ContractValidity *metav1.Duration `json:"contractValidity,omitempty"`
	// keepVolumes is how long the data of peers' volumes is kept here after the end of a contract that is signed from now on, unless the peer
	// deletes it, from 1h to 8760h (a year). Without it, 168h (seven days). It is a term of the contract, which both sign.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h') && duration(self) <= duration('8760h')",message="must be a duration from 1h to 8760h (a year)"
	KeepVolumes *metav1.Duration `json:"keepVolumes,omitempty"`
	// notice is how long before it peers are told that the amounts of a contract in force with them are lowered, since spec.amounts or maxPerPeer
	// here are less now, from 10s to 720h. Without it, what was signed stays until the contract is renewed. It is a term of the contracts that are
	// signed from now on, which both sign.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('720h')",message="must be a duration from 10s to 720h (thirty days)"
	Notice *metav1.Duration `json:"notice,omitempty"`
	// wake is how often within 24 hours each peer may wake this machine when it is suspended, for pods that have room nowhere else; without it, never. It is
	// a term of the contracts that are signed from now on, which both sign. On battery, and once it is taken away here, nobody may.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=24
	Wake *int32 `json:"wake,omitempty"`
	// catalogues are the peers who may list what this policy would offer to somebody new, for their peers to see: by cluster ID, or by the name of a
	// Peer whose key was accepted here. Without any, nobody.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	Catalogues []string `json:"catalogues,omitempty"`
	// reoffer: whether peers may offer on to peers of theirs what they are granted by contracts that are signed from now on, so that pods of clusters
	// which this one does not know run here. It is a term of the contract, which both sign. What this cluster itself has of others (reofferFrom)
	// goes on no further: a policy has one of the two.
	// +optional
	// +kubebuilder:default=Deny
	Reoffer Access `json:"reoffer,omitempty"`
	// reofferFrom: providers of this cluster, by cluster ID or by the name of a Peer whose key was accepted here, or * for all. What their contracts
	// grant, if these allow it (reoffer), is offered under this policy like what the nodes here have, and pods of peers may go on to them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[*])$`
	ReofferFrom []string `json:"reofferFrom,omitempty"`
	// tunnel: whether this cluster has a tunnel to peers whose contracts are signed from now on. Without one (Deny) their pods here reach nothing of
	// their home, and nothing there reaches them; pods get logs, exec, configuration, secrets, images and, if it is allowed, the internet all the same.
	// It is a term of the contract, which both sign; one that is in force keeps what it says until it ends, and one with a tunnel is not renewed.
	// +optional
	// +kubebuilder:default=Allow
	Tunnel Access `json:"tunnel,omitempty"`
	// reofferAs is how peers see what is offered on: One, as more room of this cluster, whose scheduler decides what goes on; or Each, by a node for each
	// of the providers beside that of this cluster, so that their schedulers decide. Each tells peers under this policy who these providers are.
	// +optional
	// +kubebuilder:default=One
	ReofferAs ReofferAs `json:"reofferAs,omitempty"`
	// margin is what this cluster adds to the prices of what it offers on: "10%". Each price of an offer is then the highest of this policy's own and
	// of those of the providers' contracts with the margin added. A provider whose prices are in another currency than this policy's, or than those of
	// one before it, is left out. Without a margin prices are this policy's own alone.
	// +optional
	// +kubebuilder:validation:MaxLength=7
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,2})([.][0-9]{1,2})?%$`
	Margin string `json:"margin,omitempty"`
	// paused offers nothing new for now; contracts in force stay.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// hours in which something is offered; without any, always. Outside of them nothing is, and no contract is renewed. A contract that is signed
	// in them ends with them at the latest: hours that meet or overlap are one time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Hours []SharingHours `json:"hours,omitempty"`
	// timeZone of the hours, by its name in the IANA's list, such as Europe/Berlin; without it, that of this machine.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][-+A-Za-z0-9_]*(/[-+A-Za-z0-9_]+){0,2}$`
	TimeZone string `json:"timeZone,omitempty"`
	// only: conditions under which alone something new is offered. Contracts in force stay, and are renewed.
	// +optional
	Only *SharingConditions `json:"only,omitempty"`
	// network is what guests may reach beyond their own; without it, the internet.
	// +optional
	Network *GuestNetwork `json:"network,omitempty"`
	// namespaces says how the namespaces of guests are called here; without it, never like those of home.
	// +optional
	Namespaces *GuestNamespaces `json:"namespaces,omitempty"`
	// deviceRuntimeClass is the RuntimeClass of guests that ask for devices, where a runtime of its own shows these to containers, as
	// NVIDIA's does (nvidia). With the built-in Kubernetes it can be nvidia alone, which is combined there with the class that fences
	// guests; guests that need another are refused. Without it they have the class of all guests.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	DeviceRuntimeClass string `json:"deviceRuntimeClass,omitempty"`
	// images says where guests' images may come from; without it, from registries on the internet, if that is allowed.
	// +optional
	Images *ImageRules `json:"images,omitempty"`
	// kinds of custom resources that peers may keep in their namespaces here. Whatever works on objects of such a kind here works on theirs, too:
	// name only kinds whose controllers take each namespace for somebody else's. Without any, none.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=32
	Kinds []GuestKind `json:"kinds,omitempty"`
	// services: namespaces, by name or with * for any characters, in which this cluster and the peers under this policy have services in common
	// (Multi-Cluster Services, KEP-1645), if they say so of this cluster too. A peer gets what a ServiceExport here names, if it has a contract by
	// which it consumes here; what it exports is imported here likewise. kube-* is never meant by a pattern that begins with *.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9*]+$`
	Services []string `json:"services,omitempty"`
}

// SharingConditions are about this laptop. All of them must be met.
type SharingConditions struct {
	// onMains: while it is on mains. A machine without batteries always is.
	// +optional
	OnMains bool `json:"onMains,omitempty"`
	// batteryAbove: while its batteries are fuller than so many per cent, on mains or not; a machine without has no such condition.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	BatteryAbove int32 `json:"batteryAbove,omitempty"`
	// idleFor: when nobody has used its desktop for so long, from 1m to 24h, as logind knows it of the seat of its screen and keyboard. It counts from
	// when the desktop says that it is idle. Where it is not known the condition is not met.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="must be a duration from 1m to 24h"
	IdleFor *metav1.Duration `json:"idleFor,omitempty"`
	// notMetered: while its network is not paid for by the amount, as NetworkManager knows it. Where it is not known the condition is not met.
	// +optional
	NotMetered bool `json:"notMetered,omitempty"`
	// cool: while each of its thermal zones is 10 °C below where the kernel slows it down, and 20 °C below where it stops. Where no zone says that the
	// condition is not met.
	// +optional
	Cool bool `json:"cool,omitempty"`
}

// SharingHours are a part of some days of the week, by the clocks of a time zone. What clocks skip when they are put forward is not there; what they
// show twice counts from the first time on.
// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="hours that end when they begin are none: a whole day is from 00:00 to 24:00"
type SharingHours struct {
	// days on which they begin; without any, every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`
	// from is when they begin: "09:00".
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	From string `json:"from"`
	// to is when they end: "17:00", or "24:00". On the next day, if that is no later than from.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	To string `json:"to"`
}

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type Weekday string

// GuestKind is a kind of custom resources that peers may keep here.
type GuestKind struct {
	// group of the API, "example.com".
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:XValidation:rule="self != 'kith.dev' && self != 'apiextensions.k8s.io'",message="objects of Kith and definitions of kinds do not travel"
	Group string `json:"group"`
	// resource is its plural name in the API, "widgets".
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`
	// most objects of it that one peer may keep here, of 64 KiB each.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Most int32 `json:"most,omitempty"`
	// definition: whether a peer may bring the CustomResourceDefinition when this cluster has none. It stays when the peer goes.
	// +optional
	// +kubebuilder:default=Deny
	Definition Access `json:"definition,omitempty"`
}

// GuestNamespaces is about the names of the namespaces in which guests run.
type GuestNamespaces struct {
	// sameName: whether a peer that asks for it (mapping SameName) may keep the name of a namespace where it is free here,
	// without its ID at the end. What anybody puts into that namespace later, an installer for example, the peer can read.
	// +optional
	// +kubebuilder:default=Deny
	SameName Access `json:"sameName,omitempty"`
	// reserved names that no peer keeps, under any policy, besides those that Kith knows (kube-*, kith-*, cert-manager,
	// monitoring and many more). A * stands for any characters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9*]+$`
	Reserved []string `json:"reserved,omitempty"`
}

// GuestNetwork is what guests may reach beyond their tenant, their home cluster and DNS.
type GuestNetwork struct {
	// internet: whether guests may use this laptop's way to the internet. Its LAN stays closed to them either way. A
	// change holds at once, for open connections too.
	// +optional
	// +kubebuilder:default=Allow
	Internet Access `json:"internet,omitempty"`
	// direct: whether guests may meet guests of the same home at other providers by a tunnel between this laptop and theirs, instead of by way of home.
	// The other providers, if their owners allow it too, learn from that home where this laptop is on the network, and its WireGuard key.
	// +optional
	// +kubebuilder:default=Deny
	Direct Access `json:"direct,omitempty"`
	// bandwidth bounds what guests take of this cluster's lines. It is not a term of contracts: a change holds at once.
	// +optional
	Bandwidth *GuestBandwidth `json:"bandwidth,omitempty"`
}

// GuestBandwidth is the most that guests of all peers under a policy together, on each node, get and send by the tunnels and the internet. What they
// say to pods of this cluster, guests or the owner's, does not count.
type GuestBandwidth struct {
	// ingress is what they get. Not set: no bound.
	// +optional
	Ingress BitRate `json:"ingress,omitempty"`
	// egress is what they send. Not set: no bound.
	// +optional
	Egress BitRate `json:"egress,omitempty"`
}

// BitRate is so many bits a second, from 100k to 99G: "20M". k, M and G are powers of 1000.
// +kubebuilder:validation:MaxLength=8
// +kubebuilder:validation:Pattern=`^([1-9][0-9]{2,5}k|[1-9][0-9]{0,4}M|[1-9][0-9]?G)$`
type BitRate string

// ImageRules say where guests' images may come from. This laptop pulls them, from where it stands: so without a word here
// nothing is asked of registries on private addresses, on its LAN or on itself, and no image is used that guests did not
// pull themselves.
type ImageRules struct {
	// registries that guests may pull from although they are on private addresses or the internet is denied, as they stand
	// in image names: "registry.lan:5000", "ghcr.io". Before it, http:// for one without TLS.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=261
	// +kubebuilder:validation:items:Pattern=`^(http://)?[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?$`
	Registries []string `json:"registries,omitempty"`
	// present are images that guests may use as they are here, without asking a registry: names, in which * stands for
	// anything, such as "kith.dev/*" or "postgres:17". An image named by its digest needs no word here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^[^ ,\t\n]+$`
	Present []string `json:"present,omitempty"`
	// fromHome: whether guests may have images from their home, over the connection of the two: what home has under a name, before any
	// registry is asked. While the internet is denied, only images of the registries above.
	// +optional
	// +kubebuilder:default=Allow
	FromHome Access `json:"fromHome,omitempty"`
	// toPeers: whether other peers of a guest's home may have layers of the images that came from there from this laptop, if home sends them.
	// +optional
	// +kubebuilder:default=Allow
	ToPeers Access `json:"toPeers,omitempty"`
	// rate is how many bytes per second images of one peer's guests may come from its home, or go to its other peers, all together: "5M". Not set:
	// no bound.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*(k|M|G|Ki|Mi|Gi)?$`
	Rate string `json:"rate,omitempty"`
}

// Access is allowed or denied.
// +kubebuilder:validation:Enum=Allow;Deny
type Access string

const (
	AccessAllow Access = "Allow"
	AccessDeny  Access = "Deny"
)

// SharingPolicy is the owner's word on what is offered to whom.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=share,categories=kith
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.amounts.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.amounts.memory`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.amounts.pods`
// +kubebuilder:printcolumn:name="Auto",type=boolean,JSONPath=`.spec.autoAccept`
// +kubebuilder:printcolumn:name="Security",type=string,JSONPath=`.spec.podSecurity`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SharingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SharingPolicySpec `json:"spec"`
}

// SharingPolicyList is a list of SharingPolicies.
// +kubebuilder:object:root=true
type SharingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SharingPolicy `json:"items"`
}

// ReofferAs is how peers see what providers of this cluster grant it.
// +kubebuilder:validation:Enum=One;Each
type ReofferAs string

// How peers see it.
const (
	ReofferAsOne  ReofferAs = "One"
	ReofferAsEach ReofferAs = "Each"
)
