package api

import "time"

// Image is one of this laptop's container runtime.
type Image struct {
	Name    string    `json:"name"` // as pods may have it, whole: docker.io/library/postgres:17
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"` // bytes of what travels; 0: a part of it is missing
	Created time.Time `json:"created"`
}
