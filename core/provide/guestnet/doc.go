// Package guestnet is the network of guests, pods of other clusters, on engines that support it. They can be recognised from their first packet
// and use the addresses of their home cluster. It consists of: marked network links of their own (Group); the RuntimeClasses that make
// containerd create such links (Runtime, DeviceRuntime) and the admission policy that sets it on every guest (Objects); addresses out of the range agreed
// on with their home (WriteNetwork); translation of home's service addresses (Kernel); and a DNS server that answers by whose pod asks
// (Resolver).
//
// cluster.Facts says which of these an engine has. core/provide/fence recognises guests by Group; core/provide/hosting creates them with Runtime and Resolver,
// writes the networks of their namespaces and sets their services; the daemon installs Objects and runs the Kernel. This package knows no
// engine, does not decide whose a pod is, and makes no calls.
//
// # What the table does
//
// The gateway's routes (core/net/gateway/noderoute) read what a guest sends as home would: an address of a pod at home leads home, although
// the owner has a pod with that address too. The nftables table kith-guests does what routes cannot:
//
//   - Services. A guest uses a service's ClusterIP at home. Depending on the guest's range it is translated to the ClusterIP of the copy here
//     before conntrack, so that kube-proxy balances as usual; replies, and packets quoted in ICMP errors, are translated back after all NAT.
//     This is stateless. Service addresses that home has not sent are dropped.
//   - The cluster's DNS, which is here and not at home: packets for it are marked for the rules of noderoute.
//   - Connections to guests from here (the owner's pods, this host, a port of this host). Replies are marked in the same way. The source of
//     the owner's pods, which to the guest is an address of its home, is masqueraded as this host's address on the guest's link.
//
// Of packet and connection marks it changes one bit (noderoute.MarkMask) and keeps the others. The table is made before the first guest
// starts, stays when kithd ends, and is restored if somebody removes it.
package guestnet
