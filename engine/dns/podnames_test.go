package dns

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

func TestNamesOfPodsByTheirAddresses(t *testing.T) {
	asked := 0
	p := podNames{cluster(t), func(_ context.Context, namespace string, ip netip.Addr) (bool, error) {
		asked++
		if namespace == "broken" {
			return false, errors.New("no answer")
		}
		return namespace == "shop" && (ip.String() == "10.42.0.5" || ip.String() == "fd00::5"), nil
	}}
	for _, c := range []struct {
		name    string
		qtype   uint16
		lookups int
		rcode   int
		answer  string
	}{
		{"10-42-0-5.shop.pod.cluster.local.", dns.TypeA, 1, dns.RcodeSuccess, "10.42.0.5"},
		{"10-42-0-5.SHOP.Pod.cluster.local.", dns.TypeA, 1, dns.RcodeSuccess, "10.42.0.5"},
		{"fd00--5.shop.pod.cluster.local.", dns.TypeAAAA, 1, dns.RcodeSuccess, "fd00::5"},
		{"10-42-0-5.shop.pod.cluster.local.", dns.TypeAAAA, 1, dns.RcodeSuccess, ""},            // it is there, and has no such address
		{"10-42-0-6.shop.pod.cluster.local.", dns.TypeA, 1, dns.RcodeNameError, ""},             // nobody has the address
		{"10-42-0-5.other.pod.cluster.local.", dns.TypeA, 1, dns.RcodeNameError, ""},            // nobody there
		{"10-42-0-5.broken.pod.cluster.local.", dns.TypeA, 1, dns.RcodeServerFailure, ""},       // not known: no "no such name"
		{"10-42-0.shop.pod.cluster.local.", dns.TypeA, 0, dns.RcodeNameError, ""},               // no address
		{"10-42-0-5.a.b.pod.cluster.local.", dns.TypeA, 0, dns.RcodeNameError, ""},              // no namespace
		{"10-42-0-5.UPPER_CASE.pod.cluster.local.", dns.TypeA, 0, dns.RcodeNameError, ""},       // nor that
		{"fe80--1%eth0.shop.pod.cluster.local.", dns.TypeAAAA, 0, dns.RcodeNameError, ""},       // a zone is no address
		{"shop.pod.cluster.local.", dns.TypeA, 0, dns.RcodeNameError, ""},                       // nothing
		{"web.shop.svc.cluster.local.", dns.TypeA, 0, dns.RcodeSuccess, "10.43.0.1"},            // others go on
		{"10-42-0-5.shop.pod.cluster.local.example.org.", dns.TypeA, 0, dns.RcodeNameError, ""}, // and those that only look alike
	} {
		asked = 0
		w := &client{from: "10.42.0.9"}
		rcode, err := p.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion(c.name, c.qtype))
		answer := ""
		if w.got != nil {
			rcode = w.got.Rcode
			for _, rr := range w.got.Answer {
				switch rr := rr.(type) {
				case *dns.A:
					answer = rr.A.String()
				case *dns.AAAA:
					answer = rr.AAAA.String()
				}
			}
		}
		if rcode != c.rcode || answer != c.answer || asked != c.lookups || (err != nil) != (c.rcode == dns.RcodeServerFailure) {
			t.Errorf("%s %s: %s %q after %d lookups, %v; want %s %q after %d", dns.TypeToString[c.qtype], c.name,
				dns.RcodeToString[rcode], answer, asked, err, dns.RcodeToString[c.rcode], c.answer, c.lookups)
		}
	}
}
