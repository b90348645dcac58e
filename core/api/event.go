package api

import "time"

// EventType is the stable word for what happened.
type EventType string

// The types of event. A reader must expect types that are not in this list.
const (
	EventDaemonStarted    EventType = "DaemonStarted"
	EventRangeWrong       EventType = "RangeWrong" // podRange is not what the cluster says
	EventPeerSeen         EventType = "PeerSeen"   // a cluster is known for the first time
	EventPeerLost         EventType = "PeerLost"   // it is no longer announced
	EventPeerForgotten    EventType = "PeerForgotten"
	EventRequestReceived  EventType = "RequestReceived"
	EventRequestAnswered  EventType = "RequestAnswered" // accepted, declined or expired; Message says which
	EventConfirm          EventType = "Confirm"         // a peer accepted; this owner has to compare the code, or agree to terms
	EventContractSigned   EventType = "ContractSigned"
	EventLowering         EventType = "Lowering" // the provider gives notice that it lowers a contract
	EventWoken            EventType = "Woken"    // this machine was woken otherwise than was agreed
	EventPeerConnected    EventType = "PeerConnected"
	EventPeerUnreachable  EventType = "PeerUnreachable"
	EventPeeringEnded     EventType = "PeeringEnded"
	EventPolicyChanged    EventType = "PolicyChanged"
	EventNamespaceChanged EventType = "NamespaceChanged" // offloaded, or home again
	EventTetherMade       EventType = "TetherMade"       // the company's cluster decides from now on
	EventTetherLost       EventType = "TetherLost"       // it cannot be reached
	EventTetherEnded      EventType = "TetherEnded"      // this machine decides again
	EventLaptopTethered   EventType = "LaptopTethered"   // this cluster runs a laptop from now on
	EventLaptopReturned   EventType = "LaptopReturned"   // it is its owner's again
	EventNodeLeftOut      EventType = "NodeLeftOut"      // its fence is not alive: no new guest runs on that node of this cluster
	EventNodeTakesGuests  EventType = "NodeTakesGuests"  // it is alive again
	EventStoodStill       EventType = "StoodStill"       // this machine was suspended, and guests with it: Message says which and how long
	EventKeptAwake        EventType = "KeptAwake"        // this machine is kept awake from now on
	EventMaySleep         EventType = "MaySleep"         // it is so no more; Reason says why
	EventSecurity         EventType = "Security"         // a wrong key, a replay, a refused reach
	EventMissed           EventType = "Missed"           // the reader was too slow: Message says how many are gone
)

// EventReason says what a type alone does not. Who reads one that it does not know takes it for none.
type EventReason string

// The reasons.
const (
	ReasonTakenBack    EventReason = "TakenBack"    // of EventRequestAnswered: here, by the owner or for what would have been signed; of EventLowering: it does not after all
	ReasonLowered      EventReason = "Lowered"      // of EventContractSigned: it grants less, as EventLowering said
	ReasonTooOften     EventReason = "TooOften"     // of EventWoken: more often within a day than the contract says
	ReasonByNobody     EventReason = "ByNobody"     // of EventWoken: by its network, and no peer says that it did
	ReasonAnswersAgain EventReason = "AnswersAgain" // of EventTetherMade: the company, that could not be reached
	ReasonNotTethered  EventReason = "NotTethered"  // of EventTetherEnded: the switch did not come about
	ReasonUntethered   EventReason = "Untethered"   // of EventTetherEnded: for what Message says, and not by this machine's owner
	ReasonRenewed      EventReason = "Renewed"      // of EventContractSigned: it runs on, with the same amounts; nobody asked for anything
	ReasonByOwner      EventReason = "ByOwner"      // of EventMaySleep
	ReasonGuestsEnded  EventReason = "GuestsEnded"  // of EventMaySleep: no guest runs here any more
	ReasonTimeIsUp     EventReason = "TimeIsUp"     // of EventMaySleep
	ReasonBatteryLow   EventReason = "BatteryLow"   // of EventMaySleep
	ReasonNoLogind     EventReason = "NoLogind"     // of EventMaySleep: nothing gives a lock any more
)

// Event is one thing that happened. The stream of events is JSON, one per line; a blank line is a sign of life.
type Event struct {
	// Seq grows with every event, across restarts of kithd too. The next call's `since` is the last one seen.
	Seq      uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Type     EventType `json:"type"`
	Severity Severity  `json:"severity"`
	Peer     string    `json:"peer,omitempty"`   // name
	Object   string    `json:"object,omitempty"` // "contract/bob-out", "pod/shop/web-0", "request/7f3a"
	Message  string    `json:"message"`
	// Reason, where there is one.
	Reason EventReason `json:"reason,omitempty"`
	// Direction is of the relation that it is about, for EventRequestAnswered, EventContractSigned, EventLowering and EventPeeringEnded.
	Direction Direction `json:"direction,omitempty"`
	// State is what the request became, for EventRequestAnswered: declined, expired or contracted.
	State State `json:"state,omitempty"`
	// ByPeer: the peer did it, not this machine's owner or the time; for EventPeeringEnded.
	ByPeer bool `json:"byPeer,omitempty"`
}

// Progress is what a long call reports while it runs.
type Progress struct {
	Message string `json:"progress"`
	// Code is the six-digit code that both owners compare, when there is one by now.
	Code string `json:"code,omitempty"`
	// Confirm is what the owner has to agree to now: the call waits for PathConfirm.
	Confirm *Confirmation `json:"confirm,omitempty"`
	// Peer is whom to confirm, by name: the call may have named an address.
	Peer string `json:"peer,omitempty"`
	// Finding is what the doctor saw just now.
	Finding *Finding `json:"finding,omitempty"`
}
