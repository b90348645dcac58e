package api

// Waking is what was done to wake the machine of a peer.
type Waking struct {
	Peer   string `json:"peer"`   // name
	Times  int32  `json:"times"`  // how often it was woken within the last day, this time among them
	PerDay int32  `json:"perDay"` // how often it may be
}
