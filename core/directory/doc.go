// Package directory knows which clusters there are: what discovery sees, what this cluster's Peers remember and what contacts prove,
// put together under one name each. The daemon keeps it; core/relations and core/consumer reach peers by it (relations.Directory), and
// the local API shows it.
//
// Names are hints and keys are identities: it must never take what a cluster calls itself for who it is.
package directory
