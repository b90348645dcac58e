package api

import "time"

// Volume is what one cluster keeps for a claim of another: of this one at a peer (DirectionOutgoing), or of a peer here (DirectionIncoming).
type Volume struct {
	Direction Direction `json:"direction"`
	Peer      string    `json:"peer"`      // its name here
	Namespace string    `json:"namespace"` // of the claim, at its home
	Claim     string    `json:"claim"`
	Size      string    `json:"size"`   // as the claim asks for it, "10Gi"
	Volume    string    `json:"volume"` // the PersistentVolume in this cluster
	// Phase is the PersistentVolume's: Bound, Released once its claim is gone, and others of Kubernetes.
	Phase string `json:"phase"`
	// KeptUntil is when a volume here goes whose consumer has no claim on it any more; zero for others.
	KeptUntil time.Time `json:"keptUntil,omitzero"`
}
