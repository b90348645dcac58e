package dns

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
)

// guestBook knows guests from a time on, and which services they have.
type guestBook struct {
	by    map[string]tenant
	from  time.Time
	twins []service
}

func (b guestBook) tenantOf(guest netip.Addr) (tenant, bool) {
	t, ok := b.by[guest.String()]
	t.known = b
	return t, ok && time.Now().After(b.from)
}

func (b guestBook) services(at netip.Addr) (list []service) {
	for _, s := range b.twins {
		if s.home == at || s.here == at {
			list = append(list, s)
		}
	}
	return list
}

func (b guestBook) serves(namespace, name string) bool {
	return name == apiServerAbroad && slices.ContainsFunc(b.twins, func(s service) bool { return s.namespace == namespace && s.home.String() == "10.43.0.1" })
}

func (b guestBook) isTwin(namespace string) bool { return strings.Contains(namespace, "-") }

// serve asks as the plugin in front does.
func serve(ctx context.Context, p tenants, c *client, q *dns.Msg) (int, error) {
	if from := sender(c); guestRange.Contains(from) {
		ctx = asks(ctx, from)
	}
	return p.ServeDNS(ctx, c, q)
}

// asker is a client at an address; it keeps the answer.
type client struct {
	dns.ResponseWriter
	from string
	got  *dns.Msg
}

func (a *client) RemoteAddr() net.Addr      { return &net.UDPAddr{IP: net.ParseIP(a.from), Port: 5} }
func (a *client) WriteMsg(m *dns.Msg) error { a.got = m; return nil }
func rr(t *testing.T, s string) dns.RR      { t.Helper(); r, err := dns.NewRR(s); must(t, err); return r }
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cluster answers as the kubernetes plugin of a cluster with namespaces shop, the owner's, and shop-x, a twin.
func cluster(t *testing.T) plugin.Handler {
	records := map[string]string{
		"web.shop.svc.cluster.local.": "A 10.43.0.1", "web.shop-x.svc.cluster.local.": "A 10.43.0.2",
		"web.shop.svc.clusterset.local.": "A 10.43.0.3", v1alpha1.ImportedService("web") + ".shop-x.svc.cluster.local.": "A 10.43.0.4",
		"s-0.s.shop-x.svc.cluster.local.": "A 10.76.0.9", "kubernetes.default.svc.cluster.local.": "A 10.43.0.1",
		"alias.shop-x.svc.cluster.local.":          "CNAME web.shop-x.svc.cluster.local.",
		"_http._tcp.web.shop-x.svc.cluster.local.": "SRV 0 100 80 web.shop-x.svc.cluster.local.",
		"2.0.43.10.in-addr.arpa.":                  "PTR web.shop-x.svc.cluster.local.", "1.0.43.10.in-addr.arpa.": "PTR web.shop.svc.cluster.local.",
		"example.org.": "A 192.0.2.1",
	}
	return plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		m := new(dns.Msg).SetReply(r)
		if record, ok := records[r.Question[0].Name]; ok {
			m.Answer = []dns.RR{rr(t, r.Question[0].Name+" 5 IN "+record)}
		} else {
			m.Rcode = dns.RcodeNameError
		}
		return m.Rcode, w.WriteMsg(m)
	})
}

