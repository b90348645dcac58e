package mdns

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

var bobTXT = txtOf(testID("bob"), "bob")

func addrs(s ...string) (out []netip.Addr) {
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func ports(s ...string) (out []netip.AddrPort) {
	for _, a := range s {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

func compose(t testing.TB, c discovery.TXT, a ...netip.Addr) []byte {
	packet, err := composeHello(c, 6450, a, recordTTL)
	must(t, err)
	return packet
}

func TestHelloComesBackWhole(t *testing.T) {
	packet := compose(t, bobTXT, addrs("192.168.77.2", "2001:db8::2", "fe80::2")...)
	m, err := parse(packet)
	must(t, err)
	want := message{response: true, hellos: []hello{{TXT: bobTXT, ttl: recordTTL,
		addresses: ports("192.168.77.2:6450", "[2001:db8::2]:6450", "[fe80::2]:6450")}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v", m)
	}
	many := slices.Repeat(addrs("2001:db8::2"), 99)
	if packet := compose(t, txtOf(testID("x"), strings.Repeat("🦊", 60)), many...); len(packet) > maxPayload {
		t.Errorf("the largest hello has %d bytes", len(packet))
	}
}

func TestLongestNameFitsItsTXTString(t *testing.T) {
	c := txtOf(testID("bob"), discovery.CleanName(strings.Repeat("🦊", 100)))
	if _, err := composeHello(c, 6450, nil, recordTTL); err != nil {
		t.Error(err)
	}
}

func TestGoodbye(t *testing.T) {
	packet, err := composeHello(bobTXT, 6450, nil, 0)
	must(t, err)
	m, err := parse(packet)
	must(t, err)
	if len(m.hellos) != 0 || !slices.Equal(m.byes, []identity.ID{bobTXT.ID}) {
		t.Errorf("%+v", m)
	}
}

func TestQuestions(t *testing.T) {
	var known []knownAnswer
	for i := range 40 {
		known = append(known, knownAnswer{testID(strings.Repeat("x", i)), 4 * time.Minute})
	}
	known = append(known, knownAnswer{bobTXT.ID, time.Minute}) // too old to count
	packets, err := composeBrowse(known)
	must(t, err)
	var got []identity.ID
	for i, p := range packets {
		m, err := parse(p)
		must(t, err)
		if len(p) > maxPayload || m.browse != (i == 0) || m.truncated != (i < len(packets)-1) || m.response {
			t.Errorf("packet %d of %d: %d bytes, %+v", i, len(packets), len(p), m)
		}
		got = append(got, m.known...)
	}
	if len(got) != 40 || slices.Contains(got, bobTXT.ID) {
		t.Errorf("%d known answers in %d packets", len(got), len(packets))
	}

	packet, err := composeAsk([]identity.ID{bobTXT.ID, testID("carol")})
	must(t, err)
	if m, err := parse(packet); err != nil || !slices.Equal(m.asked, []identity.ID{bobTXT.ID, testID("carol")}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parse(ask(t, metaName, dnsmessage.TypePTR)); err != nil || !m.meta {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parse(ask(t, strings.ToUpper(hostName(bobTXT.ID)), dnsmessage.TypeA)); err != nil || !slices.Equal(m.asked, []identity.ID{bobTXT.ID}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parse(ask(t, "printer.local.", dnsmessage.TypeA)); err != nil || !reflect.DeepEqual(m, message{}) {
		t.Errorf("another's question concerns us: %+v, %v", m, err)
	}
}

func ask(t *testing.T, name string, typ dnsmessage.Type) []byte {
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET | unicastBit}}}
	packet, err := m.Pack()
	must(t, err)
	return packet
}

func TestWhatIsNotAHello(t *testing.T) {
	good := compose(t, bobTXT, addrs("192.168.77.2")...)
	edit := func(f func(*dnsmessage.Message)) []byte {
		var m dnsmessage.Message
		must(t, m.Unpack(good))
		f(&m)
		packet, err := m.Pack()
		must(t, err)
		return packet
	}
	drop := func(typ dnsmessage.Type) []byte {
		return edit(func(m *dnsmessage.Message) {
			m.Answers = slices.DeleteFunc(m.Answers, func(r dnsmessage.Resource) bool { return r.Header.Type == typ })
		})
	}
	replace := func(typ dnsmessage.Type, body dnsmessage.ResourceBody) []byte {
		return edit(func(m *dnsmessage.Message) {
			for i := range m.Answers {
				if m.Answers[i].Header.Type == typ {
					m.Answers[i].Body = body
				}
			}
		})
	}
	for name, packet := range map[string][]byte{
		"no PTR":               drop(dnsmessage.TypePTR),
		"no SRV":               drop(dnsmessage.TypeSRV),
		"no TXT":               drop(dnsmessage.TypeTXT),
		"no address":           drop(dnsmessage.TypeA),
		"port 0":               replace(dnsmessage.TypeSRV, &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(hostName(bobTXT.ID))}),
		"another's TXT":        replace(dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: txtOf(testID("carol"), "x").Strings()}),
		"loopback only":        replace(dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}),
		"multicast only":       replace(dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{224, 0, 0, 251}}),
		"all zero address":     replace(dnsmessage.TypeA, &dnsmessage.AResource{}),
		"a question":           edit(func(m *dnsmessage.Message) { m.Response = false }),
		"an error":             edit(func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure }),
		"another opcode":       edit(func(m *dnsmessage.Message) { m.OpCode = 5 }),
		"another class":        edit(func(m *dnsmessage.Message) { m.Answers[0].Header.Class = dnsmessage.ClassCHAOS }),
		"cut":                  good[:len(good)-3],
		"a header and no more": good[:12],
		"nothing":              nil,
	} {
		if m, err := parse(packet); err == nil && len(m.hellos) > 0 {
			t.Errorf("%s passes: %+v", name, m.hellos)
		}
	}
}

func TestPacketsOfManyRecordsAreReadInPart(t *testing.T) {
	var m dnsmessage.Message
	m.Response = true
	for i := range 500 {
		var one dnsmessage.Message
		must(t, one.Unpack(compose(t, txtOf(testID(strings.Repeat("y", i)), "x"), addrs("192.168.77.2")...)))
		m.Answers = append(m.Answers, one.Answers...)
	}
	packet, err := m.Pack()
	must(t, err)
	got, err := parse(packet)
	if err != nil || len(got.hellos) == 0 || len(got.hellos) > maxInstances {
		t.Errorf("%d hellos, %v", len(got.hellos), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(compose(f, bobTXT, addrs("192.168.77.2", "fe80::2")...))
	bye, _ := composeHello(bobTXT, 6450, nil, 0)
	f.Add(bye)
	browse, _ := composeBrowse([]knownAnswer{{bobTXT.ID, recordTTL}})
	f.Add(browse[0])
	meta, _ := composeMeta()
	f.Add(meta)
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := parse(packet)
		if err != nil {
			return
		}
		if len(m.hellos)+len(m.byes) > maxInstances || len(m.known) > maxInstances || len(m.asked) > maxQuestions {
			t.Errorf("more than bounded: %+v", m)
		}
		for _, h := range m.hellos {
			if h.ID.IsZero() || h.Name == "" || discovery.CleanName(h.Name) != h.Name || len(h.addresses) == 0 || len(h.addresses) > discovery.MaxAddresses || h.ttl <= 0 {
				t.Errorf("%+v", h)
			}
		}
	})
}
