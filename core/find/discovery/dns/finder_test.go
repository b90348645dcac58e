package dns

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
	"kith.dev/test/docs"
)

func testID(name string) identity.ID {
	seed := sha256.Sum256([]byte(name))
	return identity.IDOf(ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ports(s ...string) (out []netip.AddrPort) {
	for _, a := range s {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

// nameServer serves records on loopback, UDP and TCP; a name of servfail. fails.
func nameServer(t *testing.T, zone ...string) string {
	records := map[string][]dns.RR{}
	exists := map[string]bool{}
	for _, line := range zone {
		rr, err := dns.NewRR(line)
		must(t, err)
		key := rr.Header().Name + dns.TypeToString[rr.Header().Rrtype]
		records[key] = append(records[key], rr)
		exists[rr.Header().Name] = true
	}
	return serve(t, func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		name, typ := q.Question[0].Name, dns.TypeToString[q.Question[0].Qtype]
		if strings.HasSuffix(name, "servfail.") {
			m.Rcode = dns.RcodeServerFailure
		}
		if c := records[name+"CNAME"]; c != nil && typ != "CNAME" {
			m.Answer = append(m.Answer, c...)
			name = c[0].(*dns.CNAME).Target
		}
		m.Answer = append(m.Answer, records[name+typ]...)
		if len(m.Answer) == 0 {
			soa, _ := dns.NewRR("example. 900 SOA ns. root. 1 1 1 1 120")
			m.Ns = append(m.Ns, soa)
			if !exists[name] && m.Rcode == 0 {
				m.Rcode = dns.RcodeNameError
			}
		}
		return m
	})
}

// serve answers questions on loopback, UDP (up to 512 bytes) and TCP; nil is no answer.
func serve(t *testing.T, answer func(q *dns.Msg) *dns.Msg) string {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := answer(q)
		if m == nil {
			return
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(512)
		}
		w.WriteMsg(m)
	})
	packets, stream := bothAt(t)
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: stream, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	return packets.LocalAddr().String()
}

// bothAt listens at one port of loopback; a port that is free for packets may be taken for streams.
func bothAt(t *testing.T) (net.PacketConn, net.Listener) {
	var err error
	for range 20 {
		packets, wrong := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, wrong)
		var stream net.Listener
		if stream, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, stream
		}
		packets.Close()
	}
	t.Fatal(err)
	return nil, nil
}

