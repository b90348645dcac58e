package api

import (
	"cmp"
	"strings"
	"time"
)

// State is how far a relation is, in one direction. core/agree/peering holds the table of transitions.
type State string

// The states of a relation.
const (
	StateNone        State = "none"        // nothing asked
	StateRequested   State = "requested"   // asked, not answered; or accepted, not signed yet
	StateDeclined    State = "declined"    // the provider said no
	StateExpired     State = "expired"     // nobody answered, or nobody signed, in time
	StateContracted  State = "contracted"  // signed by both, the link is not up yet
	StateConnected   State = "connected"   // usable
	StateUnreachable State = "unreachable" // contract in force, link lost
	StateEnding      State = "ending"      // pods come home, the tenant is cleared away
)

// Source says how a peer was found.
type Source string

// The sources.
const (
	SourceLAN    Source = "lan"
	SourceDNS    Source = "dns"
	SourceManual Source = "manual"
)

// Peer is a cluster that is known here. Outgoing is what this cluster gets from it, incoming what it gets from here.
//
// Name is a hint that the peer chose; it is unique here because a second "bob" is named "bob-<short id>". Whoever
// shows it must expect any characters.
type Peer struct {
	Name      string       `json:"name"`
	ID        string       `json:"id"`
	ShortID   string       `json:"shortId"`
	Source    Source       `json:"source"`
	Addresses List[string] `json:"addresses"` // host:port of its peer API, best first
	LastSeen  time.Time    `json:"lastSeen,omitzero"`
	Reachable bool         `json:"reachable"`           // its peer API answered the last time it was tried
	By        string       `json:"by,omitempty"`        // who passes the connection on: a common peer, or the peer itself, when it called back; "" when it was dialled
	Asleep    bool         `json:"asleep,omitempty"`    // reachable, and its Kubernetes sleeps until somebody needs it
	Suspended bool         `json:"suspended,omitempty"` // not reachable: it said that its laptop goes to sleep
	DownSince time.Time    `json:"downSince,omitzero"`  // when a peer under contract could not be reached any more
	Outgoing  State        `json:"outgoing"`            // this cluster consumes from the peer
	Incoming  State        `json:"incoming"`            // the peer consumes from this cluster
	Why       string       `json:"why,omitempty"`       // one sentence on the states: "declined 2 min ago"
	Code      string       `json:"code,omitempty"`      // six digits, while a request is pending in either direction
	Node      string       `json:"node,omitempty"`      // the node that stands for the peer here
	Offered   Resources    `json:"offered"`             // what the peer offers this cluster (its contract, else its advertisement)
	// Prices are those of what it offers: of one unit of a resource for an hour ("0.02 EUR"); what is not named is free.
	Prices map[string]string `json:"prices,omitempty"`
	Gives  *Gives            `json:"gives,omitempty"` // what it would give this cluster now; nil with a contract, and where it does not say
	Used   Resources         `json:"used"`            // what this cluster's pods there request
	Asked  Resources         `json:"asked,omitempty"` // all amounts of a change of the contract that waits for an answer
	Less   string            `json:"less,omitempty"`  // what the contract grants less than was asked for: "asked cpu 100000, granted 8"
	Pods   PeerPods          `json:"pods"`
	Tunnel Tunnel            `json:"tunnel"`
	// Network is NetworkNone where the contract is one without a network, and so without a tunnel.
	Network string `json:"network,omitempty"`
	// Left counts the namespaces that the peer still keeps although this cluster has, or offloads, them no more.
	Left int `json:"left,omitempty"`
	// Tether is how a tether stands in which one of the two runs the other; nil without one.
	Tether *PeerTether `json:"tether,omitempty"`
	// Confirm is what this owner has to agree to before a contract is signed; nil when there is nothing.
	Confirm *Confirmation `json:"confirm,omitempty"`
	// Unchanged: what was asked for is granted already, so that nobody was asked. Only in the answer to PeerAsk.
	Unchanged bool `json:"unchanged,omitempty"`
}

// GivesState says whether a peer would give something.
type GivesState string

// The states of Gives.
const (
	GivesSome    GivesState = "some"
	GivesPaused  GivesState = "paused"  // it shares with this cluster, but not now
	GivesNothing GivesState = "nothing" // it does not, or all is given away
)

// Gives is what a yes of a peer would give this cluster at this moment, as the peer says.
type Gives struct {
	State     GivesState `json:"state"`
	Resources Resources  `json:"resources,omitempty"` // with GivesSome
	Why       string     `json:"why,omitempty"`       // else
}

// Confirmation is what the owner of the asking cluster has to agree to once the peer accepted, before anything is signed.
type Confirmation struct {
	// Code is the six digits that the other owner's screen must show too; left out when the peer's key is known here.
	Code string `json:"code,omitempty"`
	// Terms are sentences on what the peer's terms have beyond what was asked for: "cpu costs 0.02 EUR an hour".
	Terms   List[string] `json:"terms,omitempty"`
	Expires time.Time    `json:"expires,omitzero"` // nothing is signed after that
}

