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
