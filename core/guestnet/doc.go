// Package guestnet is what an engine offers so that guests, pods of other clusters, are told apart from the first moment and live in
// the address space of their home, and how it is used: links of their own that are marked (Group), the RuntimeClass that leads to such
// links (Runtime) with the policy that puts every guest behind it (Objects), addresses out of the range that was agreed on with their home
// (WriteNetwork), home's service addresses (Kernel), and a DNS that knows whose pod asks (Resolver).
//
// cluster.Facts says which of these an engine has. fence tells guests by Group, hosting makes them with Runtime and Resolver, writes the
// networks of their namespaces and says which services they have; the daemon installs Objects and runs the Kernel. This room knows no
// engine, decides nothing about whose a pod is, and asks nobody.
//
// # What the table does
//
// The gateway's routes (core/gateway/noderoute) read what a guest sends as home would: an address of a pod at home leads home, although
// the owner has a pod with that address too. The nftables table kith-guests does what routes cannot:
//
//   - Services. A guest asks for a service by its address at home. By the guest's range that becomes the address of the twin service here,
//     before connections are tracked, so that kube-proxy balances as ever; answers, and the packets that ICMP errors quote, get
//     the address at home again behind all NAT. Nothing is remembered of it. Addresses of services that home has not sent go nowhere.
//   - The cluster's DNS, which is here and not at home: packets for it are marked for the rules of noderoute.
//   - What begins here and not at a home: the owner's pods, this host, a port of this host. Answers are marked in the same way; and the
//     owner's pods, whose addresses are somebody else's to a guest, show by the address that this host has on the guest's link.
//
// Of marks, of packets and of connections, it changes the one bit (noderoute.MarkMask) and leaves the others as they are. The table is
// made before the first guest starts, stays when kithd ends, and is put back should somebody take it away.
package guestnet