func TestGuestsSeeNamesAsAtHome(t *testing.T) {
	known := guestBook{by: map[string]tenant{
		"10.127.0.130": {twins: map[string]string{"shop": "shop-x", "lab": "lab"}},
	}}
	p := tenants{next: cluster(t), known: known}
	const guest, own = "10.127.0.130", "10.42.0.5"
	for _, tc := range []struct{ from, name, answer string }{
		{own, "web.shop.svc.cluster.local.", "10.43.0.1"},
		{guest, "web.shop.svc.cluster.local.", "10.43.0.2"},
		{guest, "WEB.Shop.svc.cluster.local.", "10.43.0.2"},
		{guest, "web.shop-x.svc.cluster.local.", "10.43.0.2"}, // by its search list
		{guest, "s-0.s.shop.svc.cluster.local.", "10.76.0.9"},
		{guest, "alias.shop.svc.cluster.local.", "web.shop.svc.cluster.local."},
		{guest, "_http._tcp.web.shop.svc.cluster.local.", "web.shop.svc.cluster.local."},
		{guest, "2.0.43.10.in-addr.arpa.", "web.shop.svc.cluster.local."},
		{own, "web.shop.svc.clusterset.local.", "10.43.0.3"},
		{guest, "web.shop.svc.clusterset.local.", "10.43.0.4"}, // what its home imports
		{guest, "web.lab.svc.clusterset.local.", ""},
		{guest, "web.shop.clusterset.local.", ""},
		{guest, "example.org.", "192.0.2.1"},
		{guest, "kubernetes.default.svc.cluster.local.", ""},
		{guest, "web.lab.svc.cluster.local.", ""},
		{guest, "1.0.43.10.in-addr.arpa.", ""},
		{own, "kubernetes.default.svc.cluster.local.", "10.43.0.1"},
		{own, "1.0.43.10.in-addr.arpa.", "web.shop.svc.cluster.local."},
	} {
		a := &client{from: tc.from}
		_, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion(tc.name, dns.TypeA))
		must(t, err)
		if a.got.Question[0].Name != tc.name {
			t.Errorf("%s: the answer is to %s", tc.name, a.got.Question[0].Name)
		}
		got := ""
		if len(a.got.Answer) > 0 {
			if a.got.Answer[0].Header().Name != tc.name {
				t.Errorf("%s: an answer about %s", tc.name, a.got.Answer[0].Header().Name)
			}
			if target := targetOf(a.got.Answer[0]); target != nil {
				got = *target
			} else {
				got = a.got.Answer[0].(*dns.A).A.String()
			}
		}
		if got != tc.answer || got == "" && a.got.Rcode != dns.RcodeNameError {
			t.Errorf("%s asks for %s: %q (%s), want %q", tc.from, tc.name, got, dns.RcodeToString[a.got.Rcode], tc.answer)
		}
	}
}

