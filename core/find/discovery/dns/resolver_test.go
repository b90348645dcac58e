package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/find/discovery"
)

func rr(t *testing.T, line string) dns.RR {
	t.Helper()
	out, err := dns.NewRR(line)
	must(t, err)
	return out
}

// TestOnlyWhatAnswersCounts: records of names that were not asked for, of other classes or types, and of zones that are not the name's
// say nothing.
func TestOnlyWhatAnswersCounts(t *testing.T) {
	q := question{"lab.example.", dnsmessage.TypeA}
	loop := []string{"lab.example. 60 CNAME a.example.", "a.example. 60 CNAME lab.example."}
	long := []string{}
	for i := range 12 {
		long = append(long, fmt.Sprintf("%s 60 CNAME c%d.example.", map[bool]string{true: "lab.example.", false: fmt.Sprintf("c%d.example.", i-1)}[i == 0], i))
	}
	many := []string{}
	for i := range 3000 {
		many = append(many, fmt.Sprintf("lab.example. 60 A 10.%d.%d.1", i/256, i%256))
	}
	for name, c := range map[string]struct {
		answer, authority []string
		want              string
		ttl               time.Duration
	}{
		"plain":                  {[]string{"LAB.example. 60 A 192.0.2.7"}, nil, "192.0.2.7", time.Minute},
		"the shortest time":      {[]string{"lab.example. 60 A 192.0.2.7", "lab.example. 30 A 192.0.2.8"}, nil, "192.0.2.7 192.0.2.8", 30 * time.Second},
		"twice the same":         {[]string{"lab.example. 60 A 192.0.2.8", "lab.example. 60 A 192.0.2.8", "lab.example. 60 A 192.0.2.7"}, nil, "192.0.2.7 192.0.2.8", time.Minute},
		"another name":           {[]string{"bank.example. 60 A 192.0.2.66", "lab.example. 90 A 192.0.2.7"}, nil, "192.0.2.7", 90 * time.Second},
		"only another name":      {[]string{"bank.example. 60 A 192.0.2.66"}, nil, "", usualNegative},
		"another class":          {[]string{"lab.example. 60 CH A 192.0.2.66"}, nil, "", usualNegative},
		"another type":           {[]string{`lab.example. 60 TXT "192.0.2.66"`}, nil, "", usualNegative},
		"an alias":               {[]string{"b.example. 20 A 192.0.2.7", "lab.example. 60 CNAME B.example."}, nil, "192.0.2.7", 20 * time.Second},
		"an alias to nothing":    {[]string{"lab.example. 60 CNAME b.example."}, []string{"example. 600 SOA a. b. 1 1 1 1 90"}, "", time.Minute},
		"a ring of aliases":      {loop, nil, "", time.Minute},
		"a long chain":           {long, nil, "", time.Minute},
		"none":                   {nil, []string{"example. 600 SOA a. b. 1 1 1 1 90"}, "", 90 * time.Second},
		"none, by a short SOA":   {nil, []string{"example. 40 SOA a. b. 1 1 1 1 9000"}, "", 40 * time.Second},
		"none for weeks":         {nil, []string{". 2419200 SOA a. b. 1 1 1 1 2419200"}, "", maxNegative},
		"none, says a stranger":  {nil, []string{"example.org. 1 SOA a. b. 1 1 1 1 1"}, "", usualNegative},
		"none, says a neighbour": {nil, []string{"b.example. 1 SOA a. b. 1 1 1 1 1"}, "", usualNegative},
		"too many":               {many, nil, "10.0.0.1", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(dns.Msg).SetQuestion(q.name, uint16(q.qtype))
			m.Response = true
			for _, line := range c.answer {
				m.Answer = append(m.Answer, rr(t, line))
			}
			for _, line := range c.authority {
				m.Ns = append(m.Ns, rr(t, line))
			}
			m.Extra = append(m.Extra, rr(t, "lab.example. 60 A 192.0.2.66"))
			heard, err := received(m)
			must(t, err)
			a, err := read(heard, m.Id, q)
			must(t, err)
			var got []string
			for _, r := range of[*dnsmessage.AResource](a.records) {
				got = append(got, netip.AddrFrom4(r.A).String())
			}
			if len(got) > maxAnswer {
				t.Errorf("%d records", len(got))
			}
			if name == "too many" {
				got = got[:1]
			}
			if strings.Join(got, " ") != c.want || a.ttl != c.ttl {
				t.Errorf("%v for %v, want %s for %v", got, a.ttl, c.want, c.ttl)
			}
		})
	}
}

// TestALiarIsNotHeard: whoever sends packets from the server's address, and knows neither ID nor question, changes nothing.
func TestALiarIsNotHeard(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer conn.Close()
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if q.Unpack(buf[:n]) != nil {
				continue
			}
			say := func(address string, change func(m *dns.Msg)) {
				m := new(dns.Msg).SetReply(q)
				m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(address)}}
				change(m)
				packet, _ := m.Pack()
				conn.WriteTo(packet, from)
			}
			conn.WriteTo(nil, from)
			conn.WriteTo([]byte("no DNS"), from)
			conn.WriteTo(make([]byte, 12), from)
			say("192.0.2.66", func(m *dns.Msg) { m.Id++ })
			say("192.0.2.66", func(m *dns.Msg) { m.Response = false })
			say("192.0.2.66", func(m *dns.Msg) { m.Question[0].Name = "bank.example." })
			say("192.0.2.66", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA })
			say("192.0.2.66", func(m *dns.Msg) { m.Question = nil })
			say("192.0.2.66", func(m *dns.Msg) { m.Id, m.Rcode, m.Question = m.Id+1, dns.RcodeServerFailure, nil })
			say("192.0.2.7", func(m *dns.Msg) {})
		}
	}()
	a, err := newResolver([]string{conn.LocalAddr().String()}).query(t.Context(), question{"lab.example.", dnsmessage.TypeA})
	if err != nil || len(a.records) != 1 || of[*dnsmessage.AResource](a.records)[0].A != [4]byte{192, 0, 2, 7} {
		t.Errorf("%v, %v", a.records, err)
	}
}

