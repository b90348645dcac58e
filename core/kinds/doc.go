// Package kinds is the table of the kinds of objects that travel between a consumer and a provider: one row says of a kind
// which resource it is, which way it goes, what a consumer may do with it here, how many of it and of what size (RBAC, quota,
// admission, bodies), and what becomes of an object of home in a twin. Another kind is another row, and its mapping.
//
// reflection brings by it what is at home to the peers; remote and hosting's views tell by it what is in the twins;
// hosting/door and hosting/tenants bound by it what consumers write. NetworkPolicies are no row: they do not pass the API
// server as such (core/netpolicy).
//
// It is pure: values and functions from values to values. It must never import what uses it, nor ask anybody anything.
package kinds
