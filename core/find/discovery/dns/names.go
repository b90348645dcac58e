package dns

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Name is a name in the DNS by which clusters are found. With a port it is a host. Without, it is what its SRV records name, and, when it
// has none, a host whose cluster is at the usual port.
type Name struct {
	Host string // lower case, in its ASCII form (RFC 5891), no dot at the end
	Port uint16
}

// ParseName reads "example.org", "bücher.example", "lab.example.org:7000".
func ParseName(text string) (Name, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
	}
	var n Name
	if port != "" || err == nil {
		p, err := strconv.ParseUint(port, 10, 16)
		if err != nil || p == 0 {
			return Name{}, fmt.Errorf("%.300q has a port that is not 1 to 65535", text)
		}
		n.Port = uint16(p)
	}
	n.Host = strings.ToLower(strings.TrimSuffix(host, "."))
	if strings.ContainsFunc(n.Host, func(r rune) bool { return r > 127 }) {
		if n.Host, err = idna.Lookup.ToASCII(n.Host); err != nil {
			return Name{}, fmt.Errorf("%.300q is no name in the DNS", text)
		}
	}
	if !isHostName(srvPrefix + n.Host) { // with what is put before it, it still must be a name
		return Name{}, fmt.Errorf("%.300q is no name in the DNS", text)
	}
	return n, nil
}

// String is what ParseName reads.
func (n Name) String() string {
	if n.Port == 0 {
		return n.Host
	}
	return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
}

// compare orders addresses: IPv4 first, as those of the LAN are.
func compare(a, b netip.AddrPort) int {
	return cmp.Or(cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()), a.Compare(b))
}

func isHostName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	// The last label is never all digits (RFC 3696 section 2); 10.0.0.300 is a mistyped address.
	last := host[strings.LastIndex(host, ".")+1:]
	return strings.Trim(last, "0123456789") != ""
}
