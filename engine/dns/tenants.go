package dns

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/wait"
)

// zones end the names of services, and of pods by their addresses, in this cluster as in every other.
var zones = []string{"svc.cluster.local.", "pod.cluster.local."}

// inside splits a name into what is before its zone, and the zone.
func inside(name string) (rest, zone string, ok bool) {
	for _, zone := range zones {
		if rest, ok := strings.CutSuffix(name, "."+zone); ok {
			return rest, zone, true
		}
	}
	return "", "", false
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
	// isTwin reports whether a namespace here is that of a tenant.
	isTwin(namespace string) bool
}

// service is the twin of one at home.
type service struct {
	namespace  string // by its name here
	home, here netip.Addr
}

// tenant is what of one consumer is here, as seen by a guest of its own.
type tenant struct {
	here     string            // the guest's own namespace, by its name here; empty while that is not known
	twins    map[string]string // name of a namespace at home → its name here
	services func(at netip.Addr) []service
}

// apiServer is by which name pods at home find their API server. It has a twin in each namespace here (core/kinds, APIServerAbroad).
const (
	apiServer       = "kubernetes.default"
	apiServerAbroad = "kith-kubernetes."
)

// newcomer is how long a guest that asks before it is known waits for an answer: its address shows in the Pod a moment
// after its first program has started.
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
	switch {
	case transfer(asked):
		return dns.RcodeRefused, nil
	case localName(name):
		return dns.RcodeSuccess, w.WriteMsg(noSuchName(r))
	}
	reverse := isReverse(name)
	if _, _, ok := inside(name); !reverse && !ok {
		return t.next.ServeDNS(ctx, &backward{ResponseWriter: w, asked: asked, here: asked.Name}, r)
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
	return t.next.ServeDNS(ctx, &backward{ResponseWriter: w, asked: asked, here: here, tenant: of}, q)
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
	rest, zone, ok := inside(name)
	if !ok {
		return "", false
	}
	if before, ok := strings.CutSuffix("."+rest, "."+apiServer); ok && zone == zones[0] {
		namespace := t.any()
		return strings.TrimPrefix(before+"."+apiServerAbroad+namespace+"."+zone, "."), namespace != ""
	}
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	if labels[last] == t.here {
		return name, true
	}
	twin, ok := t.twins[labels[last]]
	if !ok { // another guest of its home may have told it
		return name, t.called(labels[last])
	}
	labels[last] = twin
	return strings.Join(labels, ".") + "." + zone, true
}

// any is a namespace of the tenant here, its own where that is known.
func (t tenant) any() string {
	if t.here != "" || len(t.twins) == 0 {
		return t.here
	}
	return slices.Min(slices.Collect(maps.Values(t.twins)))
}

// twin gives the service of the tenant's for which an address stands, at home or here.
func (t tenant) twin(matches func(service) bool, at netip.Addr) (found service, ok bool) {
	if t.services == nil {
		return service{}, false
	}
	for _, s := range t.services(at) {
		if matches(s) && t.called(s.namespace) && (!ok || s.namespace == t.here || s.here.Less(found.here) && found.namespace != t.here) {
			found, ok = s, true
		}
	}
	return found, ok
}

// reverse gives the reverse name here of one as the guest means it: that of a service's address at home is that of its twin.
func (t tenant) reverse(name string) string {
	at, ok := reverseOf(name)
	if !ok {
		return name
	}
	s, ok := t.twin(func(s service) bool { return s.home == at }, at)
	if !ok {
		return name
	}
	here, err := dns.ReverseAddr(s.here.String())
	if err != nil {
		return name
	}
	return here
}

// called says whether a namespace of the tenant is called so here.
func (t tenant) called(here string) bool {
	return slices.Contains(slices.Collect(maps.Values(t.twins)), here)
}

// back gives the name at home of a name here; false when it is not the tenant's.
func (t tenant) back(name string) (home string, ok bool) {
	rest, zone, ok := inside(strings.ToLower(name))
	if !ok {
		return name, true
	}
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	for at, here := range t.twins {
		if labels[last] == here {
			labels[last] = at
			if last > 0 && labels[last-1]+"." == apiServerAbroad && zone == zones[0] {
				labels = append(labels[:last-1], apiServer)
			}
			return strings.Join(labels, ".") + "." + zone, true
		}
	}
	return "", false
}

// backward puts the names and service addresses of home into an answer.
type backward struct {
	dns.ResponseWriter
	asked  dns.Question
	here   string
	tenant tenant
}

// WriteMsg implements dns.ResponseWriter.
func (b *backward) WriteMsg(m *dns.Msg) error {
	m = m.Copy()
	m.Question = []dns.Question{b.asked}
	// An address may be one here as well as at home, and have names of both.
	withoutNames(m, func(name string) bool { _, ok := b.tenant.back(name); return ok })
	withoutLAN(b.asked.Name, m)
	foreign := false
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
		m = m.SetRcode(m, dns.RcodeNameError)
		m.Answer, m.Extra = nil, nil
	}
	return b.ResponseWriter.WriteMsg(m)
}

// atHome puts the address that a service has at home in place of that of its twin.
func (t tenant) atHome(rr dns.RR) {
	a, ok := rr.(*dns.A)
	if !ok {
		return
	}
	at, _ := netip.AddrFromSlice(a.A) // the zero value is no service's
	at = at.Unmap()
	if s, ok := t.twin(func(s service) bool { return s.here == at }, at); ok {
		a.A = s.home.AsSlice()
	}
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

// shortIDs are how many characters of a cluster's ID end the names of its namespaces at peers (core/hosting).
var shortIDs = []int{7, 14}

// endsIn gives a name of a namespace without the start of the cluster's ID at its end; false when it has none.
func endsIn(namespace, id string) (home string, ok bool) {
	for _, n := range shortIDs {
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
	if at, ok := reverseOf(strings.ToLower(asked.Name)); ok && t.pods.Contains(at) {
		return t.next.ServeDNS(ctx, &owners{w, t.known.isTwin}, r)
	}
	rest, zone, ok := inside(strings.ToLower(asked.Name))
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	home, own := endsIn(labels[last], t.id)
	if !ok || !own {
		return t.next.ServeDNS(ctx, w, r)
	}
	labels[last] = home
	q := r.Copy()
	q.Question[0].Name = strings.Join(labels, ".") + "." + zone
	return t.next.ServeDNS(ctx, &renamed{w, asked, q.Question[0].Name}, q)
}

// owners leaves names in the namespaces of tenants out of an answer.
type owners struct {
	dns.ResponseWriter
	isTwin func(namespace string) bool
}

// WriteMsg implements dns.ResponseWriter.
func (o *owners) WriteMsg(m *dns.Msg) error {
	m = m.Copy()
	withoutNames(m, func(name string) bool {
		rest, _, ok := inside(strings.ToLower(name))
		return !ok || !o.isTwin(rest[strings.LastIndexByte(rest, '.')+1:])
	})
	return o.ResponseWriter.WriteMsg(m)
}

// renamed answers under the name that was asked for.
type renamed struct {
	dns.ResponseWriter
	asked dns.Question
	as    string
}

// WriteMsg implements dns.ResponseWriter.
func (n *renamed) WriteMsg(m *dns.Msg) error {
	m = m.Copy()
	m.Question = []dns.Question{n.asked}
	for _, rr := range m.Answer {
		if strings.EqualFold(rr.Header().Name, n.as) {
			rr.Header().Name = n.asked.Name
		}
	}
	return n.ResponseWriter.WriteMsg(m)
}
