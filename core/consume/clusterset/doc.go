// Package clusterset has services in common with peers, as Multi-Cluster Services (KEP-1645) describe it: what a ServiceExport names here
// is told to the peers that may have it (core/provide/hosting/exports), and what peers export is imported here, as a ServiceImport with a
// service and endpoints of its own. Both owners must name the namespace (sharing.Common).
//
// Merging is a pure function of what all clusters export (merge.go). What a peer exports that cannot be asked now stays imported, and its
// endpoints are not ready; it goes when the peer takes it back, when one of the owners does, or with the contract. The package must never write
// an object that somebody else made, nor believe an address that is none of this cluster's range at that peer.
package clusterset
