// Package directory is the list of known clusters: it merges what discovery sees, this cluster's Peer objects and the state of contacts, and
// gives each cluster one unique name. The daemon keeps it; core/agree/relations and core/consume/consumer get their clients of peers from it
// (relations.Directory), and the local API shows it.
//
// Names are hints, keys are identities: it must never identify a cluster by the name that it gives itself.
package directory
