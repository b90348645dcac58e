package api

import (
	"net/url"
	"time"
)

// Why says why a pod is where it is, or why it does not run: a chain of causes, the nearest first.
type Why struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"` // of the pod; left out when the workload that was asked for has none
	// Of is the workload that was asked for, "deployment/web"; then the pod is the one of its pods that is farthest from running.
	Of     string      `json:"of,omitempty"`
	Pods   *WhyPods    `json:"pods,omitempty"`  // with Of
	Guest  string      `json:"guest,omitempty"` // whose guest it is, of one here; its home knows more
	State  PodState    `json:"state"`
	Laptop string      `json:"laptop,omitempty"` // where it is; left out while no laptop has it
	Since  time.Time   `json:"since,omitzero"`   // of the state, as far as that is known
	Causes List[Cause] `json:"causes"`
}

// WhyPods counts the pods of a workload.
type WhyPods struct {
	All   int `json:"all"`
	Ready int `json:"ready"`
}

// PodState says in one word how far a pod is.
type PodState string

// The states, the farthest from running first.
const (
	PodMissing  PodState = "missing"  // the workload has no pod at all
	PodFailed   PodState = "failed"   // it has ended, and nobody starts it again
	PodWaiting  PodState = "waiting"  // no laptop takes it
	PodRefused  PodState = "refused"  // the peer that it was given to does not run it
	PodFailing  PodState = "failing"  // a laptop has it, and something in it does not start or keeps ending
	PodUnknown  PodState = "unknown"  // it is at a peer of which nothing is heard
	PodNotReady PodState = "notReady" // it runs, and takes no requests
	PodStarting PodState = "starting" // it is on its way
	PodEnding   PodState = "ending"   // it was deleted
	PodReady    PodState = "ready"    // it runs
	PodDone     PodState = "done"     // it has done its work
)

// PodStates are all of them, in that order.
var PodStates = []PodState{PodMissing, PodFailed, PodWaiting, PodRefused, PodFailing, PodUnknown, PodNotReady, PodStarting, PodEnding, PodReady, PodDone}

// Who says who can change something.
type Who string

// Who can.
const (
	WhoYou    Who = "you"    // the owner of this cluster, or of the pod
	WhoPeer   Who = "peer"   // the owner of Cause.Laptop
	WhoHome   Who = "home"   // the owner of Why.Guest, of a guest here
	WhoNobody Who = "nobody" // nobody need: it passes by itself
)

// CauseReason is what a Cause is about.
type CauseReason string

// The reasons: that nothing decides, or nobody takes the pod.
const (
	CauseNotScheduled  CauseReason = "NotScheduledYet" // the scheduler has not come to it
	CauseGated         CauseReason = "SchedulingGated" // the pod itself says that it is not to be scheduled yet
	CauseTethered      CauseReason = "Tethered"        // nothing decides here while a company's cluster does
	CauseScheduler     CauseReason = "Scheduler"       // the scheduler has a reason that is none of those below; Said has its words
	CauseNotOffloaded  CauseReason = "NotOffloaded"    // pods of the namespace may not go to peers
	CauseStaysHome     CauseReason = "StaysHome"       // its strategy keeps them at home
	CauseComesHome     CauseReason = "ComesHome"       // it is being brought home
	CauseNotThisPeer   CauseReason = "NotThisPeer"     // it may go to other peers
	CauseBudget        CauseReason = "Budget"          // the budget of its namespace closes the peer; Detail says why: spent or otherCurrency
	CauseMadeBefore    CauseReason = "MadeBefore"      // the pod is older than the offloading, and does not tolerate peers
	CauseVolumeHome    CauseReason = "VolumeAtHome"    // pods with a volume claim stay where the volume is
	CauseDeviceHome    CauseReason = "DeviceAtHome"    // pods with a resource claim stay where its devices are
	CauseOnlyAbroad    CauseReason = "OnlyAbroad"      // its strategy keeps them from running at home
	CauseNoPeer        CauseReason = "NoPeer"          // there is no contract with any peer
	CauseNoRoom        CauseReason = "NoRoom"          // Short says of what, and how much is free
	CauseRoomAsked     CauseReason = "RoomAsked"       // PeeringPolicies, Names, ask peers for more room while pods wait; Detail is their state
	CauseCordoned      CauseReason = "Cordoned"        // the node takes no new pods
	CauseClosed        CauseReason = "Closed"          // none of the peer's nodes takes pods
	CauseNoNetwork     CauseReason = "NoNetwork"       // there is no network to the peer, and the pod does not say that it needs none
	CauseNodeNotReady  CauseReason = "NodeNotReady"
	CauseTainted       CauseReason = "Tainted"     // the node has a taint that the pod does not tolerate; Names has it
	CauseNotSelected   CauseReason = "NotSelected" // the pod asks for other nodes; Names says for which
	CauseAvoided       CauseReason = "Avoided"     // the peer refused one like it lately
	CauseClaimMissing  CauseReason = "ClaimMissing"
	CauseClaimPending  CauseReason = "ClaimPending"
	CauseVolumeMoves   CauseReason = "VolumeMoves"        // its volume is on its way to a peer or a node of home, Detail, and no pod may have it meanwhile
	CauseVolumeElse    CauseReason = "VolumeElsewhere"    // its volume is on another node; Detail names the peer that it is at
	CauseNoClass       CauseReason = "VolumeClass"        // no storage of the class that its claim, Names, asks for is to be had there; Detail names it, "" for the default one
	CauseUnschedulable CauseReason = "UnschedulableThere" // the peer's own scheduler finds no node for it
)