// TestServicesHaveTheAddressesOfHome: to a guest, forward and backward, and to nobody else; also that by which it finds its API server.
func TestServicesHaveTheAddressesOfHome(t *testing.T) {
	l := &lan{records: map[string][]string{
		"web.shop-x.svc.cluster.local. A":                  {"web.shop-x.svc.cluster.local. 5 IN A 10.43.7.7"},
		"_http._tcp.web.shop-x.svc.cluster.local. SRV":     {"_http._tcp.web.shop-x.svc.cluster.local. 5 IN SRV 0 100 80 web.shop-x.svc.cluster.local.", "web.shop-x.svc.cluster.local. 5 IN A 10.43.7.7"},
		"s.shop-x.svc.cluster.local. A":                    {"s.shop-x.svc.cluster.local. 5 IN A 10.42.0.5", "s.shop-x.svc.cluster.local. 5 IN A 10.127.0.131"},
		"kith-kubernetes.shop-x.svc.cluster.local. A":      {"kith-kubernetes.shop-x.svc.cluster.local. 5 IN A 10.43.7.8"},
		"kith-kubernetes.lab-x.svc.cluster.local. A":       {"kith-kubernetes.lab-x.svc.cluster.local. 5 IN A 10.43.7.9"},
		"https.kith-kubernetes.lab-x.svc.cluster.local. A": {"https.kith-kubernetes.lab-x.svc.cluster.local. 5 IN A 10.42.255.1"},
		"kubernetes.default.svc.cluster.local. A":          {"kubernetes.default.svc.cluster.local. 5 IN A 10.43.0.1"},
		"bank.shop-y.svc.cluster.local. A":                 {"bank.shop-y.svc.cluster.local. 5 IN A 10.43.7.1"},
		"web.shop-x.svc.cluster.local. AAAA":               {"web.shop-x.svc.cluster.local. 5 IN AAAA fd44::7"},
		"s.shop-x.svc.cluster.local. AAAA":                 {"s.shop-x.svc.cluster.local. 5 IN AAAA fd71::5"},
		"7.7.43.10.in-addr.arpa. PTR":                      {"7.7.43.10.in-addr.arpa. 5 IN PTR web.shop-x.svc.cluster.local."},
		"8.7.43.10.in-addr.arpa. PTR":                      {"8.7.43.10.in-addr.arpa. 5 IN PTR kith-kubernetes.shop-x.svc.cluster.local."},
		"9.9.43.10.in-addr.arpa. PTR":                      {"9.9.43.10.in-addr.arpa. 5 IN PTR bank.lab.svc.cluster.local."}, // what is here at the address of home's web
		"1.0.43.10.in-addr.arpa. PTR":                      {"1.0.43.10.in-addr.arpa. 5 IN PTR kubernetes.default.svc.cluster.local."},
		"5.0.42.10.in-addr.arpa. PTR":                      {"5.0.42.10.in-addr.arpa. 5 IN PTR own.shop.svc.cluster.local.", "5.0.42.10.in-addr.arpa. 5 IN PTR s-0.s.shop-x.svc.cluster.local."},
		"6.0.42.10.in-addr.arpa. PTR":                      {"6.0.42.10.in-addr.arpa. 5 IN PTR s-1.s.shop-y.svc.cluster.local."},
	}}
	a := netip.MustParseAddr
	alice := tenant{twins: map[string]string{"shop": "shop-x", "lab": "lab-x", "art": "art-x"}} // the last has been made just now
	newcomer := tenant{twins: alice.twins}
	known := guestBook{by: map[string]tenant{"10.127.0.130": alice, "10.127.0.131": newcomer}, twins: []service{
		{"shop-x", a("10.43.9.9"), a("10.43.7.7")}, {"lab-x", a("10.43.0.1"), a("10.43.7.9")}, {"shop-x", a("10.43.0.1"), a("10.43.7.8")},
		{"shop-y", a("10.43.9.9"), a("10.43.7.1")}, {"shop-y", a("10.43.0.66"), a("10.43.7.6")},
		{"shop-x", a("2001:cafe:43::9"), a("fd44::7")},
	}}
	p := tenants{next: l.handler(t), known: known, pods: netip.MustParsePrefix("10.42.0.0/16")}
	for _, c := range []struct {
		from, name string
		kind       uint16
		want       string
	}{
		{"10.127.0.130", "web.shop.svc.cluster.local.", dns.TypeA, "10.43.9.9"},
		{"10.127.0.130", "_http._tcp.web.shop.svc.cluster.local.", dns.TypeSRV, "web.shop.svc.cluster.local. 10.43.9.9"},
		{"10.127.0.130", "s.shop.svc.cluster.local.", dns.TypeA, "10.42.0.5 10.127.0.131"},
		{"10.127.0.130", "kubernetes.default.svc.cluster.local.", dns.TypeA, "10.43.0.1"},
		{"10.127.0.131", "Kubernetes.Default.svc.cluster.local.", dns.TypeA, "10.43.0.1"},
		{"10.127.0.130", "https.kubernetes.default.svc.cluster.local.", dns.TypeA, "10.42.255.1"},
		{"10.127.0.130", "web.shop.svc.cluster.local.", dns.TypeAAAA, "2001:cafe:43::9"},
		{"10.127.0.130", "s.shop.svc.cluster.local.", dns.TypeAAAA, "fd71::5"},
		{"10.127.0.130", "bank.shop-y.svc.cluster.local.", dns.TypeA, ""},
		{"10.127.0.130", "9.9.43.10.in-addr.arpa.", dns.TypePTR, "web.shop.svc.cluster.local."},
		{"10.127.0.130", "1.0.43.10.in-addr.arpa.", dns.TypePTR, "kubernetes.default.svc.cluster.local."},
		{"10.127.0.130", "66.0.43.10.in-addr.arpa.", dns.TypePTR, ""},
		{"10.127.0.130", "5.0.42.10.in-addr.arpa.", dns.TypePTR, "s-0.s.shop.svc.cluster.local."},
		{"10.127.0.130", "6.0.42.10.in-addr.arpa.", dns.TypePTR, ""},
		{"10.42.0.9", "web.shop-x.svc.cluster.local.", dns.TypeA, "10.43.7.7"},
		{"10.42.0.9", "9.9.43.10.in-addr.arpa.", dns.TypePTR, "bank.lab.svc.cluster.local."},
		{"10.42.0.9", "5.0.42.10.in-addr.arpa.", dns.TypePTR, "own.shop.svc.cluster.local."},
		{"10.42.0.9", "6.0.42.10.in-addr.arpa.", dns.TypePTR, ""},
	} {
		w := &client{from: c.from}
		_, err := serve(t.Context(), p, w, new(dns.Msg).SetQuestion(c.name, c.kind))
		must(t, err)
		var got []string
		for _, rr := range w.got.Answer {
			fields := strings.Fields(rr.String())
			got = append(got, fields[len(fields)-1])
		}
		if strings.Join(got, " ") != c.want || c.want == "" && w.got.Rcode != dns.RcodeNameError {
			t.Errorf("%s asks for %s %s: %v (%s), want %s", c.from, c.name, dns.TypeToString[c.kind], got, dns.RcodeToString[w.got.Rcode], c.want)
		}
	}
}

