package dns

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

// lan answers as the servers of a home network would, and counts what it was asked.
type lan struct {
	records map[string][]string // "name TYPE" → records
	asked   []string
}

func (l *lan) handler(t *testing.T) plugin.Handler {
	return plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		q := r.Question[0]
		l.asked = append(l.asked, q.Name+" "+dns.TypeToString[q.Qtype])
		m := new(dns.Msg).SetReply(r)
		for _, record := range l.records[q.Name+" "+dns.TypeToString[q.Qtype]] {
			m.Answer = append(m.Answer, rr(t, record))
		}
		m.Ns = []dns.RR{rr(t, "fritz.box. 5 IN SOA router.fritz.box. root.fritz.box. 1 2 3 4 5")}
		if len(m.Answer) == 0 {
			m.Rcode = dns.RcodeNameError
		}
		return m.Rcode, w.WriteMsg(m)
	})
}

// TestGuestsLearnNothingOfTheLAN: neither by its names nor by its addresses; the owner's own pods do.
func TestGuestsLearnNothingOfTheLAN(t *testing.T) {
	l := &lan{records: map[string][]string{
		"nas.fritz.box. A":               {"nas.fritz.box. 5 IN A 192.168.1.5"},
		"nas.fritz.box. AAAA":            {"nas.fritz.box. 5 IN AAAA fd00::5"},
		"both.example.org. A":            {"both.example.org. 5 IN CNAME two.example.org.", "two.example.org. 5 IN A 10.0.0.7", "two.example.org. 5 IN A 198.51.100.7"},
		"rebound.example.org. A":         {"rebound.example.org. 5 IN A 169.254.169.254"},
		"mapped.example.org. AAAA":       {"mapped.example.org. 5 IN AAAA ::ffff:192.168.1.5"},
		"hinted.example.org. HTTPS":      {`hinted.example.org. 5 IN HTTPS 1 . ipv4hint="192.168.1.5"`},
		"open.example.org. HTTPS":        {`open.example.org. 5 IN HTTPS 1 . ipv4hint="198.51.100.7"`},
		"open.example.org. A":            {"open.example.org. 5 IN A 198.51.100.7"},
		"5.1.168.192.in-addr.arpa. PTR":  {"5.1.168.192.in-addr.arpa. 5 IN PTR nas.fritz.box."},
		"1.168.192.in-addr.arpa. NS":     {"1.168.192.in-addr.arpa. 5 IN NS router.fritz.box."},
		"7.100.51.198.in-addr.arpa. PTR": {"7.100.51.198.in-addr.arpa. 5 IN PTR open.example.org."},
		"nas.lan. A":                     {"nas.lan. 5 IN A 198.51.100.9"},
		"nas. A":                         {"nas. 5 IN A 198.51.100.9"},
	}}
	known := guestBook{by: map[string]tenant{"10.127.0.130": {twins: map[string]string{"shop": "shop-x"}}}}
	p := tenants{next: l.handler(t), known: known}
	ask := func(from, name string, kind uint16) *dns.Msg {
		t.Helper()
		a := &client{from: from}
		code, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion(name, kind))
		must(t, err)
		if a.got == nil {
			return &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: code}}
		}
		return a.got
	}
	for _, c := range []struct {
		name  string
		kind  uint16
		want  string // in the answer's last record; empty: none
		rcode int
		asked bool // the servers of the LAN
	}{
		{"nas.fritz.box.", dns.TypeA, "", dns.RcodeSuccess, true},
		{"NAS.Fritz.box.", dns.TypeA, "", dns.RcodeNameError, true},
		{"nas.fritz.box.", dns.TypeAAAA, "", dns.RcodeSuccess, true},
		{"both.example.org.", dns.TypeA, "198.51.100.7", dns.RcodeSuccess, true},
		{"rebound.example.org.", dns.TypeA, "", dns.RcodeSuccess, true},
		{"mapped.example.org.", dns.TypeAAAA, "", dns.RcodeSuccess, true},
		{"hinted.example.org.", dns.TypeHTTPS, "", dns.RcodeSuccess, true},
		{"open.example.org.", dns.TypeHTTPS, "198.51.100.7", dns.RcodeSuccess, true},
		{"open.example.org.", dns.TypeA, "198.51.100.7", dns.RcodeSuccess, true},
		{"5.1.168.192.in-addr.arpa.", dns.TypePTR, "", dns.RcodeNameError, true},
		{"9.1.168.192.in-addr.arpa.", dns.TypePTR, "", dns.RcodeNameError, true},
		{"7.100.51.198.in-addr.arpa.", dns.TypePTR, "open.example.org.", dns.RcodeSuccess, true},
		{"nas.lan.", dns.TypeA, "", dns.RcodeNameError, false},
		{"NAS.Local.", dns.TypeA, "", dns.RcodeNameError, false},
		{"_ldap._tcp.corp.", dns.TypeSRV, "", dns.RcodeNameError, false},
		{"nas.", dns.TypeA, "", dns.RcodeNameError, false},
		{"fritz.box.", dns.TypeAXFR, "", dns.RcodeRefused, false},
		{"cluster.local.", dns.TypeAXFR, "", dns.RcodeRefused, false},
	} {
		l.asked = nil
		m := ask("10.127.0.130", c.name, c.kind)
		got := ""
		if n := len(m.Answer); n > 0 {
			got = m.Answer[n-1].String()
		}
		if m.Rcode != c.rcode || (c.want == "") != (got == "") || !strings.Contains(got, c.want) || len(l.asked) > 0 != c.asked {
			t.Errorf("%s %s: %s %q, asked %v", c.name, dns.TypeToString[c.kind], dns.RcodeToString[m.Rcode], m.Answer, l.asked)
		}
		if text := m.String(); c.want == "" && len(m.Question) > 0 && !strings.Contains(strings.ToLower(c.name), "fritz.box") && strings.Contains(text, "fritz") {
			t.Errorf("%s tells of the LAN:\n%s", c.name, text)
		}
	}
	// Names the owner's pods ask for are none of the plugin's business.
	for _, name := range []string{"nas.fritz.box.", "nas.lan."} {
		if m := ask("10.42.0.5", name, dns.TypeA); len(m.Answer) != 1 {
			t.Errorf("the owner's pod asks for %s: %v", name, m)
		}
	}
}

