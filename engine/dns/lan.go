package dns

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// What guests do not learn of the network the laptop is in, though its servers answer their questions: names that mean
// something there only are not asked for, addresses there are left out of answers (the fence closes them anyway), and what
// is at such an address has no name.

// localDomains are not delegated on the internet: RFC 6762 and its appendix G, RFC 8375, and ICANN's internal.
var localDomains = []string{"local.", "lan.", "home.", "home.arpa.", "internal.", "intranet.", "private.", "corp.", "localdomain."}

// clusterDomain ends all names in a cluster.
const clusterDomain = "cluster.local."

// localName reports whether a name, in lower case, can only mean something in the network around: one of a single label, or under
// a domain of that kind.
func localName(name string) bool {
	if dns.IsSubDomain(clusterDomain, name) || name == "." {
		return false
	}
	return dns.CountLabel(name) == 1 || slices.ContainsFunc(localDomains, func(d string) bool { return dns.IsSubDomain(d, name) })
}

// Ranges that are local beside those that netip knows as such: RFC 6598, RFC 791.
var shared, thisNetwork = netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("0.0.0.0/8")

// localAddress reports whether an address is private, shared, link-local or loopback, RFC 1918, 6598, 3927, 4193 and 4291.
func localAddress(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsUnspecified() || shared.Contains(a) || thisNetwork.Contains(a)
}

// localReverse reports whether a reverse name is that of such an address, or, naming no whole address, could be.
func localReverse(name string) bool {
	address, ok := reverseOf(name)
	return !ok || localAddress(address)
}

// transfer reports whether a question is for a whole zone.
func transfer(q dns.Question) bool { return q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR }

// withoutLAN takes out of an answer, which it changes, what tells of the network around.
func withoutLAN(asked string, m *dns.Msg) {
	had := len(m.Answer)
	m.Answer = slices.DeleteFunc(m.Answer, ofLAN)
	m.Extra = slices.DeleteFunc(m.Extra, ofLAN)
	switch {
	case isReverse(asked) && localReverse(asked) && len(m.Answer) == 0: // also that there is a zone
		m.Rcode, m.Ns = dns.RcodeNameError, nil
	case had > len(m.Answer):
		m.Ns = nil
	}
}

// ofLAN reports whether a record tells an address in the network around, or the name of one.
func ofLAN(rr dns.RR) bool {
	name := strings.ToLower(rr.Header().Name)
	if dns.IsSubDomain(clusterDomain, name) {
		return false
	}
	local := func(ip net.IP) bool {
		a, ok := netip.AddrFromSlice(ip)
		return !ok || localAddress(a)
	}
	switch rr := rr.(type) {
	case *dns.A:
		return local(rr.A)
	case *dns.AAAA:
		return local(rr.AAAA)
	case *dns.PTR:
		return isReverse(name) && localReverse(name) && !dns.IsSubDomain(clusterDomain, strings.ToLower(rr.Ptr))
	case *dns.HTTPS:
		return hints(&rr.SVCB, local)
	case *dns.SVCB:
		return hints(rr, local)
	}
	return false
}

func hints(rr *dns.SVCB, local func(net.IP) bool) bool {
	return slices.ContainsFunc(rr.Value, func(v dns.SVCBKeyValue) bool {
		switch v := v.(type) {
		case *dns.SVCBIPv4Hint:
			return slices.ContainsFunc(v.Hint, local)
		case *dns.SVCBIPv6Hint:
			return slices.ContainsFunc(v.Hint, local)
		}
		return false
	})
}

func isReverse(name string) bool {
	name = strings.ToLower(name)
	return dns.IsSubDomain("in-addr.arpa.", name) || dns.IsSubDomain("ip6.arpa.", name)
}