func newFinder(t *testing.T, domain string, servers ...string) *Finder {
	d, err := New(Config{Domains: []string{domain}, Port: 6450, Servers: servers, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return d
}

// lookupOnce asks for the domain of a finder, and gives how long what was said holds.
func lookupOnce(t *testing.T, d *Finder) ([]discovery.Sighting, time.Duration, error) {
	r := d.lookUp(t.Context(), &lookup{Followed: d.domains[0]})
	return r.found, time.Until(r.again).Round(time.Second), r.err
}

func TestDNSLookup(t *testing.T) {
	bob, carol := testID("bob"), testID("carol")
	txt := ` TXT "v=1" "id=` + bob.Compact() + `" "name=Bob's lab"`
	zone := []string{
		"_kith._tcp.one.example. 600 SRV 0 0 6450 lab.example.",
		"_kith._tcp.lab.example. 300" + txt,
		"lab.example. 900 A 192.0.2.7", "lab.example. 900 AAAA 2001:db8::7",

		"_kith._tcp.self.example. 600 SRV 0 0 7000 self.example.",
		"_kith._tcp.self.example. 600 TXT \"v=spf1 -all\"",
		"_kith._tcp.self.example. 600" + txt,
		"self.example. 600 A 192.0.2.8",

		"_kith._tcp.two.example. 600 SRV 20 0 6450 second.example.",
		"_kith._tcp.two.example. 600 SRV 10 0 6450 first.example.",
		"_kith._tcp.second.example. 600 TXT \"v=1\" \"id=" + carol.Compact() + "\" \"name=carol\"",
		"_kith._tcp.first.example. 600" + txt,
		"first.example. 15 CNAME lab.example.",
		"second.example. 600 A 127.0.0.1",

		"_kith._tcp.nameless.example. 600 SRV 0 0 6450 second.nameless.example.",
		"second.nameless.example. 600 A 192.0.2.8",

		`_kith._tcp.umlaut.example. 600 SRV 0 0 6450 umlaut.example.`,
		`_kith._tcp.umlaut.example. 600 TXT "v=1" "id=` + bob.Compact() + `" "name=J\195\182rg \"the\" \\\027[1m"`,
		`umlaut.example. 600 A 169.254.169.254`,
		`umlaut.example. 600 AAAA ::ffff:192.0.2.9`,

		"_kith._tcp.none.example. 600 SRV 0 0 0 .",
		"_kith._tcp.broken.example. 600 SRV 0 0 6450 servfail.",
		`_kith._tcp.odd.example. 600 SRV 0 0 6450 a\000b.example.`,
		`_kith._tcp.odd.example. 600 SRV 0 0 6450 \..example.`,
		`_kith._tcp.odd.example. 600 SRV 0 0 6450 192.0.2.7.`,
		"_kith._tcp.many.example. 600 SRV 0 0 1000 lab.example.",
		"_kith._tcp.weeks.example. 2419200 SRV 0 0 0 .",
		"_kith._tcp.nothing.example. 0 SRV 0 0 0 .",
		"_kith._tcp.second.example. 1 SRV 0 0 0 .",
		"_kith._tcp.minus.example. 2147483649 SRV 0 0 0 .",
	}
	for i := range 60 { // too much for one UDP answer
		zone = append(zone, fmt.Sprintf("_kith._tcp.many.example. 600 SRV 0 0 %d lab.example.", 2000+i))
	}
	server := nameServer(t, zone...)
	for _, c := range []struct {
		domain string
		want   []discovery.Sighting
		ttl    time.Duration
	}{
		{"one.example", []discovery.Sighting{{Name: "Bob's lab", ID: bob, Addresses: ports("192.0.2.7:6450", "[2001:db8::7]:6450")}}, 300 * time.Second},
		{"self.example", []discovery.Sighting{{Name: "Bob's lab", ID: bob, Addresses: ports("192.0.2.8:7000")}}, 120 * time.Second},
		{"two.example", []discovery.Sighting{
			{Name: "Bob's lab", ID: bob, Addresses: ports("192.0.2.7:6450", "[2001:db8::7]:6450")},
			{Name: "carol", ID: carol}, // its address is ourselves
		}, 15 * time.Second},
		{"umlaut.example", []discovery.Sighting{{Name: `Jörg "the" \[1m`, ID: bob, Addresses: ports("192.0.2.9:6450")}}, 600 * time.Second},
		{"nameless.example", nil, 120 * time.Second}, // no TXT record says whose the address is
		{"none.example", nil, 600 * time.Second},
		{"missing.example", nil, 120 * time.Second},
		{"odd.example", nil, 600 * time.Second},
		{"weeks.example", nil, maxTTL},
		{"nothing.example", nil, minTTL},
		{"second.example", nil, minTTL},
		{"minus.example", nil, minTTL},
	} {
		t.Run(c.domain, func(t *testing.T) {
			got, ttl, err := lookupOnce(t, newFinder(t, c.domain, server))
			must(t, err)
			for i := range got {
				if got[i].Source != discovery.DNSSource || time.Since(got[i].Seen) > time.Minute {
					t.Errorf("%+v", got[i])
				}
				got[i].Source, got[i].Seen = "", time.Time{}
				if len(got[i].Addresses) == 0 {
					got[i].Addresses = nil
				}
			}
			if !reflect.DeepEqual(got, c.want) || ttl != c.ttl {
				t.Errorf("got  %+v, %v\nwant %+v, %v", got, ttl, c.want, c.ttl)
			}
		})
	}
	got, _, err := lookupOnce(t, newFinder(t, "many.example", server))
	if err != nil || len(got) != maxTargets || got[0].Addresses[0].Port() != 1000 {
		t.Errorf("%d of many, %v", len(got), err)
	}
	if _, _, err := lookupOnce(t, newFinder(t, "broken.example", server)); err == nil || !strings.Contains(err.Error(), "SERVFAIL") || !strings.Contains(err.Error(), server) {
		t.Errorf("a failing server is no answer: %v", err)
	}
	// A dead server before the living one.
	if got, _, err := lookupOnce(t, newFinder(t, "one.example", "127.0.0.1:1", server)); err != nil || len(got) != 1 {
		t.Errorf("second server: %+v, %v", got, err)
	}
}

func TestDNSRun(t *testing.T) {
	server := nameServer(t, "_kith._tcp.one.example. 600 SRV 0 0 6450 lab.example.", "lab.example. 900 A 192.0.2.7",
		`_kith._tcp.lab.example. 600 TXT "v=1" "id=`+testID("bob").Compact()+`" "name=lab"`)
	d := newFinder(t, "One.example.", server)
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan discovery.Event), make(chan error)
	go func() { done <- d.Run(ctx, events) }()
	if e := <-events; e.Name != "lab" || e.Gone {
		t.Errorf("%+v", e)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// fakeZone is a name server in a bubble, that counts what it is asked.
type fakeZone struct {
	mu    sync.Mutex
	rrs   map[question][]string // data, behind the type
	ttl   time.Duration
	short map[dnsmessage.Type]time.Duration // instead of ttl, by type
	fails error
	slow  chan struct{} // answers come when it is closed
	asked []time.Time
	by    map[question]int
}

func (z *fakeZone) exchange(_ context.Context, _ string, q question) (answer, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if slow := z.slow; slow != nil {
		a := answer{ttl: z.ttl, records: z.records(q)}
		z.mu.Unlock()
		<-slow
		z.mu.Lock()
		return a, nil
	}
	z.asked = append(z.asked, time.Now())
	z.by[q]++
	if z.fails != nil {
		return answer{}, z.fails
	}
	a := answer{ttl: z.ttl, records: z.records(q)}
	if d, ok := z.short[q.qtype]; ok {
		a.ttl = d
	}
	return a, nil
}

func (z *fakeZone) records(q question) (out []dnsmessage.Resource) {
	for _, data := range z.rrs[q] {
		rr, err := dns.NewRR(q.name + " " + dns.TypeToString[uint16(q.qtype)] + " " + data)
		if err != nil {
			panic(err)
		}
		m, err := received(&dns.Msg{Answer: []dns.RR{rr}})
		if err != nil {
			panic(err)
		}
		out = append(out, m.Answers...)
	}
	return out
}

// received is what this package reads of a message as miekg/dns, whom the servers in these tests speak by, sends it.
func received(m *dns.Msg) (*dnsmessage.Message, error) {
	m.Compress = true
	packet, err := m.Pack()
	if err != nil {
		return nil, err
	}
	return decode(packet)
}

// said gives when it was asked, and how often what.
func (z *fakeZone) said() ([]time.Time, map[question]int) {
	synctest.Wait()
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked), maps.Clone(z.by)
}

// put has the records of one type at a name be these.
func (z *fakeZone) put(name, qtype string, data ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.rrs[question{name, dnsmessage.Type(dns.StringToType[qtype])}] = data
}

// change changes it and forgets what was asked.
func (z *fakeZone) change(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked, z.by = nil, map[question]int{}
	if f != nil {
		f()
	}
}

// cluster puts one into domain a.example.
func (z *fakeZone) cluster(name, address string) {
	z.put("_kith._tcp.a.example.", "SRV", "0 0 6450 "+name+".a.example.")
	z.put("_kith._tcp."+name+".a.example.", "TXT", `"v=1" "id=`+testID(name).Compact()+`" "name=`+name+`"`)
	z.put(name+".a.example.", "A", address)
}

// inBubble runs a finder for a.example against a fake zone.
func inBubble(t *testing.T, test func(t *testing.T, d *Finder, z *fakeZone, take func() []discovery.Event)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := newFinder(t, "a.example", "192.0.2.53:53")
		z := &fakeZone{rrs: map[question][]string{}, by: map[question]int{}, ttl: 5 * time.Minute}
		d.ask.exchange = z.exchange
		z.cluster("bob", "192.0.2.7")
		take, done := follow(ctx, d)
		if e := take(); len(e) != 1 || e[0].Name != "bob" {
			t.Errorf("%+v", e)
		}
		test(t, d, z, take)
		cancel()
		<-done
	})
}

