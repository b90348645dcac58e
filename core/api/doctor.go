package api

// CheckState is the outcome of a check.
type CheckState string

// The outcomes.
const (
	CheckOK      CheckState = "ok"
	CheckWarning CheckState = "warning" // something will not work as well as it could, or not for long
	CheckFail    CheckState = "fail"    // something does not work
)

// The areas that checks are about.
const (
	AreaDaemon    = "daemon"    // does kithd run
	AreaEngine    = "engine"    // the local Kubernetes
	AreaPorts     = "ports"     // who listens where
	AreaAddresses = "addresses" // ranges of addresses and the networks around
	AreaKernel    = "kernel"    // what the kernel must have and do
	AreaDisk      = "disk"
	AreaPeer      = "peer" // the way to a peer, end to end
)

// Finding is one thing that kith doctor looked at. What, why and what to do are sentences for people; scripts go by Area,
// Name and Peer, which are stable.
type Finding struct {
	Area  string     `json:"area"`
	Peer  string     `json:"peer,omitempty"` // its name, in AreaPeer
	Name  string     `json:"name"`           // "api-server", "handshake"
	State CheckState `json:"state"`
	What  string     `json:"what"`          // what was found
	Why   string     `json:"why,omitempty"` // the error, or what follows from it
	Do    string     `json:"do,omitempty"`
}
