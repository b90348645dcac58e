package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/trust/identity"
)

// located is where a reference leads: to these addresses, and, if a record in the DNS says so, to this cluster alone.
type located struct {
	ref       string
	name      string // to follow; "" for an address, and for a name that the DNS does not have
	id        identity.ID
	addresses []string
}

// locate finds out where an address, or a name, leads. A name that only this machine knows (/etc/hosts) is taken as one of those.
func (b *Backend) locate(ctx context.Context, ref string) (located, error) {
	address, err := withPort(ref, b.Settings.PeerAPIPort)
	host, _, _ := net.SplitHostPort(address)
	if _, isAddress := netip.ParseAddr(host); err == nil && isAddress == nil {
		return located{ref: ref, addresses: []string{address}}, nil
	}
	name, wrong := dns.ParseName(ref)
	if wrong != nil && err != nil && isLiteral(ref) {
		return located{}, err
	}
	if wrong != nil {
		return located{}, api.Invalid("address", ref, "host:port, with an IP address or a DNS name, or a name with SRV records")
	}
	places, lookup := b.Names.Find(ctx, name)
	var nowhere *dns.NotFoundError
	switch {
	case lookup == nil:
		return pick(ref, name, places, b.Me.ID())
	case !errors.As(lookup, &nowhere):
		return located{}, lookup
	case err == nil && !nowhere.Refused && knownHere(ctx, name.Host):
		return located{ref: ref, addresses: []string{address}}, nil
	}
	return located{}, notFound(ref, nowhere)
}

// isLiteral reports whether text is an IP address, with a port or without.
func isLiteral(text string) bool {
	_, err := netip.ParseAddr(strings.Trim(text, "[]"))
	_, errPort := netip.ParseAddrPort(text)
	return err == nil || errPort == nil
}

// knownHere reports whether the system has an address for a name of which the DNS knows none.
func knownHere(ctx context.Context, host string) bool {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err == nil && len(found) > 0
}

// pick takes those of the places that are the one cluster meant. Where records say whose a host is, they must all say the same.
func pick(ref string, name dns.Name, places []dns.Place, me identity.ID) (located, error) {
	to := located{ref: ref, name: name.String()}
	var others []string
	self := false
	for _, p := range places {
		switch {
		case p.ID.IsZero():
		case p.ID == me:
			self = true
		case to.id.IsZero():
			to.id = p.ID
			others = append(others, p.Host+" ("+p.ID.Short()+")")
		case p.ID != to.id:
			others = append(others, p.Host+" ("+p.ID.Short()+")")
		}
	}
	if len(others) > 1 {
		return located{}, &api.Error{Code: api.CodeConflict, Message: ref + " names several clusters: " + strings.Join(others, ", "), Field: "address",
			Do: "add one of them by its host's name; or all are looked for with discovery.dnsDomains in config.yaml"}
	}
	if self && to.id.IsZero() {
		return located{}, thisOne(ref)
	}
	first := ""
	for _, p := range places {
		if p.ID != to.id || to.id.IsZero() && first != "" && p.Host != first { // who is nobody's word: the preferred host
			continue
		}
		first = p.Host
		for _, a := range p.Addresses {
			to.addresses = append(to.addresses, a.String())
		}
	}
	return to, nil
}

func thisOne(ref string) error {
	return api.Invalid("address", ref, "the address of another cluster: this one answers there")
}

const lookAtServers = "is this laptop on the network, and are the name servers in /etc/resolv.conf the right ones?"

// notFound says what was asked of whom, and what can be done.
func notFound(ref string, e *dns.NotFoundError) *api.Error {
	out := &api.Error{Code: api.CodeNotFound, Message: ref + " leads to no address", Field: "address", Reason: strings.Join(e.Asked, "; "),
		Do: "is it spelled right? `kith dns-records` at its owner's prints what its zone needs; `kith peer add HOST:PORT` takes an address"}
	switch {
	case e.Refused:
		out.Message = ref + " says that no cluster is there"
		out.Reason = `its SRV record has the target "."`
	case e.Silent:
		out.Code = api.CodePeerUnreachable
		out.Message = ref + " could not be looked up"
		out.Do = lookAtServers + " `kith peer add HOST:PORT` takes an address"
	}
	return out
}

// unreachable is why nobody, or another than the records name, was reached.
func (to located) unreachable(err error) *api.Error {
	who := to.ref
	if len(to.addresses) == 1 && to.name == "" {
		who = to.addresses[0]
	}
	e := unreachable(who, err)
	var mismatch *identity.MismatchError
	if !to.id.IsZero() && errors.As(err, &mismatch) {
		e.Do = "another cluster is there than the TXT record of its zone says: ask its owner for the ID that `kith status` shows, and who keeps the zone for that of `kith dns-records`"
	}
	return e
}
