package dns

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/api/v1alpha1"
)

// zones end the names of services, and of pods by their addresses, in this cluster as in every other.
var zones = []string{"svc.cluster.local.", "pod.cluster.local."}

// inside splits a name into what is before the namespace, the namespace, and the zone behind it: "web.", "shop", "svc.cluster.local.".
func inside(name string) (before, namespace, zone string, ok bool) {
	for _, zone := range zones {
		if rest, ok := strings.CutSuffix(name, "."+zone); ok {
			at := strings.LastIndexByte(rest, '.') + 1
			return rest[:at], rest[at:], zone, true
		}
	}
	return "", "", "", false
}

// tenants is a CoreDNS plugin that has guests, pods of other clusters on this node, find what they would find at home:
// shop in web.shop.svc.cluster.local is the namespace shop of their own cluster, whatever its twin here is called; services have
// the addresses that they have at home; and this cluster's own namespaces they do not see. Everybody else's questions pass as they are,
// but what is at the owner's addresses has no name of a guest's.
type tenants struct {
	next  plugin.Handler
	known directory
	id    string       // of this cluster, in its compact form
	pods  netip.Prefix // of this cluster
}

// directory knows guests, their namespaces and the services in them.
type directory interface {
	// tenantOf gives the tenant a guest belongs to; false when the guest is not known.
	tenantOf(guest netip.Addr) (tenant, bool)
	// services at an address, by the one at home or by the one here.
	services(at netip.Addr) []service
	// serves reports whether a twin namespace has a service of that name.
	serves(namespace, name string) bool
	// isTwin reports whether a namespace here is that of a tenant.
	isTwin(namespace string) bool
}

// service is the twin of one at home.
type service struct {
	namespace  string // by its name here
	home, here netip.Addr
}

// tenant is what of one consumer is here.
type tenant struct {
	twins map[string]string // name of a namespace at home → its name here
	known directory
}

// apiServer is by which name pods at home find their API server. It has a twin in each namespace here (core/agree/kinds, APIServerAbroad).
const (
	apiServer, itsNamespace = "kubernetes", "default"
	apiServerAbroad         = "kith-kubernetes"
)

// newcomer is how long a guest that asks before its home is known waits for an answer, when this process has just begun.
const newcomer = 3 * time.Second

// Name implements plugin.Handler.
func (tenants) Name() string { return "tenants" }

// ServeDNS implements plugin.Handler.
func (t tenants) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	from, ours := guestOf(ctx)
	if !ours {
		return t.atHome(ctx, w, r)
	}
	if len(r.Question) != 1 {
		return dns.RcodeFormatError, nil
	}
	asked := r.Question[0]
	name := strings.ToLower(asked.Name)
	if local, ok := v1alpha1.ImportedName(name); ok { // a guest's clusterset is that of its home
		name = local
	}
	switch {
	case transfer(asked):
		return dns.RcodeRefused, nil
	case localName(name):
		return dns.RcodeSuccess, w.WriteMsg(noSuchName(r))
	}
	reverse := isReverse(name)
	if _, _, _, ok := inside(name); !reverse && !ok {
		return t.next.ServeDNS(ctx, changed{w, backward{asked: asked, here: asked.Name}.change}, r)
	}
	of, known := t.meet(ctx, from)
	if !known {
		return dns.RcodeServerFailure, nil
	}
	here, there := of.translate(name)
	if reverse {
		here, there = of.reverse(name), true
	}
	if !there {
		return dns.RcodeSuccess, w.WriteMsg(noSuchName(r)) // "success": it was answered
	}
	q := r.Copy()
	q.Question[0].Name = here
	return t.next.ServeDNS(ctx, changed{w, backward{asked, here, of}.change}, q)
}

func noSuchName(r *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetRcode(r, dns.RcodeNameError)
	m.Authoritative = true
	return m
}

// meet waits for news of a guest.
func (t tenants) meet(ctx context.Context, guest netip.Addr) (of tenant, known bool) {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, newcomer, true, func(context.Context) (known bool, _ error) {
		of, known = t.known.tenantOf(guest)
		return known, nil
	})
	return of, err == nil
}

