package api

import "time"

// Image is one of this laptop's container runtime.
type Image struct {
	Name    string    `json:"name"` // as pods may have it, whole: docker.io/library/postgres:17
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"` // bytes of what travels; 0: a part of it is missing
	Created time.Time `json:"created"`
}

// ImageTransfer is an image that a peer takes from this laptop, for a pod of this cluster that it runs.
type ImageTransfer struct {
	Peer  string    `json:"peer"`
	Image string    `json:"image"` // its whole name
	Size  int64     `json:"size"`  // bytes; 0: not known. The peer may have some of them already, and not ask for these
	Sent  int64     `json:"sent"`  // bytes
	Began time.Time `json:"began"`
	Rate  float64   `json:"rate"` // bytes per second since then
}

// Left is how long the rest takes at that rate; 0: not known.
func (t ImageTransfer) Left() time.Duration {
	if t.Rate < 1 || t.Size <= t.Sent {
		return 0
	}
	return time.Duration(float64(t.Size-t.Sent) / t.Rate * float64(time.Second)).Round(time.Second)
}
