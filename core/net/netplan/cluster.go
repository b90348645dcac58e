package netplan

import (
	"fmt"
	"net/netip"
)

// What Kith's own cluster is called on the laptop it runs on.
const (
	APIPort = 6443         // of the API server, at the node's address
	Tunnel  = "kith0"      // the gateway's device
	Node    = "kith-node"  // the device that has the node's address
	Bridge  = "cni0"       // of the owner's pods
	Overlay = "kith-vxlan" // between nodes of a cluster that has Kith by its chart (core/net/overlay)
)

// Upstream's range of node ports (kube-apiserver, --service-node-port-range).
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

// Cluster is the two IPv4 ranges of a cluster, and those of IPv6 beside them where it has both families. The other addresses follow
// from them; those of ranges that are not known are the zero value.
type Cluster struct {
	Pods     netip.Prefix // at least a /23, of which the node has the first /24 and the last is Kith's
	Services netip.Prefix // at least a /24
	IPv6     Cluster6     // none: IPv4 only
}

// Usual is the cluster of K3s, and of Kith where nothing else is set.
func Usual() Cluster {
	return Cluster{Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16")}
}

// Validate says what is wrong with the ranges of a cluster whose addresses Kith gives.
func (c Cluster) Validate() error {
	if !c.Pods.Addr().Is4() || c.Pods.Bits() > 23 {
		return fmt.Errorf("pod range %s: want an IPv4 range of /23 or larger, such as 10.42.0.0/16", c.Pods)
	}
	if !c.Services.Addr().Is4() || c.Services.Bits() > 24 {
		return fmt.Errorf("service range %s: want an IPv4 range of /24 or larger, such as 10.43.0.0/16", c.Services)
	}
	if c.IPv6 == (Cluster6{}) {
		return nil
	}
	return c.IPv6.Validate()
}

// NodePods is the part of the pods' range from which this node's pods get their addresses: the first /24.
func (c Cluster) NodePods() netip.Prefix { return netip.PrefixFrom(nth(c.Pods, 0), 24) }

// Node is the node's address, the first of the last /24 of the pods' range: outside the node's own part, so no pod gets it, and
// inside the range, so it has an alias at every peer.
func (c Cluster) Node() netip.Addr { return nth(c.own(), 1) }

// Gateway is the address of the tunnel's device, the one behind the node's.
func (c Cluster) Gateway() netip.Addr { return nth(c.own(), 2) }

// DNS is the service address of the cluster's DNS, the tenth of the services' range, as K3s and kubeadm have it.
func (c Cluster) DNS() netip.Addr { return nth(c.Services, 10) }

// API is the service address of the API server, that of kubernetes.default: the first of the services' range, as every API server takes it.
func (c Cluster) API() netip.Addr { return nth(c.Services, 1) }

// own is the last /24 of the pods' range, which no node gives to its pods.
func (c Cluster) own() netip.Prefix { return netip.PrefixFrom(Last(c.Pods), 24).Masked() }