// translate gives the name here of a name in a zone as the guest means it; false when there is none. What a guest is told of
// itself by the kubelet, its host's name in full, has its namespace as it is called here, so that name means itself.
func (t tenant) translate(name string) (here string, ok bool) {
	before, namespace, zone, _ := inside(name)
	if more, ok := strings.CutSuffix("."+before, "."+apiServer+"."); ok && namespace == itsNamespace && zone == zones[0] {
		here := t.withAPIServer()
		return strings.TrimPrefix(more+"."+apiServerAbroad+"."+here+"."+zone, "."), here != ""
	}
	if twin, ok := t.twins[namespace]; ok {
		return before + twin + "." + zone, true
	}
	return name, t.called(namespace) // as it is called here
}

// withAPIServer is a namespace of the tenant here that has the service of home's API server: all have it some time after they are
// made, and until they go.
func (t tenant) withAPIServer() string {
	for _, here := range slices.Sorted(maps.Values(t.twins)) {
		if t.known.serves(here, apiServerAbroad) {
			return here
		}
	}
	return ""
}

// twin gives the service of the tenant's for which an address stands, at home or here; of several, always the same.
func (t tenant) twin(matches func(service) bool, at netip.Addr) (found service, ok bool) {
	if t.known == nil {
		return service{}, false
	}
	for _, s := range t.known.services(at) {
		if matches(s) && t.called(s.namespace) && (!ok || s.here.Less(found.here)) {
			found, ok = s, true
		}
	}
	return found, ok
}

// reverse gives the reverse name here of one as the guest means it: that of a service's address at home is that of its twin.
func (t tenant) reverse(name string) string {
	at, _ := reverseOf(name) // the zero value is no service's
	if s, ok := t.twin(func(s service) bool { return s.home == at }, at); ok {
		if here, err := dns.ReverseAddr(s.here.String()); err == nil {
			return here
		}
	}
	return name
}

// called says whether a namespace of the tenant is called so here.
func (t tenant) called(here string) bool {
	return slices.Contains(slices.Collect(maps.Values(t.twins)), here)
}

// back gives the name at home of a name here; false when it is not the tenant's.
func (t tenant) back(name string) (home string, ok bool) {
	before, namespace, zone, ok := inside(strings.ToLower(name))
	if !ok {
		return name, true
	}
	for at, here := range t.twins {
		if here != namespace {
			continue
		}
		if more, ok := strings.CutSuffix("."+before, "."+apiServerAbroad+"."); ok && zone == zones[0] {
			before, at = strings.TrimPrefix(more+"."+apiServer+".", "."), itsNamespace
		}
		return before + at + "." + zone, true
	}
	return "", false
}

// changed does something to an answer before it is sent: to a copy, for others have it too.
type changed struct {
	dns.ResponseWriter
	change func(*dns.Msg)
}

// WriteMsg implements dns.ResponseWriter.
func (c changed) WriteMsg(m *dns.Msg) error {
	m = m.Copy()
	c.change(m)
	return c.ResponseWriter.WriteMsg(m)
}

// backward puts the names and service addresses of home into an answer.
type backward struct {
	asked  dns.Question
	here   string
	tenant tenant
}

func (b backward) change(m *dns.Msg) {
	m.Question = []dns.Question{b.asked}
	// An address may be one here as well as at home, and have names of both.
	withoutNames(m, func(name string) bool { _, ok := b.tenant.back(name); return ok })
	withoutLAN(b.asked.Name, m)
	foreign := false
	m.Answer, m.Extra = slices.DeleteFunc(m.Answer, b.tenant.foreign), slices.DeleteFunc(m.Extra, b.tenant.foreign)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			b.tenant.atHome(rr)
			if strings.EqualFold(rr.Header().Name, b.here) {
				rr.Header().Name = b.asked.Name
			} else if home, ok := b.tenant.back(rr.Header().Name); ok {
				rr.Header().Name = home
			}
			if target := targetOf(rr); target != nil {
				home, ok := b.tenant.back(*target)
				foreign = foreign || !ok
				*target = home
			}
		}
	}
	if foreign { // the name of a service of somebody else
		m.SetRcode(m, dns.RcodeNameError)
		m.Answer, m.Extra = nil, nil
	}
}

