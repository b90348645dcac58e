package dns

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
)

// guestBook knows guests from a time on.
type guestBook struct {
	by   map[string]tenant
	from time.Time
}

func (b guestBook) tenantOf(guest netip.Addr) (tenant, bool) {
	t, ok := b.by[guest.String()]
	return t, ok && time.Now().After(b.from)
}

// asker is a client at an address; it keeps the answer.
type asker struct {
	dns.ResponseWriter
	from string
	got  *dns.Msg
}

func (a *asker) RemoteAddr() net.Addr      { return &net.UDPAddr{IP: net.ParseIP(a.from), Port: 5} }
func (a *asker) WriteMsg(m *dns.Msg) error { a.got = m; return nil }
func rr(t *testing.T, s string) dns.RR     { t.Helper(); r, err := dns.NewRR(s); must(t, err); return r }
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
		"10.42.255.130": {here: "shop-x", twins: map[string]string{"shop": "shop-x", "lab": "lab"}},
	}}
	p := tenants{next: cluster(t), guests: netip.MustParsePrefix("10.42.255.128/25"), known: known}
	const guest, own = "10.42.255.130", "10.42.0.5"
	for _, tc := range []struct{ from, name, answer string }{
		{own, "web.shop.svc.cluster.local.", "10.43.0.1"},
		{guest, "web.shop.svc.cluster.local.", "10.43.0.2"},
		{guest, "WEB.Shop.svc.cluster.local.", "10.43.0.2"},
		{guest, "web.shop-x.svc.cluster.local.", "10.43.0.2"}, // by its search list
		{guest, "s-0.s.shop.svc.cluster.local.", "10.76.0.9"},
		{guest, "alias.shop.svc.cluster.local.", "web.shop.svc.cluster.local."},
		{guest, "_http._tcp.web.shop.svc.cluster.local.", "web.shop.svc.cluster.local."},
		{guest, "2.0.43.10.in-addr.arpa.", "web.shop.svc.cluster.local."},
		{guest, "example.org.", "192.0.2.1"},
		{guest, "kubernetes.default.svc.cluster.local.", ""},
		{guest, "web.lab.svc.cluster.local.", ""},
		{guest, "1.0.43.10.in-addr.arpa.", ""},
		{own, "kubernetes.default.svc.cluster.local.", "10.43.0.1"},
		{own, "1.0.43.10.in-addr.arpa.", "web.shop.svc.cluster.local."},
	} {
		a := &asker{from: tc.from}
		_, err := p.ServeDNS(t.Context(), a, new(dns.Msg).SetQuestion(tc.name, dns.TypeA))
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

func TestANewGuestsQuestionWaitsUntilItIsKnown(t *testing.T) {
	known := guestBook{by: map[string]tenant{"10.42.255.130": {here: "shop-x", twins: map[string]string{"shop": "shop-x"}}}, from: time.Now().Add(100 * time.Millisecond)}
	p := tenants{next: cluster(t), guests: netip.MustParsePrefix("10.42.255.128/25"), known: known}
	a := &asker{from: "10.42.255.130"}
	_, err := p.ServeDNS(t.Context(), a, new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA))
	must(t, err)
	if len(a.got.Answer) != 1 || a.got.Answer[0].(*dns.A).A.String() != "10.43.0.2" {
		t.Errorf("got %v", a.got)
	}
	// One that is nobody's gets no answer that could be wrong.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	code, err := p.ServeDNS(ctx, &asker{from: "10.42.255.131"}, new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA))
	if code != dns.RcodeServerFailure || err != nil {
		t.Errorf("%s, %v", dns.RcodeToString[code], err)
	}
}

func TestGuestsAreKnownByAddressAndNamespace(t *testing.T) {
	w := &watchedGuests{
		cache.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, cache.Indexers{byAddress: addressesOf}),
		cache.NewSharedIndexInformer(nil, &corev1.Namespace{}, 0, cache.Indexers{byConsumer: consumerOf}),
	}
	pod := func(namespace, name, ip string, phase corev1.PodPhase, age time.Duration) {
		o, err := essence(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
			Status:     corev1.PodStatus{Phase: phase, PodIPs: []corev1.PodIP{{IP: ip}}},
		})
		must(t, err)
		must(t, w.pods.GetIndexer().Add(o))
	}
	for name, labels := range map[string][2]string{"shop-x": {"ALICE", "shop"}, "lab": {"ALICE", "lab"}, "shop-y": {"CAROL", "shop"}} {
		must(t, w.namespaces.GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelConsumer: labels[0], v1alpha1.LabelHomeNamespace: labels[1]}}}))
	}
	pod("shop-x", "web", "10.42.255.130", corev1.PodRunning, time.Minute)
	pod("shop-y", "over", "10.42.255.130", corev1.PodSucceeded, time.Second)
	pod("shop-y", "leaving", "10.42.255.130", corev1.PodRunning, time.Hour)
	got, ok := w.tenantOf(netip.MustParseAddr("10.42.255.130"))
	if !ok || got.here != "shop-x" || len(got.twins) != 2 || got.twins["shop"] != "shop-x" || got.twins["lab"] != "lab" {
		t.Errorf("%+v, %v", got, ok)
	}
	unknown := netip.MustParseAddr("10.42.255.131")
	if _, ok := w.tenantOf(unknown); ok {
		t.Error("an address nobody has is known")
	}
	must(t, w.namespaces.GetIndexer().Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-y"}}))
	got, ok = w.tenantOf(unknown) // nobody else's guests are here
	if name, there := got.translate("web.shop.svc.cluster.local."); !ok || !there || name != "web.shop-x.svc.cluster.local." {
		t.Errorf("%+v, %v: %s", got, ok, name)
	}
	if name, there := got.translate("web.shop-x.svc.cluster.local."); !there || name != "web.shop-x.svc.cluster.local." {
		t.Errorf("by the search list: %s", name)
	}
}
