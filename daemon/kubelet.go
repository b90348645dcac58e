package daemon

import (
	"net"
	"net/netip"

	"kith.dev/core/local/cluster"
)

// kubeletAt is where the API server's calls to virtual nodes come in.
func (d *Daemon) kubeletAt(facts cluster.Facts) netip.Addr {
	if d.cfg.RunsCluster() {
		return facts.NodeIP
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		d.log.Warn("own addresses are not known", "err", err)
		return facts.NodeIP
	}
	at := comesInAt(facts.NodeIP, own)
	if at != facts.NodeIP && !d.cfg.KubeletAddress.IsValid() {
		d.log.Warn("the node is another machine than this one, so the cluster's API server does not find kithd there: logs and exec of pods at peers need kubeletAddress",
			"node", facts.NodeName, "address", facts.NodeIP.String())
	}
	return at
}

// comesInAt is where what is sent to an address that stands for this machine comes in. In a virtual machine with a network in user mode (Docker
// Desktop, Lima) that is an address which this machine does not have, and what is sent there comes to its loopback.
func comesInAt(ip netip.Addr, own []net.Addr) netip.Addr {
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip {
			return ip
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
