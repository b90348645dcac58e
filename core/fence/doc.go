// Package fence keeps guests, pods of other clusters that run on this laptop, away from the laptop itself, its LAN,
// its owner's pods and each other. It writes the nftables tables kith-fence, kith-limits and kith-links.
//
// The daemon makes one Fence, raises it before the engine starts, and has it follow peers, contracts and policies. This room
// never decides who is a guest (hosting labels pods), which addresses guests have (link agrees on them) or what a policy says
// (sharing); it never touches a table of others, and it never judges a packet between the owner's pods, their services and the world.
//
// # What may pass
//
//	a guest → guests of its tenant, its home's address space by the tunnel, DNS by its service address, and, if the policy
//	          says so, what lies behind a default route and not in a private range
//	the owner's pods, the node (probes) → guests
//	the tunnel, from a home → its guests
//	the tunnel, from our guests at a provider → our own pods; our guests at other providers; of the host what the gateway opens
//	the owner's pods, the host → the tunnel to our guests at providers
//	the host, by its address in the range of a home's guests → that home
//
// and everything else that comes from a guest or through the tunnel may not. Rules see addresses after kube-proxy
// chose an endpoint, so a service opens nothing its endpoints do not. Each packet that asks is judged by where it
// goes; only answers pass for their connection's sake, and ICMP errors from those with whom the connection is. Known guests are told that
// something is forbidden (ICMP admin-prohibited, limited by the kernel to some a second); others meet silence, and try again.
//
// # Whose an address is
//
// Each pair of a home and its provider has one range for guests, which is free at both: it says whose guest somebody is, here and of ours at
// providers. Everything else may be the same at all: two homes of guests here may both have this cluster's ranges. What a guest
// sends is read in its home's address space, so an address of that, even one that a pod of the owner's or this laptop has, is its
// home's: it leaves by the tunnel, or it is dropped, and never anybody's here. Of what comes through the tunnel the gateway has checked
// which peer may send from that address to the other (datapath); the fence tells homes by the destination.
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
// A guest's first program may run before anybody here heard of it, and where guests were on the bridge of the owner's pods,
// treating every unknown address there as a guest's would cut off new pods of the owner while kithd is down. So with an engine
// that has guest links (core/guestnet) guests are told apart by where they are: their RuntimeClass, which the API server puts into every pod with a
// consumer's label (guestnet.Objects), makes containerd connect them by a link of their own instead of the bridge, and marks
// that link (group guestnet.Group) before the pod's first program runs. What comes over a marked link is a guest's; whose, its address
// says; with one of no pair that is known it gets DNS and no more. Owner's pods have no marked link. So nothing has to be learned when
// a guest starts, and whether kithd runs is nothing to either.
//
// A link of its own also settles what a guest can forge: no ARP with anybody but this host, and a source address that
// its link does not lead to is dropped before connections are tracked (`fib saddr . iif`). To this host it is one neighbour: senders of ARP that are
// not the guest are dropped, those of a link that is not known yet, and of IPv6 by addresses of the link, but for a few.
//
// # IPv6
//
// Where the cluster has IPv6, a table of that family has the same rules, with guests' addresses of it (family). Guests' links differ in one
// thing: who finds a neighbour by IPv6 asks by ICMP, so guests and this host may (RFC 4861: solicitations and advertisements of
// neighbours), by addresses of the link; nothing else of the link's passes, no word of a router's least of all. What is for the
// internet is of 2000::/3 and goes to a router that is known by its link, too. Elsewhere guests' IPv6 is dropped. Limits are
// for each family.
//
// # Where a network plugin connects guests
//
// With an engine that does not mark links guests are known by the addresses in their pods' status, and their homes by aliases. In a cluster of
// several nodes each has a fence (daemon/node), and a guest is judged by that of the node it is on, before anything of what it asked for was
// translated away; others see it again on its way into the tunnel.
//
// Such an address comes some moments late. A guest is seen before it begins, as it is bound to its node, and from then on it is awaited: what
// comes over links of pods (all but those that are surely others'), from addresses that are not known for the owner's pods', begins nothing. So it is
// where guests are and nobody would say that one of them has another address: the element of a set says that all is calm, and passes by itself unless
// the node's kubelet is heard of (await.go). Then its link is looked for, and a guest is bound to it below IP: its addresses of IPv4 and of the link, no
// IPv6 (bind.go).
//
// An address that could be no guest's, or that two tenants claim, is closed: in the set of guests, and in no tenant's. Which addresses pods have the
// cluster says, too: what contradicts the configured range is told (range.go).
//
// # Staying up
//
// When a peering begins or ends, a policy changes or the laptop moves, what differs in the table is changed, in one transaction (core/nft). It
// stays when kithd ends, however it ends, and a new kithd leaves it alone until it has read the cluster. Should somebody flush all of
// nftables, the table is back within milliseconds.
package fence