// TestAGuestIsNotToldOfATwinsAddressThatHomeHasNot: it would lead nowhere. The name is there all the same.
func TestAGuestIsNotToldOfATwinsAddressThatHomeHasNot(t *testing.T) {
	here := netip.MustParseAddr("10.43.0.2")
	for home, want := range map[netip.Addr]int{{}: 0, netip.MustParseAddr("10.43.9.9"): 1} {
		of := tenant{twins: map[string]string{"shop": "shop-x"}}
		p := tenants{next: cluster(t), known: guestBook{by: map[string]tenant{"10.127.0.130": of}, twins: []service{{"shop-x", home, here}}}}
		a := &client{from: "10.127.0.130"}
		_, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA))
		must(t, err)
		if len(a.got.Answer) != want || a.got.Rcode != dns.RcodeSuccess {
			t.Errorf("at home %s: %v", home, a.got)
		}
	}
}

func TestANewGuestsQuestionWaitsUntilItIsKnown(t *testing.T) {
	known := guestBook{by: map[string]tenant{"10.127.0.130": {twins: map[string]string{"shop": "shop-x"}}}, from: time.Now().Add(100 * time.Millisecond)}
	p := tenants{next: cluster(t), known: known}
	a := &client{from: "10.127.0.130"}
	_, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA))
	must(t, err)
	if len(a.got.Answer) != 1 || a.got.Answer[0].(*dns.A).A.String() != "10.43.0.2" {
		t.Errorf("got %v", a.got)
	}
	// One that is nobody's gets no answer that could be wrong.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	code, err := serve(ctx, p, &client{from: "10.127.0.131"}, new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA))
	if code != dns.RcodeServerFailure || err != nil {
		t.Errorf("%s, %v", dns.RcodeToString[code], err)
	}
}

