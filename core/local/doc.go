// Package local is the floor of this laptop's own Kubernetes and the ways to it.
//
// Comes in: the choice of an engine, requests of this laptop's users, requests of peers that a floor above lets pass. Goes out: a running
// API server, requests passed on to it, the policies and definitions that Kith keeps in it. Never here: what a peer may do. That is agreed on
// the next floor and given on the floor of the provider.
package local
