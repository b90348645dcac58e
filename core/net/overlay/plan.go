package overlay

import (
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/net/netplan"
)

// Device is the VXLAN's.
const Device = netplan.Overlay

// Config is fixed for the life of a node's overlay.
type Config struct {
	Self   string       // name of this node
	Pods   netip.Prefix // of the whole cluster
	Port   uint16       // UDP
	ID     uint32       // of the VXLAN, 24 bits (RFC 7348)
	Tunnel string       // device of the gateway
}

// Node is a machine of the cluster.
type Node struct {
	Name string
	IP   netip.Addr   // its InternalIP
	Pods netip.Prefix // from which its pods have their addresses; the zero value where the network plugin does not go by nodes
}

// AddressOf is a node's address between nodes; the zero value of one that has none of IPv4.
func AddressOf(node *corev1.Node) (ip netip.Addr) {
	for _, a := range node.Status.Addresses {
		if is, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && is.Is4() {
			return is
		}
	}
	return ip
}

// World is what the overlay follows.
type World struct {
	Gateway string         // name of the node that the gateway is on; "" while there is none
	Nodes   []Node         // all, this one among them
	Peers   []netip.Prefix // ranges that lead to peers
}

// Plan is what is to be in the kernel of one node.
type Plan struct {
	Address netip.Addr   // of this node, on its network
	Own     netip.Addr   // of the device; the zero value is none
	Ends    []netip.Addr // nodes that packets are exchanged with
	ToPeers []netip.Prefix
	Gateway netip.Addr // that ToPeers go by
	ToPods  []Route

	Nodes []netip.Addr   // all of the cluster: from whom packets of the VXLAN are taken
	Peers []netip.Prefix // as World.Peers
}

// Route leads to a range by a node.
type Route struct {
	To netip.Prefix
	By netip.Addr
}

// PlanOf gives the plan for this node. ok is false when this node is not in World, or the gateway's node is not known: leave the kernel as it is
// then.
func PlanOf(cfg Config, w World) (p Plan, ok bool) {
	var gateway Node
	for _, n := range w.Nodes {
		if !n.IP.Is4() {
			continue
		}
		p.Nodes = append(p.Nodes, n.IP)
		if n.Name == w.Gateway {
			gateway = n
		}
		if n.Name == cfg.Self {
			p.Address = n.IP
			if n.Pods.IsValid() && cfg.Pods.Contains(n.Pods.Addr()) {
				p.Own = n.Pods.Masked().Addr()
			}
		}
	}
	if !p.Address.IsValid() || !gateway.IP.IsValid() {
		return Plan{}, false
	}
	for _, r := range w.Peers { // the cluster's own are never led away
		if r.IsValid() && r.Addr().Is4() && !r.Overlaps(cfg.Pods) {
			p.Peers = append(p.Peers, r.Masked())
		}
	}
	if gateway.Name != cfg.Self {
		p.Ends, p.Gateway, p.ToPeers = []netip.Addr{gateway.IP}, gateway.IP, p.Peers
	} else {
		for _, n := range w.Nodes {
			if n.Name == cfg.Self || !n.IP.Is4() {
				continue
			}
			p.Ends = append(p.Ends, n.IP)
			if n.Pods.IsValid() && netplan.Within(n.Pods, []netip.Prefix{cfg.Pods}) {
				p.ToPods = append(p.ToPods, Route{n.Pods.Masked(), n.IP})
			}
		}
	}
	return p.sorted(), true
}

// sorted has equal worlds give equal plans.
func (p Plan) sorted() Plan {
	comparePrefixes := netip.Prefix.Compare
	slices.SortFunc(p.Ends, netip.Addr.Compare)
	slices.SortFunc(p.Nodes, netip.Addr.Compare)
	slices.SortFunc(p.Peers, comparePrefixes)
	p.Peers = slices.Compact(p.Peers)
	if p.ToPeers != nil {
		p.ToPeers = p.Peers
	}
	slices.SortFunc(p.ToPods, func(a, b Route) int { return a.To.Compare(b.To) })
	return p
}

// hardware is the MAC address of a node's VXLAN device: locally administered, with the node's IPv4 address in it, so that no ARP is needed.
func hardware(node netip.Addr) net.HardwareAddr {
	a := node.As4()
	return net.HardwareAddr{0x0a, 0x6b, a[0], a[1], a[2], a[3]}
}