// TestServersAsTheyAre: one without extensions, one whose answer fits in no packet, one that refuses, one that is silent.
func TestServersAsTheyAre(t *testing.T) {
	old := serve(t, func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		if q.IsEdns0() != nil {
			m.Rcode, m.Question = dns.RcodeFormatError, nil
			return m
		}
		m.Answer = []dns.RR{rr(t, "lab.example. 60 A 192.0.2.7")}
		return m
	})
	long := serve(t, func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		for i := range 200 {
			m.Answer = append(m.Answer, rr(t, fmt.Sprintf("lab.example. 60 A 192.0.2.%d", i+1)))
		}
		return m
	})
	refuses := serve(t, func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeRefused) })
	cut := serve(t, func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		m.Truncated = true
		return m
	})
	q := question{"lab.example.", dnsmessage.TypeA}
	for name, c := range map[string]struct {
		servers []string
		want    int
		err     string
	}{
		"old":                 {[]string{old}, 1, ""},
		"long":                {[]string{long}, maxAnswer, ""},
		"refuses":             {[]string{refuses}, 0, "A lab.example.: name server " + refuses + ": REFUSED (it does not answer this machine)"},
		"refuses, the second": {[]string{refuses, old}, 1, ""},
		"cut short by TCP":    {[]string{cut}, 0, "the answer is too long"},
		"nobody there":        {[]string{"127.0.0.1:1"}, 0, "connection refused, no name server listens there"},
	} {
		a, err := newResolver(c.servers).query(t.Context(), q)
		if len(a.records) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d records, %v", name, len(a.records), err)
		}
	}

	// One that is silent is asked twice, and comes last the next time.
	var order []string
	r := newResolver([]string{"dead", "well"})
	r.exchange = func(_ context.Context, server string, q question) (answer, error) {
		if order = append(order, server); server == "dead" {
			return answer{}, context.DeadlineExceeded
		}
		return answer{}, nil
	}
	for range 2 {
		_, err := r.query(t.Context(), q)
		must(t, err)
	}
	r.servers = r.servers[:1]
	if _, err := r.query(t.Context(), q); err == nil || !strings.Contains(err.Error(), "name server dead: no answer") {
		t.Error(err)
	}
	if got := strings.Join(order, " "); got != "dead well well dead dead" {
		t.Error(got)
	}
}

// TestWhatIsRememberedIsBounded: a name may lead to as many questions as it likes.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	r := newResolver([]string{"x"})
	for i := range 2 * maxKept {
		r.note(question{fmt.Sprint(i), dnsmessage.TypeA}, 0, answer{ttl: time.Hour}, nil)
		r.note(question{fmt.Sprint(i), dnsmessage.TypeTXT}, 0, answer{}, errors.New("no"))
	}
	if len(r.kept) > maxKept {
		t.Errorf("%d questions", len(r.kept))
	}
}

// FuzzRead reads packets: bounded, and nothing but what was asked for.
func FuzzRead(f *testing.F) {
	for _, lines := range [][]string{
		{"_kith._tcp.a.example. 60 SRV 0 0 6450 lab.a.example."}, {`_kith._tcp.a.example. 60 TXT "v=1" "id=x" "name=\195\182\"\\"`},
		{"_kith._tcp.a.example. 60 CNAME b.example.", "b.example. 60 AAAA 2001:db8::1"}, {"_kith._tcp.a.example. 60 A 192.0.2.7"},
	} {
		m := new(dns.Msg).SetQuestion("_kith._tcp.a.example.", dns.TypeSRV)
		m.Response, m.Id = true, 0
		for _, l := range lines {
			r, err := dns.NewRR(l)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer, m.Question[0].Qtype = append(m.Answer, r), r.Header().Rrtype
		}
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := decode(packet)
		if err != nil || len(m.Questions) != 1 {
			return
		}
		m.ID, m.Response, m.RCode = 0, true, 0
		q := question{strings.ToLower(m.Questions[0].Name.String()), m.Questions[0].Type}
		a, err := read(m, 0, q)
		if err != nil {
			return
		}
		if len(a.records) > maxAnswer || a.ttl < 0 || a.ttl > maxTTL {
			t.Fatalf("%d records for %v", len(a.records), a.ttl)
		}
		d := &Finder{port: 6450, ask: newResolver([]string{"x"})}
		d.ask.exchange = func(_ context.Context, _ string, q question) (answer, error) { // whatever is asked, this is the answer
			var same answer
			for _, rr := range m.Answers {
				if rr.Header.Type == q.qtype && len(same.records) < maxAnswer {
					same.records = append(same.records, rr)
				}
			}
			same.records = least(same.records)
			return same, nil
		}
		for _, f := range []Followed{{Name: Name{Host: "a.example"}}, {Name{Host: "a.example"}, testID("bob")}, {Name{"a.example", 1}, testID("bob")}} {
			for _, s := range d.lookUp(t.Context(), &lookup{Followed: f}).found {
				if s.ID.IsZero() || len(s.Addresses) > discovery.MaxAddresses || s.Name != discovery.CleanName(s.Name) {
					t.Fatalf("%+v", s)
				}
				for _, at := range s.Addresses {
					if !discovery.Dialable(at.Addr()) || at.Port() == 0 {
						t.Fatalf("%v", at)
					}
				}
			}
		}
	})
}
