package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

const (
	srvPrefix  = "_kith._tcp."
	maxTargets = 16 // of one domain
	maxIDs     = 4  // of one target: several while its key changes, or if records are wrong
)

// Place is where a name leads: one host, and, if a TXT record says so, whose it is.
type Place struct {
	Host      string
	ID        identity.ID // zero: nothing says
	Name      string
	Port      uint16
	Addresses []netip.AddrPort // that can be dialled; there may be none

	seen   time.Time
	unsure bool // nobody answered whose it is
}

// services gives the places that the SRV records of a domain name. found: there are such records, be it the one that says that there is no
// such service. known: somebody answered.
func (i *inquiry) services(domain string) (places []Place, found, known bool) {
	records, at, known := i.get(srvPrefix+domain+".", dnsmessage.TypeSRV)
	seen := map[string]bool{}
	for _, srv := range of[*dnsmessage.SRVResource](records) {
		host := strings.TrimSuffix(strings.ToLower(srv.Target.String()), ".")
		to := fmt.Sprint(host, ":", srv.Port)
		if host == "" || srv.Port == 0 || !isHostName(srvPrefix+host) || seen[to] { // "." says there is no such service (RFC 2782)
			continue
		}
		if len(seen) == maxTargets {
			break
		}
		seen[to] = true
		whose, sure := i.whose(host)
		addresses := i.addresses(host, srv.Port)
		if len(whose) == 0 {
			whose = []discovery.TXT{{}}
		}
		for _, w := range whose {
			places = append(places, Place{Host: host, ID: w.ID, Name: w.Name, Port: srv.Port, Addresses: slices.Clone(addresses), seen: at, unsure: !sure})
		}
	}
	return places, len(records) > 0, known
}

// whose gives what TXT records say of who is at a host, one by ID.
func (i *inquiry) whose(host string) (all []discovery.TXT, known bool) {
	records, _, known := i.get(srvPrefix+host+".", dnsmessage.TypeTXT)
	for _, t := range of[*dnsmessage.TXTResource](records) {
		c, ok := discovery.ParseTXT(t.TXT)
		if ok && len(all) < maxIDs && !slices.ContainsFunc(all, func(have discovery.TXT) bool { return have.ID == c.ID }) {
			all = append(all, c)
		}
	}
	return all, known
}

// addresses are those of a host.
func (i *inquiry) addresses(host string, port uint16) []netip.AddrPort {
	all, _ := i.addressesAt(host, port)
	return all
}

func (i *inquiry) addressesAt(host string, port uint16) (all []netip.AddrPort, latest time.Time) {
	v4, at, _ := i.get(host+".", dnsmessage.TypeA)
	for _, rr := range of[*dnsmessage.AResource](v4) {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4(rr.A), port))
	}
	v6, at6, _ := i.get(host+".", dnsmessage.TypeAAAA)
	for _, rr := range of[*dnsmessage.AAAAResource](v6) {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom16(rr.AAAA).Unmap(), port))
	}
	return bounded(all), later(at, at6)
}

// bounded gives as many of these addresses as a sighting may have that can be dialled, whatever their order was.
func bounded(all []netip.AddrPort) []netip.AddrPort {
	all = slices.DeleteFunc(all, func(a netip.AddrPort) bool {
		return !discovery.Dialable(a.Addr()) || a.Addr().IsLinkLocalUnicast() // of which link, nobody says
	})
	slices.SortFunc(all, compare)
	all = slices.Compact(all)
	return all[:min(len(all), discovery.MaxAddresses)]
}

// sightings are what is known of a name. In a domain only places count of which a TXT record says whose they are; a name that is followed
// leads to its Peer, unless a TXT record says that it leads to somebody else.
func (i *inquiry) sightings(f Followed, port uint16) (all []discovery.Sighting) {
	add := func(id identity.ID, p Place) {
		all = append(all, discovery.Sighting{Name: p.Name, ID: id, Source: discovery.DNSSource, Addresses: p.Addresses, Seen: p.seen})
	}
	if f.Port != 0 {
		if p, there := i.host(f.Host, f.Port); there {
			add(f.ID, p)
		}
		return all
	}
	places, found, known := i.services(f.Host)
	for _, p := range places {
		switch {
		case f.ID.IsZero() && !p.ID.IsZero():
			add(p.ID, p)
		case !f.ID.IsZero() && (p.ID == f.ID || p.ID.IsZero()):
			add(f.ID, p)
		}
	}
	if known && !found && !f.ID.IsZero() {
		if p, there := i.host(f.Host, port); there {
			add(f.ID, p)
		}
	}
	return all
}

// host is a place by its name alone, if it has addresses.
func (i *inquiry) host(name string, port uint16) (p Place, there bool) {
	p = Place{Host: name, Port: port}
	p.Addresses, p.seen = i.addressesAt(name, port)
	return p, len(p.Addresses) > 0
}

// NotFoundError is that a name leads nowhere.
type NotFoundError struct {
	Name    Name
	Asked   []string // what was asked of whom, and what came of it
	Silent  bool     // something was not answered: it may lead somewhere all the same
	Refused bool     // its SRV record says that there is no such service (RFC 2782, a target of ".")
}

func (e *NotFoundError) Error() string {
	return e.Name.String() + " leads to no address: " + strings.Join(e.Asked, "; ")
}

// Find looks up now where a name leads, for who adds a Peer by it: what its SRV records name, else the host at the port given, or the
// usual one. The places are in their records' order. The error is a *NotFoundError, or that ctx ended.
func (f *Finder) Find(ctx context.Context, n Name) ([]Place, error) {
	timed, cancel := context.WithTimeout(ctx, lookupDeadline)
	defer cancel()
	i := &inquiry{ctx: timed, ask: f.ask, fresh: true}
	var places []Place
	var found, known bool
	if n.Port == 0 {
		places, found, known = i.services(n.Host)
	}
	if n.Port != 0 || known && !found {
		if p, there := i.host(n.Host, cmp.Or(n.Port, f.port)); there {
			places = append(places, p)
		}
	}
	places = slices.DeleteFunc(places, func(p Place) bool { return len(p.Addresses) == 0 || p.unsure })
	if len(places) > 0 {
		return places, nil
	}
	if err := context.Cause(ctx); err != nil && (errors.Is(err, context.Canceled) || len(i.asked) == 0) {
		return nil, err // who has no time left still hears whom it was spent on
	}
	e := &NotFoundError{Name: n, Refused: found && len(i.asked) == 1}
	for _, a := range i.asked {
		e.Asked = append(e.Asked, a.words())
		e.Silent = e.Silent || a.err != nil
	}
	if len(e.Asked) == 0 {
		return nil, errors.New("nothing was asked")
	}
	return nil, e
}

// words say what was asked, of whom, and what came of it.
func (a asked) words() string {
	name := strings.TrimSuffix(a.question.String(), ".")
	switch {
	case a.err != nil:
		return strings.Replace(a.err.Error(), a.question.String(), name, 1)
	case a.none:
		return fmt.Sprintf("%s: name server %s knows none", name, shown(a.server))
	}
	return fmt.Sprintf("%s: name server %s has that", name, shown(a.server))
}
