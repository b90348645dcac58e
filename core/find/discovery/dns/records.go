package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

// Zone is what a cluster's records in the DNS are made of.
type Zone struct {
	ID        identity.ID
	Name      string // of the cluster, for people
	Domain    string // that is to name it; "" leaves names relative to the zone that they are put into
	Host      string // what the cluster's host is called in it; "" is Name
	Port      uint16
	Addresses []netip.Addr
	TTL       time.Duration // of all; 0: an hour, five minutes for addresses, for laptops move
}

// Record is one line of a zone file (RFC 1035 section 5.1).
type Record struct {
	Name string // with a dot at its end, or relative to the zone
	TTL  time.Duration
	Type string
	Data string // as in a zone file
}

const (
	ttlRecords   = time.Hour
	ttlAddresses = 5 * time.Minute
	maxZoneTTL   = 1<<31 - 1 // seconds (RFC 2181 section 8)
)

// Records gives what DNS finds the cluster by, in its domain, and at its host's own name.
func (z Zone) Records() ([]Record, error) {
	host, domain, at, err := z.names()
	if err != nil {
		return nil, err
	}
	if seconds := z.TTL / time.Second; z.TTL != 0 && (seconds < 1 || seconds > maxZoneTTL) {
		return nil, fmt.Errorf("ttl: %s is not from 1 second to 68 years", z.TTL)
	}
	ttl := func(usual time.Duration) time.Duration {
		if z.TTL != 0 {
			return z.TTL
		}
		return usual
	}
	service := func(of string) string {
		if of == "@" {
			return strings.TrimSuffix(srvPrefix, ".")
		}
		return srvPrefix + of
	}
	var out []Record
	for _, of := range slices.Compact([]string{domain, host}) {
		out = append(out, Record{service(of), ttl(ttlRecords), "SRV", fmt.Sprintf("0 0 %d %s", z.Port, host)})
	}
	var words []string
	for _, w := range (discovery.TXT{ID: z.ID, Name: discovery.CleanName(z.Name)}).Strings() {
		words = append(words, quoted(w))
	}
	out = append(out, Record{service(host), ttl(ttlRecords), "TXT", strings.Join(words, " ")})
	for _, a := range z.Addresses {
		if !discovery.Dialable(a.Unmap()) || a.IsLinkLocalUnicast() || a.Zone() != "" {
			return nil, fmt.Errorf("address: %s is none that others reach", a)
		}
		kind := "AAAA"
		if a = a.Unmap(); a.Is4() {
			kind = "A"
		}
		out = append(out, Record{at, ttl(ttlAddresses), kind, a.String()})
	}
	return out, nil
}

// names gives those of host and domain as they are written, and the one for addresses. A host with a dot in it is a whole name.
func (z Zone) names() (host, domain, at string, err error) {
	host = z.Host
	if host == "" {
		host = z.Name
	}
	if z.Domain == "" {
		if host == "@" {
			return host, host, host, nil
		}
		n, err := ParseName(host)
		if err != nil || n.Port != 0 || strings.Contains(n.Host, ".") {
			return "", "", "", fmt.Errorf("host: %q is not the first part of a name; give the domain", host)
		}
		return n.Host, "@", n.Host, nil
	}
	d, err := ParseName(z.Domain)
	if err != nil || d.Port != 0 {
		return "", "", "", fmt.Errorf("domain: %q is no name in the DNS", z.Domain)
	}
	if host == "@" {
		host = d.Host
	} else if !strings.Contains(host, ".") {
		host += "." + d.Host
	}
	h, err := ParseName(host)
	if err != nil || h.Port != 0 {
		return "", "", "", fmt.Errorf("host: %q is no name in the DNS", host)
	}
	return h.Host + ".", d.Host + ".", h.Host + ".", nil
}

// quoted is a string of a TXT record as a zone file has it.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
