package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
)

// lines are records as a zone file has them.
func lines(records []Record) string {
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "%s %d IN %s %s\n", r.Name, int(r.TTL/time.Second), r.Type, r.Data)
	}
	return b.String()
}

// zoneOf reads a zone file as a name server does.
func zoneOf(t *testing.T, text, origin string) (all []string) {
	t.Helper()
	p := dns.NewZoneParser(strings.NewReader(text), origin, "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		all = append(all, rr.String())
	}
	if p.Err() != nil {
		t.Fatalf("%v in\n%s", p.Err(), text)
	}
	return all
}

// TestAClusterIsFoundByTheRecordsThatItPrints: in a zone of their domain, whatever they were asked to look like.
func TestAClusterIsFoundByTheRecordsThatItPrints(t *testing.T) {
	bob := testID("bob")
	at := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	for name, c := range map[string]struct {
		zone   Zone
		byHost string
	}{
		"a domain":         {Zone{Domain: "Corp.example."}, "bob.corp.example"},
		"a host":           {Zone{Domain: "corp.example", Host: "lab"}, "lab.corp.example"},
		"a whole host":     {Zone{Domain: "corp.example", Host: "lab.site.corp.example"}, "lab.site.corp.example"},
		"the domain":       {Zone{Domain: "corp.example", Host: "@"}, "corp.example"},
		"relative":         {Zone{}, "bob.corp.example"},
		"relative, itself": {Zone{Host: "@"}, "corp.example"},
		"umlauts":          {Zone{Domain: "corp.example", Host: "bücher"}, "xn--bcher-kva.corp.example"},
		"another time":     {Zone{Domain: "corp.example", TTL: time.Minute}, "bob.corp.example"},
	} {
		t.Run(name, func(t *testing.T) {
			z := c.zone
			z.ID, z.Name, z.Port, z.Addresses = bob, "bob", 7000, at
			records, err := z.Records()
			must(t, err)
			server := nameServer(t, zoneOf(t, lines(records), "corp.example.")...)
			d := newFinder(t, "corp.example", server)
			got, _, err := lookupOnce(t, d)
			if err != nil || len(got) != 1 || got[0].ID != bob || got[0].Name != "bob" || fmt.Sprint(got[0].Addresses) != "[192.0.2.7:7000 [2001:db8::7]:7000]" {
				t.Errorf("%+v, %v of\n%s", got, err, lines(records))
			}
			n, err := ParseName(c.byHost)
			must(t, err)
			places, err := d.Find(t.Context(), n)
			if err != nil || len(places) != 1 || places[0].ID != bob || len(places[0].Addresses) != 2 {
				t.Errorf("%+v, %v", places, err)
			}
		})
	}
}

func TestRecordsThatCannotBe(t *testing.T) {
	for want, z := range map[string]Zone{
		"domain:":   {Domain: "no domain"},
		"domain: ":  {Domain: "example.org:53"},
		"host:":     {Domain: "example.org", Host: "a b"},
		"host: ":    {Host: "lab.example.org"},
		"ttl:":      {Domain: "example.org", TTL: time.Millisecond},
		"ttl: ":     {Domain: "example.org", TTL: 100 * 365 * 24 * time.Hour},
		"address:":  {Domain: "example.org", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		"address: ": {Domain: "example.org", Addresses: []netip.Addr{netip.MustParseAddr("fe80::1")}},
	} {
		z.Name, z.ID, z.Port = "bob", testID("bob"), 6450
		if records, err := z.Records(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, %v", z, records, err)
		}
	}
}

// TestWhatFindSays: where a name leads, or what was asked, of whom, and what came of it.
func TestWhatFindSays(t *testing.T) {
	bob := testID("bob")
	txt := ` TXT "v=1" "id=` + bob.Compact() + `" "name=bob"`
	server := nameServer(t,
		"_kith._tcp.corp.example. 60 SRV 20 0 6450 old.corp.example.", "_kith._tcp.corp.example. 60 SRV 10 0 7000 new.corp.example.",
		"_kith._tcp.old.corp.example. 60"+txt, "_kith._tcp.new.corp.example. 60"+txt, "old.corp.example. 60 A 192.0.2.7", "new.corp.example. 60 A 192.0.2.8",
		"host.example. 60 AAAA 2001:db8::7",
		"_kith._tcp.none.example. 60 SRV 0 0 0 .", "none.example. 60 A 192.0.2.10",
		"_kith._tcp.bare.example. 60 SRV 0 0 6450 bare.example.",
		"_kith._tcp.unsure.example. 60 SRV 0 0 6450 servfail.",
	)
	d := newFinder(t, "other.example", server)
	for text, want := range map[string]string{
		"corp.example":      "new.corp.example[192.0.2.8:7000] old.corp.example[192.0.2.7:6450]",
		"host.example":      "host.example[[2001:db8::7]:6450]",
		"host.example:9000": "host.example[[2001:db8::7]:9000]",
		"corp.example:9000": "corp.example:9000 leads to no address: A corp.example: name server " + server + " knows none; AAAA corp.example: name server " + server + " knows none",
		"missing.example": "missing.example leads to no address: SRV _kith._tcp.missing.example: name server " + server + " knows none; A missing.example: name server " + server +
			" knows none; AAAA missing.example: name server " + server + " knows none",
		"none.example": "refused",
		"bare.example": "bare.example leads to no address: SRV _kith._tcp.bare.example: name server " + server + " has that; TXT _kith._tcp.bare.example: name server " + server + " knows none;" +
			" A bare.example: name server " + server + " knows none; AAAA bare.example: name server " + server + " knows none",
		"unsure.example": "silent",
	} {
		n, err := ParseName(text)
		must(t, err)
		places, err := d.Find(t.Context(), n)
		var got []string
		for _, p := range places {
			got = append(got, p.Host+fmt.Sprint(p.Addresses))
		}
		said := strings.Join(got, " ")
		if e, ok := err.(*NotFoundError); ok {
			switch said = e.Error(); {
			case e.Refused:
				said = "refused"
			case e.Silent:
				said = "silent"
			}
		}
		if said != want {
			t.Errorf("%s:\n%s, want\n%s", text, said, want)
		}
	}
}

// FuzzQuoted: what a zone file says of a string is that string, once it came back from a name server.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{"bob", `Bob's "lab" \ ;`, "Jörg", "\x00\xff\n", "a=b", `\123`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 255 {
			return
		}
		rr, err := dns.NewRR("a.example. 60 IN TXT " + quoted(s))
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeTXT)
		m.Answer = []dns.RR{rr}
		heard, err := received(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := of[*dnsmessage.TXTResource](heard.Answers)[0].TXT[0]; got != s {
			t.Fatalf("%q is %q", s, got)
		}
	})
}