// TestPodsByAddressAreTheGuestsOwn: N-N-N-N.namespace.pod is asked about twins only, and with their names.
func TestPodsByAddressAreTheGuestsOwn(t *testing.T) {
	l := &lan{records: map[string][]string{
		"10-127-0-131.shop-x.pod.cluster.local. A":   {"10-127-0-131.shop-x.pod.cluster.local. 5 IN A 10.127.0.131"},
		"10-42-0-5.kube-system.pod.cluster.local. A": {"10-42-0-5.kube-system.pod.cluster.local. 5 IN A 10.42.0.5"},
		"10-127-0-140.shop-y.pod.cluster.local. A":   {"10-127-0-140.shop-y.pod.cluster.local. 5 IN A 10.127.0.140"},
		"10-127-0-131.shop.pod.cluster.local. A":     {"10-127-0-131.shop.pod.cluster.local. 5 IN A 10.42.0.77"}, // the owner's shop
	}}
	known := guestBook{by: map[string]tenant{"10.127.0.130": {twins: map[string]string{"shop": "shop-x"}}}}
	p := tenants{next: l.handler(t), known: known}
	for name, want := range map[string]string{
		"10-127-0-131.shop.pod.cluster.local.":     "10-127-0-131.shop.pod.cluster.local.\t5\tIN\tA\t10.127.0.131",
		"10-127-0-131.shop-x.pod.cluster.local.":   "10-127-0-131.shop-x.pod.cluster.local.\t5\tIN\tA\t10.127.0.131",
		"10-42-0-5.kube-system.pod.cluster.local.": "", "10-127-0-140.shop-y.pod.cluster.local.": "", "1-2-3-4.default.pod.cluster.local.": "",
	} {
		l.asked = nil
		a := &client{from: "10.127.0.130"}
		_, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion(name, dns.TypeA))
		must(t, err)
		got := ""
		if len(a.got.Answer) > 0 {
			got = a.got.Answer[0].String()
		}
		if got != want || want == "" && (a.got.Rcode != dns.RcodeNameError || len(l.asked) > 0) {
			t.Errorf("%s: %q, want %q; asked %v", name, got, want, l.asked)
		}
	}
}

