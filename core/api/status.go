package api

import "time"

// Mode says who decides what this machine runs.
type Mode string

// EngineKind says which Kubernetes kithd works with.
type EngineKind string

// The kinds of engine.
const (
	EngineBuiltin    EngineKind = "builtin"    // kith-k8s, run by kithd
	EngineK3s        EngineKind = "k3s"        // a K3s, run by kithd or by its owner
	EngineKubeconfig EngineKind = "kubeconfig" // a cluster that somebody else runs
	EngineNone       EngineKind = "none"       // no cluster: discovery and the local API only
)

// EngineState says how the engine is.
type EngineState string

// The states of an engine.
const (
	EngineStarting EngineState = "starting"
	EngineReady    EngineState = "ready"
	EngineDegraded EngineState = "degraded" // it answers, and something is wrong; Why says what
	EngineStopped  EngineState = "stopped"
	EngineFailed   EngineState = "failed"
	EngineAsleep   EngineState = "asleep" // nothing of it runs until somebody needs it
)

// Status is all that a user wants to know at one glance.
type Status struct {
	Name     string         `json:"name"`    // of this cluster, as peers see it
	ID       string         `json:"id"`      // hash of the cluster's key, 8 groups of 7 joined by dashes
	ShortID  string         `json:"shortId"` // its first group, lower case
	Version  string         `json:"version"` // of kithd
	Mode     Mode           `json:"mode"`
	Tether   *Tether        `json:"tether,omitempty"` // nil while the mode is Autonomous
	Started  time.Time      `json:"started,omitzero"` // when kithd started
	Engine   Engine         `json:"engine"`
	Sharing  Sharing        `json:"sharing"`
	Counts   Counts         `json:"counts"`
	Listen   List[Listener] `json:"listen"`
	Exposed  *Exposed       `json:"exposed,omitempty"` // nil: services are open to this machine alone
	Waiting  List[Problem]  `json:"waiting"`           // for the owner's answer: requests, and codes to compare
	Problems List[Problem]  `json:"problems"`
	Awake    *Awake         `json:"awake,omitempty"` // nil: nothing suspends this machine that could be kept from it

	Transfers List[ImageTransfer] `json:"transfers,omitempty"` // of images to peers, at this moment
}

// Engine is the local Kubernetes.
type Engine struct {
	Kind       EngineKind  `json:"kind"`
	State      EngineState `json:"state"`
	Why        string      `json:"why,omitempty"`     // one sentence, for every state but ready
	Version    string      `json:"version,omitempty"` // of Kubernetes, "v1.36.3"
	Node       string      `json:"node,omitempty"`    // name of this machine's node
	NodeIP     string      `json:"nodeIP,omitempty"`
	Kubeconfig string      `json:"kubeconfig,omitempty"` // path of the administrator's kubeconfig

	Chosen string       `json:"chosen,omitempty"` // why this kind, where kithd chose it
	Others List[string] `json:"others,omitempty"` // sentences, each of another kind that the owner could choose
}

// Exposed says that services of type NodePort and LoadBalancer are open to neighbours.
type Exposed struct {
	To        string       `json:"to"`        // "lan"
	Addresses List[string] `json:"addresses"` // of this machine there, IPv4; none while it is on no LAN that has that
}

// Sharing is the sum of the policies: what this machine offers, and how much of it is taken.
type Sharing struct {
	Policy     string    `json:"policy,omitempty"` // name of the policy shown, the one without a selector
	Share      string    `json:"share,omitempty"`  // "50%"
	Amounts    Resources `json:"amounts"`          // what is offered in all, absolute
	Used       Resources `json:"used"`             // what contracts have of it
	AutoAccept bool      `json:"autoAccept"`       // requests are answered without asking
	Paused     bool      `json:"paused"`           // nothing new is accepted
	Why        string    `json:"why,omitempty"`    // why paused, or why less than the policy says
}

// Counts are the lengths of the lists.
type Counts struct {
	Peers      int `json:"peers"`      // known, reachable or not
	Connected  int `json:"connected"`  // with a relation in use, either direction
	Requests   int `json:"requests"`   // waiting for the answer of this machine's owner
	Contracts  int `json:"contracts"`  // in force, either role
	PodsAbroad int `json:"podsAbroad"` // pods of this cluster that run at peers
	Guests     int `json:"guests"`     // pods of peers that run here
	Laptops    int `json:"laptops"`    // laptops that this cluster runs, or is about to: those tethered to it
}

// Listener is a door that kithd holds open.
type Listener struct {
	Name    string `json:"name"`    // "peer-api", "wireguard", "metrics"
	Network string `json:"network"` // "tcp", "udp", "unix"
	Address string `json:"address"` // "0.0.0.0:6450"
}

// Severity ranks problems and events.
type Severity string

// The severities.
const (
	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning"
	SeverityError   Severity = "error"
)

// Problem is something that is wrong now, or waits for somebody: what, why, and what to do.
type Problem struct {
	// Kind is of those that are shown, or looked at, elsewhere too.
	Kind     ProblemKind `json:"kind,omitempty"`
	Severity Severity    `json:"severity"`
	What     string      `json:"what"`
	Why      string      `json:"why,omitempty"`
	Do       string      `json:"do,omitempty"`
}

// ProblemKind says what a problem is about.
type ProblemKind string

// The kinds.
const (
	ProblemEngine ProblemKind = "Engine" // the local Kubernetes is not ready
	ProblemClock  ProblemKind = "Clock"  // this machine's clock is wrong
)

// Version says what runs.
type Version struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	Go         string `json:"go,omitempty"`         // of the toolchain
	Kubernetes string `json:"kubernetes,omitempty"` // of the engine, when it is up
}
