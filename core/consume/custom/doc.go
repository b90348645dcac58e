// Package custom has custom resources of home follow their namespaces to peers, by ReflectionPolicies: what they say goes out, their status
// comes back. It holds both ends' messages (wire.go); the provider's end is core/provide/hosting/custom.
//
// The daemon makes one Home for the cluster, which watches the policies and the objects of the kinds that they name, and none else. A member
// of the fleet has a Peer for its provider, which opens one connection while there is anything to say, and says again what the other end does
// not have. What the other end has it tells itself, so nothing is remembered here over a broken connection.
//
// It must never send an object that no policy names, or anything of its metadata but the name; nor write more of an object at home than its status.
package custom