func TestDNSAsksAgainWhenRecordsExpire(t *testing.T) {
	inBubble(t, func(t *testing.T, d *Finder, z *fakeZone, take func() []discovery.Event) {
		z.change(nil)
		began := time.Now()
		z.cluster("carol", "192.0.2.7")
		time.Sleep(5*time.Minute - time.Second)
		if _, by := z.said(); len(take()) != 0 || len(by) != 0 {
			t.Errorf("asked before the records expired: %v", by)
		}
		time.Sleep(time.Second + maxSpread + time.Second)
		if e := take(); len(e) != 2 || !e[0].Gone || e[1].Gone {
			t.Errorf("carol is new and bob is gone: %+v", e)
		}
		asked, _ := z.said()
		if gap := asked[0].Sub(began); gap < 300*time.Second || gap > 312*time.Second {
			t.Errorf("asked again after %v", gap)
		}

		z.change(func() { z.fails = errors.New("SERVFAIL") })
		time.Sleep(10 * time.Minute)
		if got := d.Troubles(); len(got) != 1 || got[0].Name != "a.example" || !strings.Contains(got[0].Why.Error(), "name server 192.0.2.53: SERVFAIL") {
			t.Errorf("%+v", got)
		}
		if e := take(); len(e) != 0 {
			t.Errorf("a failure takes back what was said: %+v", e)
		}
		_, by := z.said()
		if n := by[question{"_kith._tcp.a.example.", dnsmessage.TypeSRV}]; n < 2 || n > 8 {
			t.Errorf("asked a failing server %d times", n)
		}
		time.Sleep(25 * time.Hour)
		if e := take(); len(e) != 1 || !e[0].Gone {
			t.Errorf("nobody says so for a day: %+v", e)
		}

		z.change(func() { z.fails, z.ttl = nil, 0 })
		time.Sleep(16 * time.Minute)
		if got := d.Troubles(); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		if e := take(); len(e) == 0 || e[0].Name != "carol" {
			t.Errorf("carol is back: %+v", e)
		}
		z.change(nil)
		time.Sleep(20 * time.Minute)
		_, by = z.said()
		if n := by[question{"_kith._tcp.a.example.", dnsmessage.TypeSRV}]; n > 24 {
			t.Errorf("a TTL of nothing makes us ask %d times in 20 minutes", n)
		}
	})
}