// PeerConfirm is the body of the call that answers a Confirmation.
type PeerConfirm struct {
	// Code is the six digits as the other owner's screen shows them; another code than the one here takes the request back.
	Code string `json:"code,omitempty"`
	// ID is the peer's whole ID as its owner gave it, in place of a code.
	ID string `json:"id,omitempty"`
	// Terms agrees to the terms shown.
	Terms bool `json:"terms,omitempty"`
	// Reject: the codes differ, or the terms are not agreed to. The request is taken back and nothing is signed.
	Reject bool `json:"reject,omitempty"`
}

// ParseCode reads the six digits of a pairing code as people write them, with or without a space in the middle: "069 210" is
// "069210". None is none.
func ParseCode(field, text string) (string, error) {
	code := strings.ReplaceAll(text, " ", "")
	if code != "" && (len(code) != 6 || strings.Trim(code, "0123456789") != "") {
		return "", Invalid(field, text, "the six digits that the other owner's screen shows, such as 069210")
	}
	return code, nil
}

// PeerPods counts the pods that cross.
type PeerPods struct {
	Abroad int `json:"abroad"` // of this cluster, at the peer
	Guests int `json:"guests"` // of the peer, here
	// The ranges out of which they have their addresses, "10.64.3.0/24", which are the same everywhere; none before the two are linked.
	AbroadRange string `json:"abroadRange,omitempty"`
	GuestsRange string `json:"guestsRange,omitempty"`
}

// Tunnel is the WireGuard tunnel to a peer.
type Tunnel struct {
	Up            bool      `json:"up"`
	LastHandshake time.Time `json:"lastHandshake,omitzero"`
	RX            uint64    `json:"rx"`            // bytes received
	TX            uint64    `json:"tx"`            // bytes sent
	RTT           Duration  `json:"rtt,omitzero"`  // round trip, smoothed; left out while not measured
	Way           TunnelWay `json:"way,omitempty"` // how packets get there; "" while it is down
	By            string    `json:"by,omitempty"`  // with TunnelCarried: the common peer that passes the connection on; "" where the two have one of their own
	// Reason is why packets do not go by UDP, with TunnelCarried.
	Reason TunnelReason `json:"reason,omitempty"`
	// Direct are the ways by which the peer's guests here meet those at its other providers, past the peer.
	Direct []DirectWay `json:"direct,omitempty"`
}

// TunnelWay is one of a closed set.
type TunnelWay string

// The ways of a tunnel.
const (
	TunnelDirect  TunnelWay = "direct"  // by UDP, as the peer is dialled
	TunnelMapped  TunnelWay = "mapped"  // by UDP, to a port that the router of one of the two maps to it
	TunnelPunched TunnelWay = "punched" // by UDP, through the routers of two who cannot dial each other
	TunnelCarried TunnelWay = "carried" // over a connection like those of the peer API, since UDP does not lead there
)

// TunnelReason is one of a closed set.
type TunnelReason string

// Why packets do not go by UDP.
const (
	TunnelTrying       TunnelReason = "Trying"
	TunnelNotSeen      TunnelReason = "NotSeen"
	TunnelOtherNetwork TunnelReason = "OtherNetwork"
	TunnelSameRouter   TunnelReason = "SameRouter"
	TunnelNewPorts     TunnelReason = "NewPorts"
	TunnelNoAnswer     TunnelReason = "NoAnswer"
	TunnelStopped      TunnelReason = "Stopped"
)

// String is a sentence for people, without a full stop.
func (r TunnelReason) String() string {
	switch r {
	case TunnelTrying:
		return "UDP is being tried"
	case TunnelNotSeen:
		return "no common peer sees by UDP where the other laptop is"
	case TunnelOtherNetwork:
		return "the other laptop is seen in a private network alone, which this one is not in"
	case TunnelSameRouter:
		return "both are behind one router, which does not lead back in"
	case TunnelNewPorts:
		return "a router in front of one of the two takes another port for each address"
	case TunnelNoAnswer:
		return "no packet came through: one of the two is behind a router that takes another port for each address, or UDP is shut"
	case TunnelStopped:
		return "packets went by UDP before, and do not come through any more"
	}
	return string(r)
}

// Says tells by which way packets go, for people: "direct", "relayed by carol"; "" while the tunnel is down.
func (t Tunnel) Says() string {
	switch {
	case t.Way == TunnelMapped:
		return "direct by a mapped port"
	case t.Way == TunnelCarried && t.By != "":
		return "relayed by " + t.By
	case t.Way == TunnelCarried:
		return "over TCP"
	}
	return string(t.Way)
}