func TestGuestsAreKnownByTheRangeOfTheirHome(t *testing.T) {
	w := &watchedTwins{
		cache.NewSharedIndexInformer(nil, &corev1.Namespace{}, 0, cache.Indexers{byRange: rangeOf}),
		cache.NewSharedIndexInformer(nil, &corev1.Service{}, 0, cache.Indexers{byAddress: servedAt}),
		func() bool { return true },
	}
	namespace := func(name, home, consumer, ranges string) {
		o, err := essence(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelConsumer: consumer, v1alpha1.LabelHomeNamespace: home}, Annotations: map[string]string{space: ranges},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1alpha1.ManagedBy, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kith.dev/consumer":{}}}}`)}},
		}})
		must(t, err)
		must(t, w.namespaces.GetIndexer().Add(o))
	}
	const alice, carol = "aaaaaaabbbbbbb", "cccccccddddddd"
	namespace("shop-aaaaaaa", "shop", alice, "10.127.0.0/24,10.42.0.0/16,10.127.9.0/24")
	namespace("shop-aaaaaaabbbbbbb", "shop", alice, "10.127.0.0/24,10.42.0.0/16,10.127.9.0/24") // of another contract
	namespace("lab", "lab", alice, "10.127.0.0/24,10.42.0.0/16,10.127.9.0/24")
	namespace("shop-ccccccc", "shop", carol, "10.127.4.0/24,10.42.0.0/16")
	namespace("copy", "shop", alice, "10.127.0.0/24")
	namespace("bank-aaaaaaa", "bank", alice, "") // there is no link
	got, ok := w.tenantOf(netip.MustParseAddr("10.127.0.130"))
	if want := map[string]string{"shop": "shop-aaaaaaa", "lab": "lab"}; !ok || !maps.Equal(got.twins, want) {
		t.Errorf("%+v, %v", got, ok)
	}
	if other, ok := w.tenantOf(netip.MustParseAddr("10.127.4.130")); !ok || other.twins["shop"] != "shop-ccccccc" {
		t.Errorf("%+v, %v", other, ok)
	}
	for _, unknown := range []string{"10.127.5.1", "10.42.0.5", "10.127.9.5", "fd00::1"} {
		if _, ok := w.tenantOf(netip.MustParseAddr(unknown)); ok {
			t.Errorf("%s, which is in the range of nobody's guests, is known", unknown)
		}
	}
	if _, ok := w.tenantOf(netip.Addr{}); ok {
		t.Error("who has no address is known")
	}
	for name, c := range map[string]struct{ home, home6, here, here6 string }{
		"web": {"10.43.9.9", "2001:cafe:43::9", "10.43.7.7", "fd44::7"}, apiServerAbroad: {"10.43.0.1", "", "10.43.7.8", ""},
		"old": {"", "", "10.43.7.9", ""}, "odd": {"::1", "10.43.9.9", "10.43.7.10", "fd44::10"}, "headless": {"", "", "None", ""},
	} {
		o, err := essence(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-aaaaaaa", Name: name, Annotations: map[string]string{clusterIP: c.home, clusterIP6: c.home6}},
			Spec:       corev1.ServiceSpec{ClusterIPs: []string{c.here, c.here6}},
		})
		must(t, err)
		must(t, w.twins.GetIndexer().Add(o))
	}
	for at, want := range map[string]string{
		"10.43.9.9": "10.43.9.9 10.43.7.7", "10.43.7.7": "10.43.9.9 10.43.7.7", "2001:cafe:43::9": "2001:cafe:43::9 fd44::7", "fd44::7": "2001:cafe:43::9 fd44::7",
		"10.43.7.9": "invalid IP 10.43.7.9", "10.43.7.10": "invalid IP 10.43.7.10", "fd44::10": "invalid IP fd44::10", // at home they have none
	} {
		if s := got.known.services(netip.MustParseAddr(at)); len(s) != 1 || s[0].home.String()+" "+s[0].here.String() != want {
			t.Errorf("services at %s: %+v", at, s)
		}
	}
	if !w.isTwin("shop-aaaaaaa") || w.isTwin("shop") || w.isTwin("copy") {
		t.Error("which namespaces are twins is not known")
	}
	for name, want := range map[string]string{
		"web.shop.svc.cluster.local.": "web.shop-aaaaaaa.svc.cluster.local.", "kubernetes.default.svc.cluster.local.": "kith-kubernetes.shop-aaaaaaa.svc.cluster.local.",
		"web.shop-aaaaaaa.svc.cluster.local.": "web.shop-aaaaaaa.svc.cluster.local.", // by the search list
	} {
		if here, there := got.translate(name); !there || here != want {
			t.Errorf("%s: %s, %t", name, here, there)
		}
	}
	here := w.orAtHome(func(_ context.Context, _ string, ip netip.Addr) (bool, error) {
		return ip.String() == "10.127.0.7", nil
	})
	for _, c := range []struct {
		guest         bool
		namespace, ip string
		want          bool
	}{
		{true, "shop-aaaaaaa", "10.42.0.5", true},
		{true, "shop-aaaaaaa", "10.127.9.7", true}, // elsewhere
		{true, "shop-aaaaaaa", "10.127.0.7", true}, // here
		{true, "shop-aaaaaaa", "10.127.0.8", false},
		{true, "shop-aaaaaaa", "192.0.2.1", false},
		{true, "bank-aaaaaaa", "10.42.0.5", false},
		{true, "shop", "10.42.0.5", false},
		{false, "shop-aaaaaaa", "10.42.0.5", false}, // that is a pod of the owner's
	} {
		ctx := t.Context()
		if c.guest {
			ctx = asks(ctx, netip.MustParseAddr("10.127.0.130"))
		}
		if got, err := here(ctx, c.namespace, netip.MustParseAddr(c.ip)); err != nil || got != c.want {
			t.Errorf("a pod %s in %s: %t, %v", c.ip, c.namespace, got, err)
		}
	}
	w.synced = func() bool { return false }
	if _, ok := w.tenantOf(netip.MustParseAddr("10.127.0.130")); ok {
		t.Error("it is known before all of its services are")
	}
}
