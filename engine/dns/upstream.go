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
	servers []netip.Addr
	rest    []string // search and options lines, as they are
}

// upstreams reads the first of the files that names a server pods can use. No such server is no error:
// a laptop has none while it is offline.
func upstreams(files []string, unusable ...netip.Addr) resolver {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if r := parse(string(b), unusable...); len(r.servers) > 0 {
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
			if addr.Zone() == "" && len(r.servers) < 3 && !slices.Contains(r.servers, addr) {
				r.servers = append(r.servers, addr)
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