// atHome puts the address that a service has at home in place of that of its twin.
func (t tenant) atHome(rr dns.RR) {
	address := addressIn(rr)
	if address == nil {
		return
	}
	at, _ := netip.AddrFromSlice(*address) // the zero value is no service's
	at = at.Unmap()
	if s, ok := t.twin(func(s service) bool { return s.here == at && s.home.IsValid() }, at); ok {
		*address = s.home.AsSlice()
	}
}

// foreign reports whether a record has an address of a twin that its service does not have at home, as of a family that home has not.
func (t tenant) foreign(rr dns.RR) bool {
	address := addressIn(rr)
	if address == nil {
		return false
	}
	at, _ := netip.AddrFromSlice(*address)
	at = at.Unmap()
	s, ok := t.twin(func(s service) bool { return s.here == at }, at)
	return ok && !s.home.IsValid()
}

// addressIn is the address in a record that has one.
func addressIn(rr dns.RR) *net.IP {
	switch rr := rr.(type) {
	case *dns.A:
		return &rr.A
	case *dns.AAAA:
		return &rr.AAAA
	}
	return nil
}

// withoutNames takes names of an address that are not for who asks out of an answer, which it changes. When none is left, it has none.
func withoutNames(m *dns.Msg, wanted func(name string) bool) {
	had := len(m.Answer)
	m.Answer = slices.DeleteFunc(m.Answer, func(rr dns.RR) bool {
		ptr, ok := rr.(*dns.PTR)
		return ok && !wanted(ptr.Ptr)
	})
	if had > 0 && len(m.Answer) == 0 {
		m.Rcode, m.Extra = dns.RcodeNameError, nil
	}
}

func targetOf(rr dns.RR) *string {
	switch rr := rr.(type) {
	case *dns.PTR:
		return &rr.Ptr
	case *dns.SRV:
		return &rr.Target
	case *dns.CNAME:
		return &rr.Target
	}
	return nil
}

// endsIn gives a name of a namespace without the start of the cluster's ID at its end; false when it has none.
func endsIn(namespace, id string) (home string, ok bool) {
	for _, n := range v1alpha1.ShortIDs {
		if len(id) < n {
			continue
		}
		if home, ok := strings.CutSuffix(namespace, "-"+id[:n]); ok {
			return home, true
		}
	}
	return "", false
}

// atHome answers pods of this cluster. To them an address of its pods' range is one of its own, and not that of a guest's
// endpoint at home. A pod of it at a peer is told by the kubelet there what its host is called in full, with the
// name of the namespace there; told to others, that name means the same here: s-0.store.shop-mfzwi3d is s-0.store.shop.
func (t tenants) atHome(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if len(r.Question) != 1 {
		return t.next.ServeDNS(ctx, w, r)
	}
	asked := r.Question[0]
	if at, ok := reverseOf(asked.Name); ok && t.pods.Contains(at) {
		return t.next.ServeDNS(ctx, changed{w, func(m *dns.Msg) {
			withoutNames(m, func(name string) bool {
				_, namespace, _, ok := inside(strings.ToLower(name))
				return !ok || !t.known.isTwin(namespace)
			})
		}}, r)
	}
	before, namespace, zone, ok := inside(strings.ToLower(asked.Name))
	home, own := endsIn(namespace, t.id)
	if !ok || !own {
		return t.next.ServeDNS(ctx, w, r)
	}
	q := r.Copy()
	q.Question[0].Name = before + home + "." + zone
	return t.next.ServeDNS(ctx, changed{w, func(m *dns.Msg) { // answers under the name that was asked for
		m.Question = []dns.Question{asked}
		for _, rr := range m.Answer {
			if strings.EqualFold(rr.Header().Name, q.Question[0].Name) {
				rr.Header().Name = asked.Name
			}
		}
	}}, q)
}
