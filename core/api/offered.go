package api

import "time"

// Offered says what a peer would be offered now, and what keeps it from more.
type Offered struct {
	Peer string `json:"peer"`
	ID   string `json:"id"`
	// Policies are all there are, in the order in which they count: the first that selects the peer is the only one that applies.
	Policies List[PolicyLook] `json:"policies"`
	// Policy is the one that applies; left out when none does.
	Policy string `json:"policy,omitempty"`
	// Has is what the contract in force with the peer grants; it stays, whatever is offered.
	Has Resources `json:"has,omitempty"`
	// Reason is why nothing is offered; left out when something is. Resource is the one that there is none of, where the reason is about one.
	Reason   NoOffer `json:"reason,omitempty"`
	Resource string  `json:"resource,omitempty"`
	// Why is the reason in words, as the peer is told it.
	Why string `json:"why,omitempty"`
	// Opens is when the hours of the policy begin, Closes when they end, if they do.
	Opens  time.Time `json:"opens,omitzero"`
	Closes time.Time `json:"closes,omitzero"`
	// Peers is how many other peers hold contracts under the policy, MaxPeers how many may; left out where any number may.
	Peers    int   `json:"peers"`
	MaxPeers int32 `json:"maxPeers,omitempty"`
	// Prices are those of the offer, for one unit and hour ("0.02 EUR"); left out when all of it is free. Margin is what they have on top of those of the
	// providers that From names.
	Prices map[string]string `json:"prices,omitempty"`
	Margin string            `json:"margin,omitempty"`
	// From are the providers whose grants are offered on to the peer, and those that are not because of their prices.
	From List[OfferedFrom] `json:"from,omitempty"`
	// Resources are those that the policy names. They are there when nothing is offered as well, unless that is for no policy or no node.
	Resources List[OfferedResource] `json:"resources"`
}

// OfferedFrom is a provider whose grant may be offered on.
type OfferedFrom struct {
	Peer string `json:"peer"`
	// Prices are those of the contract with it.
	Prices map[string]string `json:"prices,omitempty"`
	// LeftOut: nothing of it is offered on, for with the policy's margin its prices can be none of the offer: they are in another currency than the
	// policy's, or than those of a provider before it, or come to more digits than a price has.
	LeftOut bool `json:"leftOut,omitempty"`
}

// PolicyLook is how one policy looks at a peer.
type PolicyLook struct {
	Name     string     `json:"name"`
	Priority int32      `json:"priority"`
	Selected SelectedBy `json:"selected,omitempty"` // by what it selects the peer; left out when it does not
	Not      NotFor     `json:"not,omitempty"`      // why it does not
	Applies  bool       `json:"applies,omitempty"`
	// Reason is why nothing is offered, or would be if the policy applied. Only of one that selects the peer.
	Reason NoOffer `json:"reason,omitempty"`
	Why    string  `json:"why,omitempty"`
}

// SelectedBy is by what a policy selects a peer.
type SelectedBy string

// A policy selects a peer by one of these.
const (
	SelectedEverybody SelectedBy = "Everybody" // it names nobody
	SelectedByID      SelectedBy = "ID"
	SelectedByName    SelectedBy = "Name"
	SelectedByLabels  SelectedBy = "Labels"
)

// NotFor is why a policy does not select a peer.
type NotFor string

// A policy does not select a peer for one of these reasons.
const (
	NotForNotNamed    NotFor = "NotNamed"    // it names others
	NotForNotAccepted NotFor = "NotAccepted" // it has the peer's name, and the peer's key was not accepted here: a name is no identity
	NotForStranger    NotFor = "Stranger"    // it goes by labels, and the peer is no object here that could have any
	NotForLabels      NotFor = "Labels"      // the labels of the peer are others
	NotForMalformed   NotFor = "Malformed"   // its selector cannot be meant
	NotForDeleted     NotFor = "Deleted"     // it is being deleted
)

// NoOffer is why nothing is offered.
type NoOffer string