// The reasons: between home and the peer that it was given to.
const (
	CauseUnreachable CauseReason = "PeerUnreachable"
	CauseWakes       CauseReason = "Wakes" // the peer sleeps, and may be woken; Detail is how far that is
	CauseTunnelDown  CauseReason = "TunnelDown"
	CauseTwinRefused CauseReason = "NamespaceRefused" // the peer makes no namespace for it
	CauseNotSent     CauseReason = "NotSent"          // what it needs could not be brought there, or it could not be asked for
	CauseAsking      CauseReason = "Asking"           // it is on its way there
	CauseRefused     CauseReason = "Refused"          // the peer does not run it; Detail has its word for why
	CauseRemaking    CauseReason = "Remaking"         // it was lost there, and is made again
	CauseLost        CauseReason = "Lost"             // it was lost there, and must not be made again
)

// The reasons: what the laptop that has the pod says of it.
const (
	CauseRuns         CauseReason = "Runs"
	CauseStarts       CauseReason = "Starts"
	CauseDone         CauseReason = "Done"
	CauseDeleted      CauseReason = "Deleted"
	CauseEvicted      CauseReason = "Evicted"
	CauseRejected     CauseReason = "Rejected" // its kubelet did not admit it, or ended it; Detail has the word
	CauseImagePulling CauseReason = "ImagePulling"
	CauseImage        CauseReason = "ImageNotPulled"
	CauseVolume       CauseReason = "VolumeNotMounted"
	CauseSandbox      CauseReason = "SandboxNotMade"   // nothing to run containers in: the network, mostly
	CauseConfig       CauseReason = "ContainerNotMade" // something that it refers to is missing, mostly
	CauseInitRuns     CauseReason = "InitContainerRuns"
	CauseCrashes      CauseReason = "Crashes"
	CauseExited       CauseReason = "Exited"
	CauseRestarted    CauseReason = "Restarted" // it runs, and was started anew lately
	CauseProbe        CauseReason = "ProbeFails"
	CauseGate         CauseReason = "ReadinessGate"
	CauseOther        CauseReason = "Other"       // Detail has the word of Kubernetes
	CauseNoPods       CauseReason = "NoPods"      // nothing makes pods of the workload, or none yet
	CauseScaledDown   CauseReason = "ScaledDown"  // it asks for none
	CauseNotMade      CauseReason = "PodsNotMade" // they are refused at home; Said has the words
)

// Cause is one of them: typed values to decide by, and sentences for people.
type Cause struct {
	Reason    CauseReason  `json:"reason"`
	Laptop    string       `json:"laptop,omitempty"` // where
	Peer      bool         `json:"peer,omitempty"`   // that is a peer's
	Who       Who          `json:"who,omitempty"`    // can change it
	Container string       `json:"container,omitempty"`
	Detail    string       `json:"detail,omitempty"` // the word that Kubernetes, or the peer, has for it: "ImagePullBackOff", "PodSecurity"
	Short     List[Short]  `json:"short,omitempty"`  // of CauseNoRoom
	Names     List[string] `json:"names,omitempty"`  // of what the reason is about
	ExitCode  *int32       `json:"exitCode,omitempty"`
	Restarts  int32        `json:"restarts,omitempty"`
	Since     time.Time    `json:"since,omitzero"`
	// Transfer is how far an image is that the peer takes from this laptop; of ImagePulling.
	Transfer *ImageTransfer `json:"transfer,omitempty"`
	Said     string         `json:"said,omitempty"` // words of Kubernetes or of the peer, for people
	// What is so, Why, and what Who can Do about it.
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Do   string `json:"do,omitempty"`
}

// Short is a resource of which a laptop has too little.
type Short struct {
	Resource string `json:"resource"`
	Asked    string `json:"asked"`
	Free     string `json:"free"`
	Of       string `json:"of"` // all that the node has, or the contract grants
}

// WhyOptions name a pod, or a workload, in the query of the call.
type WhyOptions struct {
	Namespace string
	Kind      string // "pod", or a kind that WorkloadKinds has
	Name      string
}

// WorkloadKinds are the kinds of workloads whose pods can be asked about, as people name them.
var WorkloadKinds = map[string]string{
	"deployment": "deployment", "deployments": "deployment", "deploy": "deployment",
	"replicaset": "replicaset", "replicasets": "replicaset", "rs": "replicaset",
	"statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset",
	"daemonset": "daemonset", "daemonsets": "daemonset", "ds": "daemonset",
	"job": "job", "jobs": "job",
	"pod": "pod", "pods": "pod", "po": "pod",
}

// Query is what ParseWhyOptions reads.
func (o WhyOptions) Query() url.Values {
	return url.Values{"namespace": {o.Namespace}, "kind": {o.Kind}, "name": {o.Name}}
}

// ParseWhyOptions reads them from a query. The kind is "pod" when it is left out, the namespace "default".
func ParseWhyOptions(q url.Values) (o WhyOptions, err error) {
	o = WhyOptions{Namespace: q.Get("namespace"), Kind: q.Get("kind"), Name: q.Get("name")}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Kind == "" {
		o.Kind = "pod"
	}
	kind, known := WorkloadKinds[o.Kind]
	if !known {
		return o, Invalid("kind", o.Kind, "pod, deployment, statefulset, daemonset, replicaset or job")
	}
	o.Kind = kind
	for field, value := range map[string]string{"namespace": o.Namespace, "name": o.Name} {
		if !kubernetesName(value) {
			return o, Invalid(field, value, "a Kubernetes name: a-z, 0-9, - and .")
		}
	}
	return o, nil
}

func kubernetesName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || i == len(name)-1 || c != '-' && c != '.') {
			return false
		}
	}
	return true
}
