// Package tenants creates each consumer's twin namespaces here, with RBAC, quota and NetworkPolicies, and deletes them. It also keeps their
// content correct: the address ranges of guests, and EndpointSlices whose endpoints are at a home cluster that cannot be reached. The peer
// API's server calls it for namespaces and policies; core/agree/relations ends contracts through it.
//
// It must never change an object or a namespace that Kith did not create, whatever labels it has.
package tenants
