// Package tenants gives each consumer its twin namespaces, with the rights, the quota and the NetworkPolicies in them, keeps what
// stands there true (addresses of guests, endpoints of a home that is away), and clears them away. The peer API's server asks it for
// namespaces and policies; relations end contracts through it.
//
// It must never touch an object or a namespace that Kith did not make, whatever labels it has.
package tenants