// What holds for long is not asked for because something beside it does not.
func TestDNSAsksOnlyForWhatExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, d *Finder, z *fakeZone, take func() []discovery.Event) {
		z.change(func() { z.short = map[dnsmessage.Type]time.Duration{dnsmessage.TypeA: 30 * time.Second} })
		time.Sleep(6 * time.Minute)
		take()
		z.change(nil)
		time.Sleep(4 * time.Minute)
		asked, by := z.said()
		if a := by[question{"bob.a.example.", dnsmessage.TypeA}]; a < 7 || a > 8 || len(asked) != a {
			t.Errorf("asked %v", by)
		}
		z.put("bob.a.example.", "A", "192.0.2.8")
		time.Sleep(32 * time.Second)
		if e := take(); len(e) == 0 || e[len(e)-1].Addresses[0].String() != "192.0.2.8:6450" {
			t.Errorf("the new address: %+v", e)
		}
	})
}

// The last second of what a resolver has kept is a TTL of 0, which is no reason to wait.
func TestDNSFollowsThroughAResolver(t *testing.T) {
	inBubble(t, func(t *testing.T, d *Finder, z *fakeZone, take func() []discovery.Event) {
		z.change(func() { z.ttl = 0 })
		time.Sleep(5*time.Minute + maxSpread + 700*time.Millisecond) // asked once, and not again: a second TTL of 0 holds longer
		take()
		z.put("bob.a.example.", "A", "192.0.2.8")
		z.change(func() { z.ttl = 10 * time.Second })
		time.Sleep(12 * time.Second)
		if e := take(); len(e) == 0 || e[len(e)-1].Addresses[0].String() != "192.0.2.8:6450" {
			t.Errorf("%+v", e)
		}
	})
}

