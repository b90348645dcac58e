// Package netplan is the arithmetic on addresses: which address a cluster gives to what (Cluster), which ranges a peer may name
// (CheckRange), which one is free for guests (Choose), and what two clusters agreed on (Pair). The rooms above ask for an address by
// what it is for; how it is made is known here alone.
//
// Everything is a function from values to values. Nothing here asks the kernel (hostnet does), reads an object of the cluster, or
// remembers: who calls passes what is taken.
//
// # IPv6 of pods
//
// Pods and services have IPv4 alone. What follows is the plan by which they get both; of it only the arithmetic is there (ipv6.go), and nothing
// uses it yet. Each step is whole before the next, and off unless podRange6 is set.
//
//  1. engine/policy compiles NetworkPolicies for both families. Without it nothing else may begin: pods that speak IPv6 would pass by them.
//     Today all that they send by it is dropped while there is any policy.
//  2. The builtin engine, by configuration: podRange6, a /48 (ClusterPrefix unless said otherwise), whose first /64 is the node's pods, and
//     serviceRange6, a /112 of it; API server, controllers, kubelet and kube-proxy with both ranges, the node's second address on its
//     device, a second range in the CNI configuration of owner's pods, forwarding and masquerading for ip6. Guests stay with IPv4, and what they send by
//     IPv6 stays dropped (core/fence).
//  3. Reflection: a twin Service is asked for in the families that the provider has, EndpointSlices of IPv6 go where it has that. Here home's own objects
//     are not changed: ipFamilyPolicy PreferDualStack is what makes one object right at both.
//  4. The data path: Table gets spans of 128 bits beside those of 32, and header a second form; the header in front stays as it is, with protocol 41 for what is
//     inside (RFC 4213). Guests have addresses of GuestPrefix. Home's prefix is its own, as nobody else computes it; so tenants' tables
//     of routes are there for IPv4 alone, and WireGuard's handles for both. A peer says in its link that it has IPv6, and its prefix, if set by hand.
//  5. core/fence and core/guestnet: the same rules in a table of family ip6, guests' links with an address of GuestPrefix, home's services by a
//     map as for IPv4.
//  6. Where a cluster's plugin gives guests their addresses: Neutral instead of aliases, so no checksum need be found, nor fragments put together.
package netplan
