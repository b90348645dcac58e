// Package fence keeps guests, pods of other clusters that run on this laptop, away from the laptop itself, its LAN,
// its owner's pods and each other. It writes the nftables tables kith-fence
// and kith-limits.
//
// The daemon makes one Fence, raises it before the engine starts, and has it follow pods, peers, contracts and
// policies. This room never decides who is a guest (hosting labels pods) or what a policy says (sharing); it never
// touches a table of others, and it never judges a packet between the owner's pods, their services and the world.
//
// # What may pass
//
//	a guest → guests of its tenant, its home cluster by the tunnel, DNS by its service address, and, if the policy
//	          says so, what lies behind a default route and not in a private range
//	the owner's pods, the node (probes) → guests
//	the tunnel, from a consumer → that consumer's guests
//	the tunnel, from our own pods that run at a provider → our own pods; of the host what the gateway opens
//	the owner's pods → the tunnel to our providers
//	the host → the tunnel to peers with a contract, in either role
//
// and everything else that comes from a guest or through the tunnel may not. Rules see addresses after kube-proxy
// chose an endpoint, so a service opens nothing its endpoints do not. Each packet that asks is judged by where it
// goes; only answers pass for their connection's sake, and ICMP errors from those with whom the connection is. Known guests are told that something is forbidden (ICMP
// admin-prohibited, limited by the kernel to some a second); others meet silence, and try again.
//
// The LAN is not looked up by its ranges, for a LAN may have public ones: a packet counts as for the internet only
// if the kernel would hand it to the next hop of a default route (`rt nexthop`). When the laptop moves while kithd is
// down, guests lose the internet until it is back; the new LAN stays closed.
//
// How many connections a peer's guests, and its home through the tunnel, may open is bounded by a table beside it,
// kith-limits: this laptop's own connections find a place in the kernel's table whatever guests do.
//
// # No moment without a fence
//
// A guest's address is known only after it got one, and its first program may run before anybody here heard of it. On
// the bridge of the owner's pods it would be one of them until then; and treating every unknown address there as a
// guest's would cut off new pods of the owner while kithd is down. So with an engine that has guest links (core/guestnet) guests are told apart by
// where they are and not by their address: their RuntimeClass, which the API server puts into every pod with a
// consumer's label (guestnet.Objects), makes containerd connect them by a link of their own instead of the bridge, and marks
// that link (group guestnet.Group, alias the pod's UID) before the pod's first program runs. What comes over a marked link
// is a guest's, known or not, and unknown means DNS only. Owner's pods have no marked link: whether kithd runs is
// nothing to them. The address of a guest comes from the kernel, with the link, milliseconds after it exists.
//
// A link of its own also settles what a guest can forge: no ARP with anybody but this host, and a source address that
// its link does not lead to is dropped before connections are tracked (`fib saddr . iif`). IPv6 is dropped there too.
//
// With an engine that does not mark links guests are known by the addresses in their pods' status, some moments late,
// and the forging is for the network plugin to prevent.
//
// # Staying up
//
// Every change is one transaction. Guests that come and go change elements of sets; when a peering begins or ends the
// table is replaced by another. It stays when kithd ends, however it ends, and a new kithd leaves it alone until it has
// read the cluster. Should somebody flush all of nftables, the table is back within milliseconds.
package fence
