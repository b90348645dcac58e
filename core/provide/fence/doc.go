// Package fence keeps guests, pods of other clusters that run on this laptop, away from the laptop itself, its LAN,
// its owner's pods and each other. It writes the nftables tables kith-fence, kith-limits, kith-links and kith-bandwidth.
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
// Everything else from a guest or through the tunnel is dropped. Rules see addresses after kube-proxy has chosen an endpoint, so a service
// opens nothing that its endpoints do not. Each packet that opens something is judged by its destination; only replies pass because of
// their connection (conntrack), and ICMP errors from the other end of it. Known guests get an ICMP error (admin-prohibited, which the kernel
// limits to some a second); packets of others are dropped without one, and are sent again.
//
// # Whose an address is
//
// A home (the cluster that a guest comes from) and its provider have one address range for guests, which is free at both. It tells whose a
// guest is, here and at providers. All other ranges may overlap: two homes may both have the ranges of this cluster. The destination of a
// guest's packet is therefore read in its home's address space: even if a pod of the owner or this laptop has that address too, the packet
// leaves by the tunnel or is dropped, and never reaches anybody here. For a packet out of the tunnel the gateway has checked which peer may
// send from that source to that destination (datapath); the fence tells homes by the destination.
//
// The LAN is not looked up by its ranges, for a LAN may have public ones: a packet counts as for the internet only
// if the kernel would hand it to the next hop of a default route (`rt nexthop`). When the laptop moves while kithd is
// down, guests lose the internet until it is back; the new LAN stays closed.
//
// The table kith-limits bounds how many connections a peer's guests, and its home through the tunnel, may open, so that the kernel's
// conntrack table always has room for this laptop's own connections.
//
// The table kith-bandwidth bounds what the guests of all peers under a policy get and send by the tunnel and the internet, if the policy says so. It
// polices (`limit rate over`) instead of shaping by tc: guests have a link each, so one queue for all of them would need a device of its own (ifb)
// and modules that kernels may lack; nftables has the bound for both families, in one transaction with the rest, with whatever network plugin.
//
// # No moment without a fence
//
// A guest's first program may run before kithd has heard of the guest. If guests shared a bridge with the owner's pods, every unknown
// address would have to be treated as a guest's, which would cut off new pods of the owner while kithd is down. So with an engine that has
// guest links (core/provide/guestnet) a guest is known by its link: an admission policy sets a RuntimeClass on every pod with a consumer's label
// (guestnet.Objects), with which containerd connects the pod by a link of its own instead of the bridge, and marks that link (group
// guestnet.Group) before the pod's first program runs. What comes over a marked link is a guest's; its address tells whose. A guest whose
// address is in no known range gets DNS only. The owner's pods have no marked link. So nothing has to be learned when a guest starts, and
// neither guests nor the owner's pods depend on kithd running.
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
// The address appears in the status only after the guest has started. But the guest is seen earlier, when it is bound to its node. From then on
// it is awaited: over links that may be a pod's, addresses that are not known to be the owner's pods' may open no connection. The same holds
// where guests run and changes of their addresses would go unnoticed: "calm" is an element of a set, which expires unless the node's kubelet
// is heard of (await.go). When the address is known its link is looked for, and the guest is bound to that link below IP: to its IPv4 and
// link-layer addresses, without IPv6 (bind.go).
//
// An address that no guest can have, or that two tenants claim, is closed: it is in the set of guests, but in no tenant's. Nodes and pods whose
// addresses contradict the configured pod range are reported (range.go).
//
// # Staying up
//
// When a peering begins or ends, a policy changes or the laptop moves, only what differs in the table is changed, in one transaction
// (core/net/nft). The table stays when kithd ends or crashes, and a new kithd leaves it alone until it has read the cluster. If somebody flushes
// all of nftables, it is written again within milliseconds.
package fence
