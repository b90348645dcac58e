// Package hosting is the provider's side of every contract. A Host is its rooms together: what is granted (grants), the twin
// namespaces (tenants), the pods in them (guests); beside them stands the door to the API server (door). Here is what a consumer is
// told of all of them at once: the view of its twins, what its guests use, the machine. The daemon builds a Host and a Door and
// hands both to the peer API's server. What answers a consumer is given its ID (identity.ID.String), which its key proved; errors are
// problems as peering has them.
//
// It must never tell a consumer of what is not in its own twins.
package hosting
