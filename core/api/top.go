package api

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
