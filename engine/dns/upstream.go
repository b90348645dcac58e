package dns

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// resolvConfs are where the laptop says whom to ask. The second is systemd-resolved's list of the real
// servers: with it running, the first names only its own loopback address, of no use to pods.
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// resolver is what matters of a resolv.conf(5).
type resolver struct {
	servers   []netip.Addr
	linkLocal []netip.Addr // servers that pods cannot ask themselves: the address leads somewhere on the laptop's own link only
	rest      []string     // search and options lines, as they are
}

// asked are those that the cluster's DNS passes questions on to: link-local ones where there are no others, as with routers on a
// network of IPv6 alone.
func (r resolver) asked() []netip.Addr {
	if len(r.servers) > 0 {
		return r.servers
	}
	return r.linkLocal
}

// upstreams reads the first of the files that names a server pods can use. No such server is no error:
// a laptop has none while it is offline.
func upstreams(files []string, unusable ...netip.Addr) resolver {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if r := parse(string(b), unusable...); len(r.asked()) > 0 {
			return r
		}
	}
	return resolver{}
}

// parse takes at most three servers, as the C library does, and leaves out those that would lead back here.
func parse(text string, unusable ...netip.Addr) resolver {
	var r resolver
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			addr, err := netip.ParseAddr(fields[1])
			if err != nil || addr.IsLoopback() || addr.IsUnspecified() || slices.Contains(unusable, addr) {
				continue
			}
			list := &r.servers
			if addr.Is6() && addr.IsLinkLocalUnicast() {
				list = &r.linkLocal
			}
			if (list == &r.linkLocal) != (addr.Zone() != "") { // behind no interface, or behind one for no reason
				continue
			}
			if len(*list) < 3 && !slices.Contains(*list, addr) && !strings.ContainsAny(addr.Zone(), `{}"\#$`) { // which mean something in a Corefile
				*list = append(*list, addr)
			}
		case "search", "options":
			r.rest = append(r.rest, line)
		}
	}
	return r
}

// String is r as a resolv.conf, for pods that ask for the host's DNS.
func (r resolver) String() string {
	var b strings.Builder
	for _, s := range r.servers {
		fmt.Fprintln(&b, "nameserver", s)
	}
	for _, line := range r.rest {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}
