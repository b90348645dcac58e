// Package hosting is the provider's side of every contract. A Host joins the subpackages grants (what each consumer was granted), tenants
// (its namespaces here, called twins) and guests (its pods); the subpackage door is its access to the API server. In this package is what a
// consumer reads: the view of its twins, the resource use of its guests, the machine. The daemon builds a Host and a Door and gives both to
// the peer API's server. Handlers get the consumer's ID (identity.ID.String), as proven by its TLS key; errors are peering.Problems.
//
// It must never tell a consumer of anything outside its own twins.
package hosting
