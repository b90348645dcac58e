package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"kith.dev/core/identity"
)

const (
	maxDomains  = 64
	maxTargets  = 16 // of one domain
	dnsMin      = 30 * time.Second
	dnsMax      = time.Hour
	dnsNegative = 5 * time.Minute // when a missing answer tells no TTL
	dnsRetryMax = 15 * time.Minute
	dnsDeadline = 30 * time.Second // for all questions about one domain
	srvPrefix   = "_kith._tcp."
)

// DNS looks clusters up in a configured domain:
//
//	_kith._tcp.example.com.      SRV  0 0 6450 lab.example.com.
//	_kith._tcp.lab.example.com.  TXT  "v=1" "id=<compact ID>" "name=lab"
//	lab.example.com.             A/AAAA
//
// The TXT record is looked up at _kith._tcp.<target>, because one domain may name several clusters, and
// there it meets no SPF or other record; when the target is the domain itself, it lies at the SRV record's
// name, as DNS-SD has it. A target without a TXT record is no cluster: it has no ID to be known by.
type DNS struct {
	domain string
	ask    resolver
	look   func(ctx context.Context) ([]Sighting, time.Duration, error)
	log    *slog.Logger
}

// NewDNS makes the finders for these domains. Servers ("192.0.2.53:53") are those of the system's
// resolv.conf when none are given; it is read anew for every look-up, since laptops move.
func NewDNS(domains []string, servers []string, log *slog.Logger) (finders []Finder, err error) {
	if len(domains) > maxDomains {
		return nil, fmt.Errorf("discovery by DNS: %d domains are too many, %d at most", len(domains), maxDomains)
	}
	for _, name := range domains {
		domain := strings.ToLower(strings.TrimSuffix(name, "."))
		if !isHostName(srvPrefix + domain) {
			return nil, fmt.Errorf("discovery by DNS: %q is not a domain", name)
		}
		d := &DNS{domain: domain, ask: resolver{servers: servers}, log: log}
		d.look = d.lookup
		finders = append(finders, d)
	}
	return finders, nil
}

func (d *DNS) String() string { return "DNS (" + d.domain + ")" }

// Run looks the domain up, again whenever its records expire, and reports what it names until ctx ends. A domain that
// cannot be looked up keeps what it said last.
func (d *DNS) Run(ctx context.Context, events chan<- Event) error {
	told := map[identity.ID]Sighting{}
	for failures := 0; ; {
		timed, cancel := context.WithTimeout(ctx, dnsDeadline)
		sightings, ttl, err := d.look(timed)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if failures == 0 {
				d.log.Warn("cannot look up clusters in a domain, will try again", "domain", d.domain, "err", err)
			}
			ttl = min(dnsMin<<min(failures, 10), dnsRetryMax)
			failures++
		} else {
			failures = 0
			for _, e := range changes(told, union(sightings)) {
				select {
				case <-ctx.Done():
					return nil
				case events <- e:
				}
			}
		}
		ttl = min(max(ttl, dnsMin), dnsMax)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(ttl-rand.N(ttl/10), dnsMin)):
		}
	}
}

// union joins the sightings of the same cluster.
func union(all []Sighting) map[identity.ID]Sighting {
	out := map[identity.ID]Sighting{}
	for _, s := range all {
		have, ok := out[s.ID]
		if !ok {
			s.Addresses = slices.Clone(s.Addresses)
			out[s.ID] = s
			continue
		}
		for _, a := range s.Addresses {
			if len(have.Addresses) < maxAddresses && !slices.Contains(have.Addresses, a) {
				have.Addresses = append(have.Addresses, a)
			}
		}
		if s.Seen.After(have.Seen) {
			have.Seen = s.Seen
		}
		out[s.ID] = have
	}
	return out
}

// changes brings told up to now and gives the events that say so.
func changes(told, now map[identity.ID]Sighting) (events []Event) {
	for id, old := range told {
		if _, ok := now[id]; !ok {
			events = append(events, Event{Sighting: old, Gone: true})
			delete(told, id)
		}
	}
	for id, s := range now {
		if old, ok := told[id]; !ok || worthTelling(old, s) {
			events = append(events, Event{Sighting: s})
			told[id] = s
		}
	}
	return events
}

// lookup asks all there is to ask about the domain, and how long the answers hold.
func (d *DNS) lookup(ctx context.Context) ([]Sighting, time.Duration, error) {
	services, ttl, err := d.ask.srv(ctx, srvPrefix+d.domain+".")
	if err != nil {
		return nil, 0, err
	}
	var out []Sighting
	for _, srv := range services[:min(len(services), maxTargets)] {
		target := strings.ToLower(srv.Target)
		host := strings.TrimSuffix(target, ".")
		if host == "" || srv.Port == 0 || !isHostName(host) { // "." says there is no such service (RFC 2782)
			continue
		}
		s := Sighting{Source: DNSSource, Seen: time.Now()}
		txt, txtTTL, err := query[*dns.TXT](ctx, d.ask, srvPrefix+target, dns.TypeTXT)
		if err != nil {
			return nil, 0, err
		}
		for _, t := range txt {
			if c, ok := parseTXT(t.Txt); ok {
				s.ID, s.Name = c.id, c.name
				break
			}
		}
		if ttl = min(ttl, txtTTL); s.ID.IsZero() {
			continue
		}
		addresses, addrTTL, err := d.ask.addresses(ctx, target)
		if err != nil {
			return nil, 0, err
		}
		for _, a := range addresses {
			if dialable(a) && len(s.Addresses) < maxAddresses {
				s.Addresses = append(s.Addresses, netip.AddrPortFrom(a, srv.Port))
			}
		}
		out = append(out, s)
		ttl = min(ttl, addrTTL)
	}
	return out, ttl, nil
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
