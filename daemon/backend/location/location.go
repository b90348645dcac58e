// Package location says where a reference that an owner gives for a cluster leads: an address, or a name in the DNS whose records may say which
// cluster it is. It has the words for those that lead nowhere, and for peers that do not answer.
//
// It must never dial what it finds, nor believe a record more than the key that answers there.
package location

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/trust/identity"
)

// Location is where a reference leads: to these addresses, and, if a record in the DNS says so, to this cluster alone.
type Location struct {
	Ref       string
	Name      string // to follow; "" for an address, and for a name that the DNS does not have
	ID        identity.ID
	Addresses []string
}

// Finder looks references up.
type Finder struct {
	Names Names
	Me    identity.ID
	Port  uint16 // of a reference without one
}

// Names looks up where names in the DNS lead; *dns.Finder does.
type Names interface {
	Find(ctx context.Context, name dns.Name) ([]dns.Place, error)
}

// Find finds out where an address, or a name, leads. A name that only this machine knows (/etc/hosts) is taken as one of those.
func (f Finder) Find(ctx context.Context, ref string) (Location, error) {
	address, err := withPort(ref, f.Port)
	host, _, _ := net.SplitHostPort(address)
	if _, isAddress := netip.ParseAddr(host); err == nil && isAddress == nil {
		return Location{Ref: ref, Addresses: []string{address}}, nil
	}
	name, wrong := dns.ParseName(ref)
	if wrong != nil && err != nil && isLiteral(ref) {
		return Location{}, err
	}
	if wrong != nil {
		return Location{}, api.Invalid("address", ref, "host:port, with an IP address or a DNS name, or a name with SRV records")
	}
	places, lookup := f.Names.Find(ctx, name)
	var nowhere *dns.NotFoundError
	switch {
	case lookup == nil:
		return pick(ref, name, places, f.Me)
	case !errors.As(lookup, &nowhere):
		return Location{}, lookup
	case err == nil && !nowhere.Refused && knownHere(ctx, name.Host):
		return Location{Ref: ref, Addresses: []string{address}}, nil
	}
	return Location{}, notFound(ref, nowhere)
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
func pick(ref string, name dns.Name, places []dns.Place, me identity.ID) (Location, error) {
	to := Location{Ref: ref, Name: name.String()}
	var others []string
	self := false
	for _, p := range places {
		switch {
		case p.ID.IsZero():
		case p.ID == me:
			self = true
		case to.ID.IsZero():
			to.ID = p.ID
			others = append(others, p.Host+" ("+p.ID.Short()+")")
		case p.ID != to.ID:
			others = append(others, p.Host+" ("+p.ID.Short()+")")
		}
	}
	if len(others) > 1 {
		return Location{}, &api.Error{Code: api.CodeConflict, Message: ref + " names several clusters: " + strings.Join(others, ", "), Field: "address",
			Do: "add one of them by its host's name; or all are looked for with discovery.dnsDomains in config.yaml"}
	}
	if self && to.ID.IsZero() {
		return Location{}, ThisOne(ref)
	}
	first := ""
	for _, p := range places {
		if p.ID != to.ID || to.ID.IsZero() && first != "" && p.Host != first { // who is nobody's word: the preferred host
			continue
		}
		first = p.Host
		for _, a := range p.Addresses {
			to.Addresses = append(to.Addresses, a.String())
		}
	}
	return to, nil
}

// ThisOne is that a reference leads to this cluster itself.
func ThisOne(ref string) error {
	return api.Invalid("address", ref, "the address of another cluster: this one answers there")
}

// LookAtServers is what to do when the DNS does not answer.
const LookAtServers = "is this laptop on the network, and are the name servers in /etc/resolv.conf the right ones?"

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
		out.Do = LookAtServers + " `kith peer add HOST:PORT` takes an address"
	}
	return out
}

// Unreachable is why nobody, or another than the records name, was reached.
func (to Location) Unreachable(err error) *api.Error {
	who := to.Ref
	if len(to.Addresses) == 1 && to.Name == "" {
		who = to.Addresses[0]
	}
	e := Unreachable(who, err)
	var mismatch *identity.MismatchError
	if !to.ID.IsZero() && errors.As(err, &mismatch) {
		e.Do = "another cluster is there than the TXT record of its zone says: ask its owner for the ID that `kith status` shows, and who keeps the zone for that of `kith dns-records`"
	}
	return e
}

func withPort(hostport string, port uint16) (string, error) {
	if _, _, err := net.SplitHostPort(hostport); err != nil {
		hostport = net.JoinHostPort(strings.Trim(hostport, "[]"), strconv.Itoa(int(port)))
	}
	told := hostport
	if at, err := netip.ParseAddrPort(hostport); err == nil {
		a := at.Addr().Unmap()
		if linkLocal := a.Is6() && a.IsLinkLocalUnicast(); !linkLocal {
			a = a.WithZone("")
		} else if _, err := net.InterfaceByName(a.Zone()); err != nil { // there is none without a name
			return "", api.Invalid("address", hostport, "a link-local address with the interface of this machine behind which it is, such as [fe80::1%eth0]:6450")
		}
		if a.IsUnspecified() || a.IsMulticast() {
			return "", api.Invalid("address", hostport, "the address of one machine")
		}
		hostport = netip.AddrPortFrom(a, at.Port()).String()
		told = netip.AddrPortFrom(a.WithZone(""), at.Port()).String()
	}
	if err := peering.CheckEndpoint(told); err != nil {
		return "", api.Invalid("address", hostport, "host:port, with an IP address or a DNS name")
	}
	return hostport, nil
}

// Unreachable says that a peer does not answer, or that another answers in its place.
func Unreachable(who string, err error) *api.Error {
	e := &api.Error{Code: api.CodePeerUnreachable, Message: who + " does not answer", Reason: err.Error(), Do: "is kithd running there, and does its firewall let TCP in at that port?"}
	var mismatch *identity.MismatchError
	var problem *peering.Problem
	switch {
	case errors.As(err, &mismatch):
		e.Message, e.Do = who+" was refused", "if its owner made a new key, `kith forget` it and add it again; compare the fingerprints first"
	case errors.As(err, &problem) && problem.Code == peering.CodeVersion:
		return OtherVersion(who, problem.Message)
	}
	return e
}

// OtherVersion says that two daemons do not understand each other; why names both versions.
func OtherVersion(who, why string) *api.Error {
	why = strings.TrimSuffix(why, " (bring both to the same version of Kith)")
	return &api.Error{Code: api.CodeUnsupported, Message: who + " cannot be asked", Reason: why, Do: "bring both to the same version of Kith"}
}