// On another network everything is asked anew, once, however often the news.
func TestDNSAsksAnewOnAnotherNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, d *Finder, z *fakeZone, take func() []discovery.Event) {
		time.Sleep(10 * time.Second)
		z.change(nil)
		z.put("_kith._tcp.a.example.", "SRV")
		for range 50 {
			d.Again()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		asked, by := z.said()
		if e := take(); len(e) != 1 || !e[0].Gone || len(asked) != 1 {
			t.Errorf("%+v, asked %v", e, by)
		}
		// What is answered while the network changes is of the one before.
		slow := make(chan struct{})
		z.change(func() { z.slow = slow })
		z.cluster("old", "192.0.2.7")
		d.Again()
		time.Sleep(5 * time.Second)
		d.Again()
		time.Sleep(time.Second)
		z.change(func() { z.slow = nil })
		close(slow)
		z.cluster("bob", "192.0.2.7")
		time.Sleep(5 * time.Second)
		if e := take(); len(e) == 0 || e[len(e)-1].Name != "bob" {
			t.Errorf("%+v", e)
		}
		z.put("_kith._tcp.a.example.", "SRV")
		time.Sleep(6 * time.Minute)
		take()
		// Without a network nothing is forgotten, and who comes back need not wait.
		z.change(func() { z.fails = errors.New("no route") })
		d.Again()
		time.Sleep(time.Hour)
		z.change(func() { z.fails = nil })
		z.cluster("bob", "192.0.2.9")
		d.Again()
		time.Sleep(againLeast)
		if e := take(); len(e) != 1 || e[0].Gone {
			t.Errorf("%+v", e)
		}
	})
}