// TestEveryFormOfANameMeansItsNamespaceAtHome: for a guest whose search list is that of home or of its twin.
func TestEveryFormOfANameMeansItsNamespaceAtHome(t *testing.T) {
	l := &lan{records: map[string][]string{
		"web.shop-aaaaaaa.svc.cluster.local. A":            {"web.shop-aaaaaaa.svc.cluster.local. 5 IN A 10.43.0.2"},
		"web.shop-aaaaaaa.svc.cluster.local. AAAA":         {"web.shop-aaaaaaa.svc.cluster.local. 5 IN AAAA fd43::2"},
		"s-0.s.shop-aaaaaaa.svc.cluster.local. A":          {"s-0.s.shop-aaaaaaa.svc.cluster.local. 5 IN A 10.127.0.131"},
		"_http._tcp.s.shop-aaaaaaa.svc.cluster.local. SRV": {"_http._tcp.s.shop-aaaaaaa.svc.cluster.local. 5 IN SRV 0 50 80 s-0.s.shop-aaaaaaa.svc.cluster.local."},
		"2.0.43.10.in-addr.arpa. PTR":                      {"2.0.43.10.in-addr.arpa. 5 IN PTR web.shop-aaaaaaa.svc.cluster.local."},
		"131.0.127.10.in-addr.arpa. PTR":                   {"131.0.127.10.in-addr.arpa. 5 IN PTR s-0.s.shop-aaaaaaa.svc.cluster.local."},
		"db.lab-aaaaaaa.svc.cluster.local. A":              {"db.lab-aaaaaaa.svc.cluster.local. 5 IN A 10.43.0.3"},
		"web.shop.svc.cluster.local. A":                    {"web.shop.svc.cluster.local. 5 IN A 10.43.0.99"}, // the owner's shop
	}}
	known := guestBook{by: map[string]tenant{"10.127.0.130": {twins: map[string]string{"shop": "shop-aaaaaaa", "lab": "lab-aaaaaaa"}}}}
	p := tenants{next: l.handler(t), known: known}
	lookup := func(searches []string, name string, kind uint16) (string, string) {
		candidates := []string{name}
		for _, s := range searches {
			candidates = append(candidates, name+"."+s)
		}
		for _, full := range candidates {
			a := &client{from: "10.127.0.130"}
			_, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion(full+".", kind))
			must(t, err)
			if len(a.got.Answer) > 0 {
				fields := strings.Fields(a.got.Answer[0].String())
				if fields[0] != full+"." {
					t.Errorf("%s: an answer about %s", full, fields[0])
				}
				return full, fields[len(fields)-1]
			}
		}
		return "", ""
	}
	for _, own := range []string{"shop", "shop-aaaaaaa"} {
		searches := []string{own + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
		for _, c := range []struct {
			name string
			kind uint16
			want string
		}{
			{"web", dns.TypeA, "10.43.0.2"}, {"web.shop", dns.TypeA, "10.43.0.2"}, {"web.shop.svc", dns.TypeA, "10.43.0.2"}, {"web.shop.svc.cluster.local", dns.TypeA, "10.43.0.2"},
			{"web", dns.TypeAAAA, "fd43::2"}, {"web.shop.svc", dns.TypeAAAA, "fd43::2"},
			{"s-0.s", dns.TypeA, "10.127.0.131"}, {"s-0.s.shop", dns.TypeA, "10.127.0.131"},
			{"_http._tcp.s.shop.svc.cluster.local", dns.TypeSRV, "s-0.s.shop.svc.cluster.local."},
			{"db.lab", dns.TypeA, "10.43.0.3"}, {"db.lab.svc.cluster.local", dns.TypeA, "10.43.0.3"},
			{"2.0.43.10.in-addr.arpa", dns.TypePTR, "web.shop.svc.cluster.local."}, {"131.0.127.10.in-addr.arpa", dns.TypePTR, "s-0.s.shop.svc.cluster.local."},
			{"db", dns.TypeA, ""}, {"db.market", dns.TypeA, ""}, {"db.lab-aaaaaaa", dns.TypeA, "10.43.0.3"}, {"db.lab-bbbbbbb", dns.TypeA, ""},
		} {
			if _, got := lookup(searches, c.name, c.kind); got != c.want {
				t.Errorf("from %s, %s %s is %q, want %q", own, c.name, dns.TypeToString[c.kind], got, c.want)
			}
		}
	}
	if slices.Contains(l.asked, "web.shop.svc.cluster.local. A") {
		t.Error("the owner's namespace was asked about")
	}
}