// DirectWay is a tunnel between two providers of a home, to which home introduced them to each other.
type DirectWay struct {
	ID    string         `json:"id"`   // of the other provider
	Peer  string         `json:"peer"` // its name here, or its short ID where this cluster does not know it
	State DirectWayState `json:"state"`
	Since time.Time      `json:"since,omitzero"` // of the state
}

// DirectWayState is one of a closed set.
type DirectWayState string

// The states of a direct way.
const (
	DirectWayUp     DirectWayState = "direct"  // packets take it
	DirectWayByHome DirectWayState = "by-home" // the other provider does not answer: they go by home
	DirectWayIdle   DirectWayState = "idle"    // there were none for two minutes
)

// AddPeer is the body of the call that makes a peer known by its address, by a name, or from a catalogue.
type AddPeer struct {
	// Address is the host:port of its peer API; or a name, of which the SRV records say where that is, else the host's addresses, at port 6450.
	Address string `json:"address"`
	// From is the peer in whose catalogue it is; Address is its name or ID there.
	From string `json:"from,omitempty"`
}

// PeerAsk is the body of the call that asks a peer for resources.
type PeerAsk struct {
	// Resources asked for; none means all that the peer offers. With a contract in force what is not named stays as it is, and
	// what changes nothing is not asked.
	Resources Resources `json:"resources"`
	// Wait makes the call end when the peer is connected, or has declined, or the request expired. Without it the
	// call ends as soon as the request is delivered, with the code in Peer.Code.
	Wait bool `json:"wait"`
	// Code confirms beforehand: the six digits as the other owner's screen shows them. Another request than the one that
	// is pending is not made.
	Code string `json:"code,omitempty"`
	// ID is the peer's whole ID as its owner gave it: a comparison of the key itself, after which no code is needed here.
	ID string `json:"id,omitempty"`
	// Network is NetworkNone to ask for a contract without a tunnel, and NetworkTunnel to take that back; "": as it was asked for before, or is in force.
	Network string `json:"network,omitempty"`
}

// NetworkTunnel asks for a contract as the peer offers it, with a network or without.
const NetworkTunnel = "tunnel"

// Check says whether it is well formed, but for the amounts.
func (a PeerAsk) Check() error {
	switch a.Network {
	case "", NetworkNone, NetworkTunnel:
		return nil
	}
	return Invalid("network", a.Network, NetworkNone+" or "+NetworkTunnel+", or nothing, where it is as it was asked for before")
}

// Direction says who asked, or whose pods a relation carries: outgoing is this cluster's own.
type Direction string

// The directions.
const (
	Outgoing Direction = "outgoing"
	Incoming Direction = "incoming"
)

// Request is a pending question: may this peer have these resources?
type Request struct {
	ID        string    `json:"id"`
	Peer      string    `json:"peer"`
	PeerID    string    `json:"peerId"`
	Direction Direction `json:"direction"`
	Code      string    `json:"code,omitempty"` // six digits; left out when the peer's key was accepted before
	Asked     Resources `json:"asked"`          // none: all that is shared
	// Granted is what accepting grants now, or has granted: of what is asked as much as is shared and free. It
	// names every resource. Of incoming requests only; so are InForce and Refusal.
	Granted Resources `json:"granted,omitempty"`
	InForce Resources `json:"inForce,omitempty"` // what the peer has already, by its contract
	Refusal string    `json:"refusal,omitempty"` // why a yes would give nothing
	Tether  bool      `json:"tether,omitempty"`  // it asks for no resources: the asker wants the other cluster to run it
	Network string    `json:"network,omitempty"` // NetworkNone: there would be no network between the clusters
	Means   string    `json:"means,omitempty"`   // with Tether, what a yes means: "this cluster runs it; its users work in team-a (edit)"
	State   State     `json:"state"`             // requested, declined, expired, contracted
	Address string    `json:"address,omitempty"` // where it came from
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// Grants says in words what accepting the request grants: amounts, or Means.
func (r Request) Grants() string {
	if r.Tether && r.Refusal == "" {
		return cmp.Or(r.Means, "this cluster runs it")
	}
	if len(r.Granted) == 0 {
		return "nothing: " + cmp.Or(r.Refusal, "this kithd does not say what is free")
	}
	if r.Network == NetworkNone {
		return Change(r.InForce, r.Granted, r.Asked) + ", with no network between the clusters"
	}
	return Change(r.InForce, r.Granted, r.Asked)
}

// Accept is the body of the call that accepts a request; it may be left out.
type Accept struct {
	// Granted is Request.Granted as the one who accepts was shown it: no more is granted, whatever became free since. What it
	// does not name is not granted. None: what Request.Granted is at the moment of the call.
	Granted Resources `json:"granted,omitempty"`
}
