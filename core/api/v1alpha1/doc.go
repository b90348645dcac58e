// Package v1alpha1 holds the custom resources of Kith (group kith.dev): the state of every
// relation between two clusters lives in them, so kubectl, RBAC and GitOps work on it and a
// restarted daemon finds all in place. Everybody in core/ may import it. It must never hold
// behaviour beyond reading its own fields.
//
// +kubebuilder:object:generate=true
// +groupName=kith.dev
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupVersion of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "kith.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Peer{}, &PeerList{},
		&PeeringRequest{}, &PeeringRequestList{},
		&Advertisement{}, &AdvertisementList{},
		&Contract{}, &ContractList{},
		&SharingPolicy{}, &SharingPolicyList{},
		&TetherPolicy{}, &TetherPolicyList{},
		&NamespaceOffloading{}, &NamespaceOffloadingList{},
		&OffloadedPod{}, &OffloadedPodList{},
		&ReflectionPolicy{}, &ReflectionPolicyList{},
		&PeeringPolicy{}, &PeeringPolicyList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Labels, annotations, taints and finalizers. All keys are in Kith's own domain.
const (
	// LabelOffload on a namespace, with value "true", is the short form of a NamespaceOffloading.
	LabelOffload = "kith.dev/offload"
	// AnnotationStrategy and AnnotationPeers on an offloaded namespace are the strategy and the peers, with commas, of its
	// NamespaceOffloading, which writes them: an API server that has just started knows its namespaces at once, and custom
	// resources only later. Without the first no pod of the namespace is let abroad.
	AnnotationStrategy = "kith.dev/strategy"
	AnnotationPeers    = "kith.dev/peers"
	// AnnotationVolumes on an offloaded namespace is there, with value "Anywhere", while volumes of its claims may be at peers;
	// AnnotationDefaultClass is the storage class that claims without one would get: those get the class kith instead.
	AnnotationVolumes      = "kith.dev/volumes-abroad"
	AnnotationDefaultClass = "kith.dev/default-storage-class"
	// AnnotationNetwork on an offloaded namespace is there, with value "none", while its pods may go to nodes without a network (LabelNetwork).
	AnnotationNetwork = "kith.dev/offload-network"
	// LabelNetwork is on the virtual node of a peer to which there is no network, with the value WithoutNetwork: a label, to select such nodes by, and a
	// taint, which only pods tolerate that are meant for them.
	LabelNetwork = "kith.dev/network"
	// WithoutNetwork is the value of LabelNetwork and AnnotationNetwork.
	WithoutNetwork = "none"
	// AnnotationSpread on an offloaded namespace is there, with value "true", while its pods are to be spread over home and its peers.
	AnnotationSpread = "kith.dev/spread"
	// AnnotationWhenAsleep on an offloaded namespace is there, with the value of its NamespaceOffloading, when that says what becomes of pods at a peer
	// that goes to sleep.
	AnnotationWhenAsleep = "kith.dev/when-asleep"
	// AnnotationBudgetOpen and AnnotationBudgetClosed on an offloaded namespace are there while its budget closes peers: those that its new pods may go to,
	// with commas, and those that no pod of it is bound to, PEER/REASON with commas. AnnotationNarrowed, with value "true", is on pods made meanwhile,
	// AnnotationFenced on those that tolerate closed peers all the same, and so require nodes of home or of the open peers, which are its value.
	AnnotationBudgetOpen   = "kith.dev/budget-open"
	AnnotationBudgetClosed = "kith.dev/budget-closed"
	AnnotationNarrowed     = "kith.dev/budget-narrowed"
	AnnotationFenced       = "kith.dev/budget-fenced"
	// AnnotationRefused on an offloaded namespace says which peers refuse the pods of which controllers: UID/PEER/SECONDS with
	// commas, the last when that was noted, in Unix time. The admission policy has new pods of such a controller avoid the peer.
	AnnotationRefused = "kith.dev/refused"
	// LabelManagedBy marks, with value "kith", every object that Kith made; others are never touched.
	LabelManagedBy = "kith.dev/managed-by"
	// LabelConsumer on provider objects holds the consumer's cluster ID in its compact form.
	LabelConsumer = "kith.dev/consumer"
	// LabelConsumerName on provider objects holds the name of the consumer as a Peer here, for people.
	LabelConsumerName = "kith.dev/consumer-name"
	// LabelPeer on a virtual node, and the key of its taint, holds the name of the peer.
	LabelPeer = "kith.dev/peer"
	// LabelHomeNamespace on a twin namespace holds the name of the namespace at the consumer.
	LabelHomeNamespace = "kith.dev/home-namespace"

	// LabelOrigin on a twin namespace of a consumer that offers on what it is granted holds the ID, in its compact form, of the cluster for which the
	// consumer has it, and LabelOriginNamespace the name of the namespace there.
	LabelOrigin          = "kith.dev/origin"
	LabelOriginNamespace = "kith.dev/origin-namespace"
	// LabelHomeClaim on the claim and the volume that a provider keeps for a claim of its consumer holds the UID of that claim;
	// AnnotationHomeClaim, its "namespace/name".
	LabelHomeClaim      = "kith.dev/home-claim-uid"
	AnnotationHomeClaim = "kith.dev/home-claim"
	// LabelHomeSnapshot on the VolumeSnapshot, and its content, that a provider keeps for one of its consumer holds the UID of that one;
	// AnnotationHomeSnapshot, its "namespace/name"; AnnotationSize how much the contract counts for it, a quantity; AnnotationClass the storage class of
	// its volume, where that is not the default one, on the content at home, too.
	LabelHomeSnapshot      = "kith.dev/home-snapshot-uid"
	AnnotationHomeSnapshot = "kith.dev/home-snapshot"
	AnnotationSize         = "kith.dev/size"
	AnnotationClass        = "kith.dev/storage-class"
	// AnnotationKeptUntil on a volume whose consumer has no contract any more, or gave up its namespace without deleting the claim,
	// tells how long its data is kept (RFC 3339); AnnotationKeepFor, before, for how long that will be by the contract, a duration.
	AnnotationKeptUntil = "kith.dev/kept-until"
	AnnotationKeepFor   = "kith.dev/keep-for"
	// AnnotationMoveTo on a claim of the class kith has its volume moved to a node: a peer's, or home's. Without it a move that has not
	// switched yet is undone. AnnotationMove is how far it is (core/consume/volumes), and the finalizer of that time.
	// AnnotationMoveRate is how many bytes a second that may take, a quantity.
	AnnotationMoveTo   = "kith.dev/move-to"
	AnnotationMoveRate = "kith.dev/move-rate"
	AnnotationMove     = "kith.dev/move"
	// AnnotationSnapshot on a claim that stands behind one of the class kith at home names the VolumeSnapshot whose files the volume begins with, as
	// "namespace/name". It means something in the namespace of such claims alone (NamespaceVolumes): a dataSource names none of another namespace.
	AnnotationSnapshot = "kith.dev/snapshot"
	// LabelContract on provider objects holds the contract's ID.
	LabelContract = "kith.dev/contract"
	// LabelTethered on a virtual node, with value "true", says that it is a laptop that this cluster runs. As the key of a
	// toleration in the template of a DaemonSet of an offloaded namespace it has the DaemonSet run on such nodes too.
	LabelTethered = "kith.dev/tethered"
	// LabelLaptop on what Kith made for the users of a laptop that this cluster runs holds the laptop's cluster ID in its compact form;
	// on a namespace, that {laptop} in a TetherPolicy may mean it.
	LabelLaptop = "kith.dev/laptop"
	// AnnotationTetherNode on a virtual node is what a TetherPolicy had put on it, so that it can be taken off again.
	AnnotationTetherNode = "kith.dev/tether-node"
	// LabelPrice and the name of a resource, with a point in place of the slash (kith.dev/price-cpu, kith.dev/price-nvidia.com.gpu), is on a virtual node
	// what one unit of it costs there for an hour: a whole number of millionths of the currency in LabelPriceCurrency, so that Gt and Lt of a node
	// affinity can compare it. What is free has no such label.
	LabelPrice         = "kith.dev/price-"
	LabelPriceCurrency = "kith.dev/price-currency"
	// LabelIngress and LabelEgress of such a node say what all guests there together may get and send at most, in bits a second, by the peer's
	// word when the contract was signed. Without one there was no bound.
	LabelIngress, LabelEgress = "kith.dev/bandwidth-ingress", "kith.dev/bandwidth-egress"
	// TaintPeer keeps pods that were not offloaded away from virtual nodes.
	TaintPeer = LabelPeer
	// TaintClosed is on a virtual node while none of the peer's nodes takes pods; its value is the peer's word for why.
	TaintClosed = "kith.dev/closed"
	// FinalizerContract holds a Contract back until what belongs to it is cleared away locally.
	FinalizerContract = "kith.dev/contract"
	// FinalizerOffloading holds a NamespaceOffloading back until its pods came home.
	FinalizerOffloading = "kith.dev/offloading"
	// FinalizerOffloadedPod holds an OffloadedPod back until its Pod is gone.
	FinalizerOffloadedPod = "kith.dev/pod"
	// AnnotationGrace on an OffloadedPod, set by the consumer before it deletes it, is the grace period in whole seconds
	// its Pod is deleted with; "0" deletes by force. The API server forgets DeleteOptions.gracePeriodSeconds for custom
	// resources, hence this. Without it the pod's own holds.
	AnnotationGrace = "kith.dev/grace-seconds"
	// AnnotationForce on a NamespaceOffloading that is being deleted, with value "true", brings the pods home that disruption budgets hold.
	AnnotationForce = "kith.dev/force"
	// AnnotationHomePod on a guest Pod tells its owner's "namespace/name".
	AnnotationHomePod = "kith.dev/home-pod"

	// AnnotationFor on a guest Pod whose consumer offers on what it is granted names the cluster that it is for, as "ID/name".
	AnnotationFor = "kith.dev/for"
	// AnnotationHomePriority on a guest Pod is its priority at home, of those that are not 0: a whole number.
	AnnotationHomePriority = "kith.dev/home-priority"
	// AnnotationRegistries on a twin namespace says whence images may be pulled for the pods in it, in the form of
	// ImageRules.Registries with commas; a * stands for every registry of the internet, RegistryHome for the guests' home. The builtin engine asks it at each pull.
	AnnotationRegistries = "kith.dev/registries"
	// RegistryHome in AnnotationRegistries is no name that a registry can have.
	RegistryHome = "@home"
	// AnnotationUserNamespaces on a node says whether pods there may have a user namespace of their own: "yes", or why not.
	// The builtin engine tries it; the owner of another cluster may set it himself.
	AnnotationUserNamespaces = "kith.dev/user-namespaces"
	// LabelFenced on a node, with value "true", says that a fence of Kith's is alive there (core/provide/fenced, which alone writes it). Guests run on
	// such nodes alone, and offers count no other; ask Fenced.
	LabelFenced = "kith.dev/fenced"
	// AnnotationFencedBy on a node tells who keeps, or kept last, the fence there: FencedByKithd or FencedByAgent.
	AnnotationFencedBy = "kith.dev/fenced-by"
	FencedByKithd      = "kithd" // the gateway was there
	FencedByAgent      = "agent" // `kithd node`
	// GuestPriorityClass is the PriorityClass of all guests: below every other, and preempting nobody.
	GuestPriorityClass = "kith-guest"
	// ManagedBy is the value of LabelManagedBy and the field owner of server-side applies.
	ManagedBy = "kith"
	// StorageProvisioner makes the volumes of claims of the class StorageClassName, and of others of its kind whose names begin with
	// StorageClassName and a dash; it is the driver of those at peers, too.
	StorageProvisioner = "storage.kith.dev"
	StorageClassName   = "kith"
	// GuestStorageClass is the provider's class for volumes of guests: as its default class, but their data outlives their claims.
	GuestStorageClass = "guests.kith.dev"
	// ParameterClass is the parameter of a class of StorageProvisioner that names the storage class whose volumes its claims get, where they are made.
	ParameterClass = "class"
	// VirtualNodePrefix starts the name of every virtual node: VirtualNode has the form.
	VirtualNodePrefix = "kith-"
	// NamespaceVolumes is where the claims are whose volumes at home stand for those of class kith.
	NamespaceVolumes = VirtualNodePrefix + "volumes"

	// LabelBroker on the node of a provider behind a peer names that peer, which LabelPeer does as well: it is what tells such nodes from the peer's own.
	// LabelBehind is what the peer calls the provider, AnnotationBehind its cluster ID, in the peer's word.
	// AnnotationVia on a guest has the ID of the cluster that is to run it, where its consumer says so.
	AnnotationVia    = "kith.dev/via"
	LabelBroker      = "kith.dev/broker"
	LabelBehind      = "kith.dev/behind"
	AnnotationBehind = "kith.dev/behind-id"
)