// The names of Peers are followed: by their SRV records while there are some, else by the addresses of the host; not to somebody else.
func TestDNSFollowsTheNamesOfPeers(t *testing.T) {
	inBubble(t, func(t *testing.T, d *Finder, z *fakeZone, take func() []discovery.Event) {
		dave := testID("dave")
		z.put("dave.b.example.", "A", "192.0.2.20")
		z.put("dave.b.example.", "AAAA", "2001:db8::20")
		name, err := ParseName("Dave.b.example")
		must(t, err)
		names := []Followed{{name, dave}, {Name{"bob.a.example", 7000}, testID("erin")}}
		d.Follow(names)
		d.Follow(slices.Clone(names))
		time.Sleep(time.Second)
		got := map[string][]string{}
		note := func() {
			for _, e := range take() {
				got[e.ID.Compact()] = nil
				for _, a := range e.Addresses {
					got[e.ID.Compact()] = append(got[e.ID.Compact()], a.String())
				}
			}
		}
		if note(); fmt.Sprint(got[dave.Compact()]) != "[192.0.2.20:6450 [2001:db8::20]:6450]" || fmt.Sprint(got[testID("erin").Compact()]) != "[192.0.2.7:7000]" {
			t.Errorf("%v", got)
		}
		z.put("_kith._tcp.dave.b.example.", "SRV", "0 0 7001 new.b.example.")
		z.put("new.b.example.", "A", "192.0.2.21")
		time.Sleep(6 * time.Minute)
		if note(); fmt.Sprint(got[dave.Compact()]) != "[192.0.2.21:7001]" {
			t.Errorf("by SRV records: %v", got)
		}
		z.put("_kith._tcp.new.b.example.", "TXT", `"v=1" "id=`+testID("mallory").Compact()+`"`)
		time.Sleep(6 * time.Minute)
		if e := take(); !slices.ContainsFunc(e, func(e discovery.Event) bool { return e.Gone && e.ID == dave }) ||
			slices.ContainsFunc(e, func(e discovery.Event) bool { return e.ID == testID("mallory") }) {
			t.Errorf("a name that leads to another key: %+v", e)
		}
		d.Follow(nil)
		time.Sleep(time.Second)
		if e := take(); len(e) != 1 || !e[0].Gone || e[0].ID != testID("erin") {
			t.Errorf("not followed any more: %+v", e)
		}
	})
}

func TestNewDNSRefusesWhatIsNoDomain(t *testing.T) {
	for _, domain := range []string{"", "a b", "http://example.com", strings.Repeat("a.", 130), "..", "exa_mple/", "example.org:6450", "192.0.2.7", "ex\x00ample.org"} {
		if _, err := New(Config{Domains: []string{domain}}); err == nil {
			t.Errorf("%q passes", domain)
		}
	}
	for text, want := range map[string]string{
		"Example.org.": "example.org", "bücher.example": "xn--bcher-kva.example", "lab.example.org:7000": "lab.example.org:7000", "bob": "bob",
		"a.b:0": "", "a.b:65536": "", "a.b:": "", ":6450": "", "[::1]:80": "", "a..b": "", "-a.b": "", "10.0.0.300": "", "a\\.b": "",
	} {
		if n, err := ParseName(text); (err == nil) != (want != "") || err == nil && n.String() != want {
			t.Errorf("%q is %q, %v", text, n, err)
		}
	}
}

// follow collects the events of a finder, in a bubble.
func follow(ctx context.Context, f discovery.Finder) (take func() []discovery.Event, done chan error) {
	events := make(chan discovery.Event)
	var mu sync.Mutex
	var got []discovery.Event
	done = make(chan error, 1)
	go func() {
		for e := range events {
			mu.Lock()
			got = append(got, e)
			mu.Unlock()
		}
	}()
	go func() {
		done <- f.Run(ctx, events)
		close(events)
	}()
	return func() []discovery.Event {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := got
		got = nil
		return out
	}, done
}

// TestThePageSaysTheseBounds: docs/discovery.md has the amounts that the code has.
func TestThePageSaysTheseBounds(t *testing.T) {
	docs.Say(t, "discovery.md",
		fmt.Sprintf("a TTL of less than %.0f seconds", minTTL.Seconds()), "as a day |", // maxTTL
		fmt.Sprintf("%d domains, %d hosts in each and %d addresses of each host", maxDomains, maxTargets, discovery.MaxAddresses))
	for what, is := range map[string]bool{
		"a minute": unsaidTTL == time.Minute, "a day": maxTTL == 24*time.Hour && staleFor == 24*time.Hour, "three hours": maxNegative == 3*time.Hour,
		"five minutes": usualNegative == 5*time.Minute && ttlAddresses == 5*time.Minute, "an hour": ttlRecords == time.Hour, "15 minutes": retryMax == 15*time.Minute,
	} {
		if docs.Say(t, "discovery.md", what); !is {
			t.Errorf("%s is no longer so", what)
		}
	}
}
