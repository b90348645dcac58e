package dns

import (
	"context"
	"strings"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

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

// atHome answers pods of this cluster. A pod of it at a peer is told by the kubelet there what its host is called in full, with the
// name of the namespace there; told to others, that name means the same here: s-0.store.shop-mfzwi3d is s-0.store.shop.
func atHome(ctx context.Context, next plugin.Handler, id string, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if len(r.Question) != 1 {
		return next.ServeDNS(ctx, w, r)
	}
	asked := r.Question[0]
	rest, zone, ok := inside(strings.ToLower(asked.Name))
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	home, own := endsIn(labels[last], id)
	if !ok || !own {
		return next.ServeDNS(ctx, w, r)
	}
	labels[last] = home
	q := r.Copy()
	q.Question[0].Name = strings.Join(labels, ".") + "." + zone
	return next.ServeDNS(ctx, &renamed{w, asked, q.Question[0].Name}, q)
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