// Nothing is offered for one of these reasons.
const (
	NoOfferGuests      NoOffer = "NoGuests"      // this machine can take no guests in at all
	NoOfferTethered    NoOffer = "Tethered"      // another cluster has all of it
	NoOfferPolicy      NoOffer = "NoPolicy"      // no policy selects the peer
	NoOfferPaused      NoOffer = "Paused"        // the owner paused it
	NoOfferClosed      NoOffer = "OutsideHours"  // it is not within the policy's hours; Offered.Opens
	NoOfferCloses      NoOffer = "HoursEnd"      // they end too soon for a contract
	NoOfferOnBattery   NoOffer = "OnBattery"     // the policy offers something on mains alone
	NoOfferBattery     NoOffer = "BatteryLow"    // the batteries are not as full as the policy wants
	NoOfferHot         NoOffer = "TooHot"        // the machine is not as cool as the policy wants
	NoOfferInUse       NoOffer = "InUse"         // the owner uses the machine, or did a moment ago
	NoOfferMetered     NoOffer = "Metered"       // its network is paid for by the amount
	NoOfferNotKnown    NoOffer = "NotKnown"      // whether one of the policy's conditions is met is not known
	NoOfferPeers       NoOffer = "MaxPeers"      // as many peers as the policy allows hold contracts under it
	NoOfferNodes       NoOffer = "NoNodes"       // no node takes guests now
	NoOfferNotShared   NoOffer = "NotShared"     // the policy does not name a resource without which no pod runs
	NoOfferZero        NoOffer = "Zero"          // the policy's amount of such a resource comes to nothing here
	NoOfferAskedZero   NoOffer = "AskedForNone"  // the peer asked for none of such a resource
	NoOfferNotAccepted NoOffer = "NotAccepted"   // the owner said yes when there was none of such a resource
	NoOfferUsedUp      NoOffer = "UsedUp"        // others have all of the policy's amount
	NoOfferNothingFree NoOffer = "NothingIsFree" // of what there is here nothing is left
)

// OfferedResource is what is offered of one resource, and the numbers that it follows from. What is not known is left out.
type OfferedResource struct {
	Name    string  `json:"name"`
	Offered string  `json:"offered"`         // "0" for nothing
	Bound   BoundBy `json:"bound,omitempty"` // what keeps it from being more

	Policy      string `json:"policy"`                // as the policy says it: "50%"
	Amount      string `json:"amount"`                // what that comes to here
	PerPeer     string `json:"perPeer,omitempty"`     // what the policy lets one peer have
	Others      string `json:"others"`                // what other peers have of it under the policy
	Allocatable string `json:"allocatable,omitempty"` // by nodes that take guests
	OwnPods     string `json:"ownPods"`               // what the owner's own pods request
	Granted     string `json:"granted"`               // what contracts with other peers grant in all
	Reserve     string `json:"reserve,omitempty"`     // what the policy keeps free for the owner
	Disk        string `json:"disk,omitempty"`        // what the disk has room for; of storage
	Has         string `json:"has,omitempty"`         // what the peer has already, by the contract in force
}

// BoundBy is what keeps an offer of a resource from being more.
type BoundBy string

// An offer of a resource is bounded by one of these.
const (
	BoundByAmount      BoundBy = "Amount"      // what the policy shares
	BoundByOthers      BoundBy = "Others"      // what other peers have of what the policy shares
	BoundByAllocatable BoundBy = "Allocatable" // what there is
	BoundByOwnPods     BoundBy = "OwnPods"     // what the owner's own pods request
	BoundByGranted     BoundBy = "Granted"     // what contracts under other policies grant
	BoundByPerPeer     BoundBy = "MaxPerPeer"  // what the policy lets one peer have
	BoundByReserve     BoundBy = "Reserve"     // what the policy keeps free for the owner
	BoundByDisk        BoundBy = "Disk"        // what the disk has room for
	BoundByNotAsked    BoundBy = "NotAsked"    // scratch space and volumes: who asks for none gets little of the one, and none of the other
	BoundByAsked       BoundBy = "Asked"       // what the peer asked for
	BoundByAccepted    BoundBy = "Accepted"    // what the owner said yes to
)
