// Package frontdoor serves the Kubernetes API that the kubeconfigs of this laptop's users point at, on an address of this machine
// alone. Who shows a client certificate of the front door's own authority is that user; nobody else gets any answer. What they ask is
// passed on, as it is, to where the front door leads at the moment: the local API server, or the company's while this laptop is
// tethered. The daemon makes one Door and serves it; whoever decides about the mode leads it elsewhere.
//
// It must never decide where it leads, nor what a user may do: RBAC there does. It must never mix two clusters: a request belongs to
// one Destination from its first byte to its last, and what a client remembers of one cluster is never taken for knowledge of another
// (revisions.go).
package frontdoor
