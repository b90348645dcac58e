package doctor

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/mdns"
	"kith.dev/core/net/netplan"
	"kith.dev/daemon/config"
)

// network looks at the LAN as far as one machine alone can: what others do with its packets it does not know.
func (m Machine) network(ctx context.Context, report func(api.Finding)) {
	in := about{area: api.AreaNetwork}
	if echoes, err := mdns.Echoes(ctx, m.Discovery.Interfaces); err != nil && len(echoes) == 0 {
		report(in.warn("multicast", "it is not known whether multicast works", err.Error(), "see that no other program has UDP port 5353 for itself (ss -ulpn), and look again"))
	} else {
		if m.Discovery.LAN {
			report(multicast(in, echoes))
		}
		if m.Engine != config.EngineKubeconfig { // else the machine may be a pod, whose device is an overlay's
			report(mtu(in, echoes))
		}
	}
	if m.RunsCluster() {
		m.resolver(in, report)
	}
	if os.Geteuid() == 0 { // only root may ask firewalls
		m.ufw(ctx, in, report)
		m.firewalld(ctx, in, report)
	}
}

func multicast(in about, echoes []mdns.Echo) api.Finding {
	const name = "multicast"
	var deaf, names []string
	why := "this machine did not hear its own question; a packet filter drops UDP port 5353, or multicast"
	for _, e := range echoes {
		names = append(names, e.Interface)
		if e.Heard {
			continue
		}
		deaf = append(deaf, e.Interface)
		if e.Err != nil {
			why = "what is sent to it does not leave: " + e.Err.Error()
		}
	}
	switch {
	case len(echoes) == 0:
		return in.ok(name, "there is no LAN now on which others could be found")
	case len(deaf) > 0:
		return in.fail(name, "multicast (mDNS) is filtered on "+strings.Join(deaf, ", ")+": other laptops are not found there, nor find this one", why,
			"let UDP port 5353 in and out for 224.0.0.251 and ff02::fb; or name peers: kith peer add HOST:PORT")
	}
	return in.ok(name, "this machine hears its own multicast on %s", strings.Join(names, ", "))
}

// leastMTU is what the device of a LAN has at least: Ethernet and Wi-Fi have 1500, overlays of clouds 1450 and less, phones 1428.
const leastMTU = 1400

func mtu(in about, echoes []mdns.Echo) api.Finding {
	for _, e := range echoes {
		if e.MTU > 0 && e.MTU < leastMTU {
			return in.warn("mtu", fmt.Sprintf("the device %s takes packets of %d bytes at most", e.Interface, e.MTU),
				"a LAN takes 1500; all tunnels are narrower for it, and pods that send larger packets without heeding errors hang",
				fmt.Sprintf("if nothing on the way needs it so: ip link set %s mtu 1500, and the same where the network is configured", e.Interface))
		}
	}
	return in.ok("mtu", "the devices of the LAN take packets of %d bytes and more", leastMTU)
}

// resolver looks for a DNS server that pods can ask, as the engine does.
func (m Machine) resolver(in about, report func(api.Finding)) {
	const name = "resolver"
	own := []netip.Addr{netplan.Cluster{Pods: m.PodRange, Services: m.ServiceRange}.DNS()}
	text, _ := os.ReadFile("/proc/thread-self/net/udp")
	listening := answersDNS(string(text))
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			// Who runs a DNS server for others has a laptop that pods can ask, too. The cluster's own is no such server.
			at := p.Addr().Unmap()
			if m.PodRange.Contains(at) || !slices.Contains(listening, at) && !slices.Contains(listening, netip.IPv4Unspecified()) {
				own = append(own, at)
			}
		}
	}
	named := false
	var back []string
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		others, selves := servers(string(text), own)
		if len(others) > 0 {
			report(in.ok(name, "names are looked up at %s", others[0]))
			return
		}
		for _, a := range selves {
			named = true
			back = append(back, fmt.Sprintf("%s in %s", a, path))
		}
	}
	if !named || !hasDefaultRoute() { // off the network there are no other servers
		report(in.ok(name, "this machine is told of no DNS server now"))
		return
	}
	report(in.fail(name, "the DNS of this laptop points at itself: "+strings.Join(back, ", "), "pods cannot ask a server that answers to this laptop alone: they find no name outside of the cluster",
		"name the network's own DNS server in /etc/resolv.conf, or in /run/systemd/resolve/resolv.conf, as systemd-resolved does"))
}

// servers are those that a resolv.conf(5) names, and of them those that lead back here.
func servers(resolvConf string, own []netip.Addr) (others, selves []netip.Addr) {
	for line := range strings.Lines(resolvConf) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(f[1])
		switch {
		case err != nil:
		case a.IsLoopback(), a.IsUnspecified(), slices.Contains(own, a.Unmap()):
			selves = append(selves, a)
		default:
			others = append(others, a)
		}
	}
	return others, selves
}

// answersDNS gives the addresses of this machine at which a program listens for DNS questions; 0.0.0.0 stands for all.
func answersDNS(procNetUDP string) (at []netip.Addr) {
	const dns = ":0035"
	for line := range strings.Lines(procNetUDP) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		address, ok := strings.CutSuffix(f[1], dns)
		b, err := hex.DecodeString(address)
		if ok && err == nil && len(b) == 4 {
			slices.Reverse(b) // as the processor has it, and those that Kith runs on are little-endian
			at = append(at, netip.AddrFrom4([4]byte(b)))
		}
	}
	return at
}

func hasDefaultRoute() bool {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		if r.Dst == nil {
			return true
		}
		bits, _ := r.Dst.Mask.Size()
		return bits == 0
	})
}

// synchronised reports whether the kernel is told that the clock is set by the network (adjtimex(2)).
func synchronised() (yes, known bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, false
	}
	return t.Status&unix.STA_UNSYNC == 0, true
}
