// Package guestnet is what an engine offers so that guests, pods of other clusters, are told apart from the first moment, and how
// it is used: links of their own that are marked (Group), the RuntimeClass that leads to such links (Runtime) with the policy that
// puts every guest behind it (Objects), and a DNS that knows whose pod asks (Resolver).
//
// cluster.Facts says which of these an engine has. fence tells guests by Group, hosting makes them with Runtime and Resolver, the
// daemon installs Objects. This room knows no engine, decides nothing about whose a pod is, and asks nobody.
package guestnet
