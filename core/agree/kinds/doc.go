// Package kinds is the table of the Kubernetes kinds that are exchanged between a consumer and a provider. A row says which resource the kind
// is, in which direction it goes, what a consumer may do with it at the provider, how many and how large (RBAC, quota, admission, request
// bodies), and how an object of the home cluster is mapped to its copy in a twin namespace. To add a kind, add a row and its mapping.
//
// core/consume/reflection uses it to copy objects to peers; core/consume/remote and the views of core/provide/hosting, to report what is in the twins; hosting/door
// and hosting/tenants, to limit what consumers write. NetworkPolicies have no row: they are sent in a message of their own (core/consume/netpolicy).
//
// It is pure: values and functions from values to values. It must never import its users, nor make a call.
package kinds
