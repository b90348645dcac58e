// Package api holds the types of the local API: what kithd says to the programs of this machine's user
// (kith, kith-tray, curl) over its unix socket, as JSON.
//
// daemon/localapi serves it, core/api/client speaks it, cli and tray show it. It knows nobody: no Kubernetes
// code, no sockets, no clocks. The custom resources live in core/api/v1alpha1; these types are views of them,
// made for people and scripts.
//
// Conventions, kept by every type here:
//
//   - Amounts of resources are strings in Kubernetes quantity syntax ("500m", "4Gi", "20").
//   - Times are RFC 3339; a time that is not known is left out.
//   - Durations are strings as Go writes them ("1.84ms").
//   - A list is never null, an empty one is []. A map of resources is never null, an empty one is {}.
//   - A field is added, never renamed, never given another meaning.
package api

import (
	"bytes"
	"encoding/json"
	"time"
)

// List is a slice that is [] in JSON when it is nil, so that scripts can iterate without asking first.
type List[T any] []T

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return plain([]T(l))
}

// plain is json.Marshal without \u003c for <: whoever encodes the whole still decides whether that is wanted.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// Duration is a time.Duration that is a string in JSON ("1.84ms", "10m0s").
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
