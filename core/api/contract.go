package api

import "time"

// Role says which side of a contract this cluster is on.
type Role string

// The roles.
const (
	Consumer Role = "consumer"
	Provider Role = "provider"
)

// Contract is what two clusters signed. Document holds the exact bytes (canonical JSON, RFC 8785) that the
// signatures cover; in JSON they are base64, so that no printer can change them.
//
// `kith contract show NAME -o json` prints one; the same JSON in a file is what `kith contract verify FILE` takes.
type Contract struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	Revision  int64     `json:"revision"` // from 1; a changed amount is a new revision
	Role      Role      `json:"role"`
	Peer      string    `json:"peer"`
	PeerID    string    `json:"peerId"`
	Resources Resources `json:"resources"` // what it grants
	Used      Resources `json:"used"`      // what is requested against it

	// Prices are what it says that one unit of a resource costs for an hour ("0.02 EUR"); what is not named is free.
	Prices     map[string]string `json:"prices,omitempty"`
	State      State             `json:"state"`
	Why        string            `json:"why,omitempty"`
	Created    time.Time         `json:"created,omitzero"`   // when this revision was made, by the consumer's clock
	NotBefore  time.Time         `json:"notBefore,omitzero"` // some minutes before, since clocks differ
	NotAfter   time.Time         `json:"notAfter,omitzero"`
	Document   []byte            `json:"document"`
	Signatures List[Signature]   `json:"signatures"`

	// KeepVolumes is how long what is in volumes is kept after the end, as a duration ("168h0m0s"); "" where no storage is lent.
	KeepVolumes string `json:"keepVolumes,omitempty"`
	// Reoffer: the consumer may offer on to others what it grants.
	Reoffer bool `json:"reoffer,omitempty"`
	// Network is NetworkNone where there is no tunnel between the clusters.
	Network string `json:"network,omitempty"`
	// Notice is how long before it the provider tells that it lowers what the contract grants, as a duration ("24h0m0s"); "" where nothing is lowered
	// before a renewal. Lowering is what it told, as long as that is not signed.
	Notice   string    `json:"notice,omitempty"`
	Lowering *Lowering `json:"lowering,omitempty"`
	// Wake is how often within a day the consumer may wake the provider's machine; 0 is never. Woken are how often it did, as counted here, and how that stands, at the consumer.
	Wake     int32  `json:"wake,omitempty"`
	Woken    int32  `json:"woken,omitempty"`
	WakeSaid string `json:"wakeSaid,omitempty"`
}

// NetworkNone: there is no network between two clusters.
const NetworkNone = "none"

// checkNetwork takes what may be said of a network: nothing, or that there is none.
func checkNetwork(s string) error {
	if s != "" && s != NetworkNone {
		return Invalid("network", s, NetworkNone+", or nothing, where it is as the peer offers it")
	}
	return nil
}

// Lowering is what a provider lowers a contract to, whether the consumer signs that or not.
type Lowering struct {
	Resources Resources `json:"resources"`
	From      time.Time `json:"from"` // by the provider's clock
}

// Signature is one side's Ed25519 signature of Document.
type Signature struct {
	Role      Role   `json:"role"`      // who signed
	ID        string `json:"id"`        // cluster ID: hash of PublicKey
	PublicKey []byte `json:"publicKey"` // Ed25519, 32 bytes, base64 in JSON
	Signature []byte `json:"signature"` // 64 bytes, base64 in JSON
}

// VerifyResult says whether a contract is what both signed, check by check.
type VerifyResult struct {
	Valid    bool        `json:"valid"` // every check passed
	ID       string      `json:"id,omitempty"`
	Revision int64       `json:"revision,omitempty"`
	Consumer string      `json:"consumer,omitempty"` // cluster ID
	Provider string      `json:"provider,omitempty"` // cluster ID
	Checks   List[Check] `json:"checks"`
}

// Check is one thing that was looked at.
type Check struct {
	What string `json:"what"` // "signature of the consumer"
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"` // when not OK
}

// Top is what is used under one contract: of pods of this cluster at a peer (outgoing), or of a peer's guests here (incoming).
type Top struct {
	Peer      string       `json:"peer"`
	Direction Direction    `json:"direction"`
	Granted   Resources    `json:"granted"`           // by the contract
	Requested Resources    `json:"requested"`         // by the pods
	Used      Resources    `json:"used"`              // cpu and memory, as the kubelet there measured it seconds ago, and the number of pods
	Unknown   string       `json:"unknown,omitempty"` // why it is not known what is used
	Pods      List[TopPod] `json:"pods"`
}

// TopPod is one of these pods.
type TopPod struct {
	Namespace string    `json:"namespace"` // in this cluster
	Name      string    `json:"name"`
	Requested Resources `json:"requested"`
	Used      Resources `json:"used"` // none while nothing was measured
}
