// Package hosting is the provider's side: it gives each consumer its twin namespaces, turns the
// OffloadedPods a consumer writes there into Pods, keeps those alive, counts them against the contract,
// and keeps the door (/kube/…) through which consumers reach this cluster's API server. The daemon builds
// a Host and a Door and hands both to the peer API's server.
//
// It must never touch an object that Kith did not make, trust a label a consumer could have written, or
// let a consumer act as anybody but itself.
package hosting
