package api

import (
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Volume is what one cluster keeps for a claim of another: of this one at a peer (DirectionOutgoing), or of a peer here (DirectionIncoming). One of
// this cluster that is at home and on its way to a peer is DirectionOutgoing, too, with no Peer.
type Volume struct {
	Direction Direction `json:"direction"`
	Peer      string    `json:"peer"`      // its name here
	Namespace string    `json:"namespace"` // of the claim, at its home
	Claim     string    `json:"claim"`
	Size      string    `json:"size"`   // as the claim asks for it, "10Gi"
	Volume    string    `json:"volume"` // the PersistentVolume in this cluster
	// Class is the storage class that it is of where it is; "" for the default one.
	Class string `json:"class,omitempty"`
	// Phase is the PersistentVolume's: Bound, Released once its claim is gone, and others of Kubernetes.
	Phase string `json:"phase"`
	// KeptUntil is when a volume here goes whose consumer has no claim on it any more; zero for others.
	KeptUntil time.Time `json:"keptUntil,omitzero"`
	// Snapshot is the VolumeSnapshot that it is, of that claim's volume; "" for a volume. Size is what a volume needs that begins with it, Phase
	// one of those below, and Why what keeps it from being ready.
	Snapshot string `json:"snapshot,omitempty"`
	Why      string `json:"why,omitempty"`
	// Move is how far it is on its way to another place, or why it did not get there; nil for one that stays.
	Move *Move `json:"move,omitempty"`
}

// Phases of a snapshot.
const (
	SnapshotReady    = "Ready"
	SnapshotPending  = "Pending"
	SnapshotRetained = "Retained" // its VolumeSnapshot is gone, and its class has it stay
)

// MovePhase is how far a volume is on its way.
type MovePhase string

// The phases, in their order. Until MoveSwitched the volume is where it was.
const (
	MoveWaiting  MovePhase = "waiting"  // kithd looks whether it can be moved
	MoveCopying  MovePhase = "copying"  // while its pods go on
	MoveStopped  MovePhase = "stopped"  // its pods are stopped: what they changed is copied, and all is compared
	MoveSwitched MovePhase = "switched" // it is at the new place, and the old copy is being deleted
	MoveFailed   MovePhase = "failed"
)

// Home is what this cluster is called where a place for a volume is named.
const Home = "home"

// Move is a volume's way to another place.
type Move struct {
	To    string    `json:"to"` // a peer's name here, or Home
	Phase MovePhase `json:"phase"`
	Why   string    `json:"why,omitempty"` // it failed
	// Of the copy that is under way: entries are files, folders and links, bytes those of files.
	Entries   int64 `json:"entries,omitempty"`
	OfEntries int64 `json:"ofEntries,omitempty"`
	Bytes     int64 `json:"bytes,omitempty"`
	OfBytes   int64 `json:"ofBytes,omitempty"`
}

// MoveOptions say which volume goes where.
type MoveOptions struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	To        string `json:"to,omitempty"` // a peer's name or ID, or Home
	// Rate is how many bytes a second it may take at most, as a quantity ("10Mi"); none means any.
	Rate string `json:"rate,omitempty"`
	// Wait has the call wait until the volume is there.
	Wait bool `json:"wait,omitempty"`
	// Cancel has a volume stay where it is that is on its way. To is "" then.
	Cancel bool `json:"cancel,omitempty"`
}

// ClaimRef reads "namespace/claim".
func ClaimRef(text string) (namespace, claim string, err error) {
	namespace, claim, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || claim == "" {
		return "", "", Invalid("claim", text, "NAMESPACE/CLAIM, as `kith volumes` shows them")
	}
	return namespace, claim, nil
}

// Check says what of the options nobody can do.
func (o *MoveOptions) Check() error {
	switch {
	case !isName(o.Namespace):
		return Invalid("namespace", o.Namespace, "the name of a namespace")
	case !isName(o.Claim):
		return Invalid("claim", o.Claim, "the name of a claim")
	case o.Cancel != (o.To == ""):
		return Invalid("to", o.To, "the name of a peer, or "+Home)
	case o.Rate != "" && !rateForm.MatchString(o.Rate):
		return Invalid("rate", o.Rate, "bytes a second, such as 512Ki, 10Mi or 1Gi")
	}
	return nil
}

var rateForm = regexp.MustCompile("^[1-9][0-9]{0,4}[KMG]i$")

// isName reports whether Kubernetes may be asked for something of that name; it says whether there is such a thing.
func isName(s string) bool {
	return s != "" && len(s) <= 253 && !strings.ContainsFunc(s, func(r rune) bool { return r == '/' || unicode.IsControl(r) || unicode.IsSpace(r) })
}
