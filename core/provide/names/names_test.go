package names

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/guestnet"
)

var addr = netip.MustParseAddr

func alice() *Tenant {
	t := &Tenant{
		Twins: map[string]string{"shop": "shop-q4zkx2a", "db": "db-q4zkx2a"}, APIServer: "db-q4zkx2a",
		Services: guestnet.Services{addr("10.43.9.9"): addr("10.43.7.7"), addr("10.43.7.7"): addr("10.43.7.1")},
		Ranges:   netplan.Translation{{Name: "guests", Real: netip.MustParsePrefix("198.19.0.0/16"), Alias: netip.MustParsePrefix("10.42.0.0/16")}},
	}
	t.ready()
	return t
}

func TestANameMeansWhatItMeansAtHome(t *testing.T) {
	for _, c := range []struct {
		name, here string // "" is none at home
		changed    bool
	}{
		{"web.shop.svc.cluster.local.", "web.shop-q4zkx2a.svc.cluster.local.", true},
		{"web-0.web.shop.svc.cluster.local.", "web-0.web.shop-q4zkx2a.svc.cluster.local.", true},
		{"_http._tcp.web.shop.svc.cluster.local.", "_http._tcp.web.shop-q4zkx2a.svc.cluster.local.", true},
		{"198-19-0-3.db.pod.cluster.local.", "198-19-0-3.db-q4zkx2a.pod.cluster.local.", true},
		{"shop.svc.cluster.local.", "shop-q4zkx2a.svc.cluster.local.", true},
		{"web.shop-q4zkx2a.svc.cluster.local.", "web.shop-q4zkx2a.svc.cluster.local.", true}, // as the kubelet here tells a pod
		{"web.shop.shop-q4zkx2a.svc.cluster.local.", "web.shop.shop-q4zkx2a.svc.cluster.local.", true},
		{"kubernetes.default.svc.cluster.local.", "kith-kubernetes.db-q4zkx2a.svc.cluster.local.", true},
		{"_https._tcp.kubernetes.default.svc.cluster.local.", "_https._tcp.kith-kubernetes.db-q4zkx2a.svc.cluster.local.", true},
		{"web.default.svc.cluster.local.", "", true},
		{"kube-dns.kube-system.svc.cluster.local.", "", true},
		{"web.bella-owf3s7a.svc.cluster.local.", "", true}, // another home's
		{"svc.cluster.local.", "svc.cluster.local.", false},
		{"example.com.", "example.com.", false},
		{"web.shop.svc.cluster.local.example.com.", "web.shop.svc.cluster.local.example.com.", false},
		{"9.9.43.10.in-addr.arpa.", "7.7.43.10.in-addr.arpa.", true},
		{"7.7.43.10.in-addr.arpa.", "1.7.43.10.in-addr.arpa.", true}, // a number means home's
		{"3.0.19.198.in-addr.arpa.", "3.0.42.10.in-addr.arpa.", true},
		{"1.2.0.192.in-addr.arpa.", "1.2.0.192.in-addr.arpa.", true},
		{"in-addr.arpa.", "in-addr.arpa.", false},
		{"09.9.43.10.in-addr.arpa.", "09.9.43.10.in-addr.arpa.", false},
	} {
		here, changed, ok := alice().here(c.name)
		if ok != (c.here != "") || ok && (here != c.here || changed != c.changed) {
			t.Errorf("%s: %q %v %v", c.name, here, changed, ok)
		}
		if home, known := alice().home(here); ok && changed && !strings.HasSuffix(c.name, reverse) && !strings.Contains(c.name, "-q4zkx2a") && (!known || home != c.name) {
			t.Errorf("%s: back it is %q", c.name, home)
		}
	}
	none := &Tenant{}
	none.ready()
	if here, _, ok := none.here("kubernetes.default.svc.cluster.local."); ok {
		t.Errorf("without its twin the API server is %q", here)
	}
}

// A dns is what stands for the cluster's: it answers from a table, by the name.
type dns map[string][]dnsmessage.ResourceBody

func (d dns) answer(asked []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(asked) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, body := range d[q.Name.String()] {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 5}, Body: body})
	}
	if len(m.Answers) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	b, _ := m.Pack()
	return b
}

func (d dns) serve(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String())
	u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if asked, err := receive(c, mostAsked); err == nil {
				_ = send(c, d.answer(asked))
			}
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, mostAsked)
		for {
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			answer := d.answer(buf[:n])
			lie := append([]byte(nil), answer...) // somebody guesses, first
			lie[0]++
			_, _ = u.WriteToUDPAddrPort(lie, from)
			_, _ = u.WriteToUDPAddrPort(answer, from)
		}
	}()
	return at
}

func serving(t *testing.T, d dns, guests map[netip.Addr]*Tenant) (*Server, string) {
	t.Helper()
	s := New(addr("127.0.0.1"), slog.New(slog.DiscardHandler))
	s.upstream = d.serve(t)
	s.Tell(guests)
	port := make(chan uint16, 1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, addr("127.0.0.1"), func(_ context.Context, p uint16) { port <- p }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, netip.AddrPortFrom(addr("127.0.0.1"), <-port).String()
}

func message(name string, kind dnsmessage.Type) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// asks sends from a local address, and gives the answer.
func asks(from, at, by string, message []byte) (m dnsmessage.Message, err error) {
	d := net.Dialer{Timeout: time.Second, LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	if by == "tcp4" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial(by, at)
	if err != nil {
		return m, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	var answer []byte
	if by == "tcp4" {
		if err = send(c, message); err == nil {
			answer, err = receive(c, mostTCP)
		}
	} else if _, err = c.Write(message); err == nil {
		buf := make([]byte, mostTCP)
		var n int
		n, err = c.Read(buf)
		answer = buf[:n]
	}
	if err == nil {
		err = m.Unpack(answer)
	}
	return m, err
}

func a(ip string) dnsmessage.ResourceBody { return &dnsmessage.AResource{A: addr(ip).As4()} }

func said(m dnsmessage.Message) string {
	var list []string
	for _, rr := range m.Answers {
		text := strings.TrimSuffix(rr.Header.Name.String(), ".") + " "
		switch b := rr.Body.(type) {
		case *dnsmessage.AResource:
			text += netip.AddrFrom4(b.A).String()
		case *dnsmessage.PTRResource:
			text += b.PTR.String()
		case *dnsmessage.SRVResource:
			text += b.Target.String()
		case *dnsmessage.CNAMEResource:
			text += b.CNAME.String()
		}
		list = append(list, text)
	}
	return strings.TrimPrefix(m.RCode.String(), "RCode") + " " + strings.Join(list, ", ")
}

func TestGuestsAreAnsweredAsAtHome(t *testing.T) {
	name := dnsmessage.MustNewName
	long := make([]dnsmessage.ResourceBody, 300)
	for i := range long {
		long[i] = a("10.42.0.9")
	}
	_, at := serving(t, dns{
		"web.shop-q4zkx2a.svc.cluster.local.":  {a("10.43.7.7")},
		"pods.shop-q4zkx2a.svc.cluster.local.": {a("10.42.0.3"), a("10.71.0.5")},
		"many.shop-q4zkx2a.svc.cluster.local.": long[:60], "most.shop-q4zkx2a.svc.cluster.local.": long, "many.example.com.": long[:60], "most.example.com.": long,
		"else.shop-q4zkx2a.svc.cluster.local.":           {&dnsmessage.CNAMEResource{CNAME: name("web.db-q4zkx2a.svc.cluster.local.")}},
		"_http._tcp.web.shop-q4zkx2a.svc.cluster.local.": {&dnsmessage.SRVResource{Port: 80, Target: name("web.shop-q4zkx2a.svc.cluster.local.")}},
		"kith-kubernetes.db-q4zkx2a.svc.cluster.local.":  {a("10.43.7.1")},
		"7.7.43.10.in-addr.arpa.":                        {&dnsmessage.PTRResource{PTR: name("web.shop-q4zkx2a.svc.cluster.local.")}},
		"1.2.0.192.in-addr.arpa.":                        {&dnsmessage.PTRResource{PTR: name("host.example.com.")}},
		"9.0.42.10.in-addr.arpa.":                        {&dnsmessage.PTRResource{PTR: name("10-42-0-9.secret.owner.svc.cluster.local.")}},
		"web.owner.svc.cluster.local.":                   {a("10.43.1.1")},
		"example.com.":                                   {a("10.43.7.7")},
	}, map[netip.Addr]*Tenant{addr("127.0.0.1"): alice()})
	for _, by := range []string{"udp4", "tcp4"} {
		for _, c := range []struct {
			name string
			kind dnsmessage.Type
			want string
		}{
			{"web.shop.svc.cluster.local.", dnsmessage.TypeA, "Success web.shop.svc.cluster.local 10.43.9.9"},
			{"WEB.Shop.svc.cluster.local.", dnsmessage.TypeA, "Success WEB.Shop.svc.cluster.local 10.43.9.9"},
			{"web.shop-q4zkx2a.svc.cluster.local.", dnsmessage.TypeA, "Success web.shop-q4zkx2a.svc.cluster.local 10.43.9.9"},
			{"pods.shop.svc.cluster.local.", dnsmessage.TypeA, "Success pods.shop.svc.cluster.local 198.19.0.3, pods.shop.svc.cluster.local 10.71.0.5"},
			{"else.shop.svc.cluster.local.", dnsmessage.TypeCNAME, "Success else.shop.svc.cluster.local web.db.svc.cluster.local."},
			{"_http._tcp.web.shop.svc.cluster.local.", dnsmessage.TypeSRV, "Success _http._tcp.web.shop.svc.cluster.local web.shop.svc.cluster.local."},
			{"kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, "Success kubernetes.default.svc.cluster.local 10.43.7.7"},
			{"9.9.43.10.in-addr.arpa.", dnsmessage.TypePTR, "Success 9.9.43.10.in-addr.arpa web.shop.svc.cluster.local."},
			{"1.2.0.192.in-addr.arpa.", dnsmessage.TypePTR, "Success 1.2.0.192.in-addr.arpa host.example.com."},
			{"9.0.19.198.in-addr.arpa.", dnsmessage.TypePTR, "NameError "},
			{"web.owner.svc.cluster.local.", dnsmessage.TypeA, "NameError "},
			{"none.shop.svc.cluster.local.", dnsmessage.TypeA, "NameError "},
			{"example.com.", dnsmessage.TypeA, "Success example.com 10.43.7.7"}, // what others say is theirs
			{"cluster.local.", dnsmessage.TypeAXFR, "Refused "},
		} {
			m, err := asks("127.0.0.1", at, by, message(c.name, c.kind))
			if err != nil || said(m) != c.want || m.ID != 7 || m.Questions[0].Name.String() != c.name {
				t.Errorf("%s by %s: %q, %v, %+v; want %q", c.name, by, said(m), err, m.Header, c.want)
			}
		}
		for name, n := range map[string]int{"many.shop.svc.cluster.local.": 60, "most.shop.svc.cluster.local.": 300, "many.example.com.": 60, "most.example.com.": 300} {
			m, err := asks("127.0.0.1", at, by, message(name, dnsmessage.TypeA))
			if err != nil || m.ID != 7 || m.Truncated != (by == "udp4") || len(m.Answers) != map[string]int{"udp4": 0, "tcp4": n}[by] {
				t.Errorf("a long answer of %s by %s: %d, %+v, %v", name, by, len(m.Answers), m.Header, err)
			}
		}
	}
}

func TestNobodyElseIsAnswered(t *testing.T) {
	s, at := serving(t, dns{"web.shop-q4zkx2a.svc.cluster.local.": {a("10.43.7.7")}}, map[netip.Addr]*Tenant{addr("127.0.0.1"): alice()})
	question := message("web.shop.svc.cluster.local.", dnsmessage.TypeA)
	for _, by := range []string{"udp4", "tcp4"} {
		if m, err := asks("127.0.0.2", at, by, question); err == nil {
			t.Errorf("who is no guest gets, by %s, %s", by, said(m))
		}
		for what, bad := range map[string][]byte{
			"nothing": {}, "too short": question[:11], "no name": question[:13], "an answer": append([]byte{0, 7, 0x80}, question[3:]...),
			"two questions": append([]byte{0, 7, 0, 0, 0, 2}, question[6:]...), "too long": append(append([]byte(nil), question...), make([]byte, mostAsked)...),
		} {
			if m, err := asks("127.0.0.1", at, by, bad); err == nil {
				t.Errorf("%s by %s: %s", what, by, said(m))
			}
		}
		if m, err := asks("127.0.0.1", at, by, question); err != nil || m.RCode != dnsmessage.RCodeSuccess {
			t.Errorf("after that by %s: %v %s", by, err, said(m))
		}
	}
	s.Tell(nil)
	if _, err := asks("127.0.0.1", at, "udp4", question); err == nil {
		t.Error("who is a guest no more is answered")
	}
}

func TestAGuestAsksOnlySoMuch(t *testing.T) {
	_, at := serving(t, dns{}, map[netip.Addr]*Tenant{addr("127.0.0.1"): alice(), addr("127.0.0.2"): alice()})
	refused := 0
	for range 2 * questionsAtOnce {
		if m, err := asks("127.0.0.1", at, "udp4", message("example.com.", dnsmessage.TypeA)); err == nil && m.RCode == dnsmessage.RCodeRefused {
			refused++
		}
	}
	if refused < questionsAtOnce/4 {
		t.Errorf("of %d questions %d were refused", 2*questionsAtOnce, refused)
	}
	if m, err := asks("127.0.0.2", at, "udp4", message("example.com.", dnsmessage.TypeA)); err != nil || m.RCode != dnsmessage.RCodeNameError {
		t.Errorf("another guest: %v %s", err, said(m))
	}
	l := limits{}
	for range underWay {
		if !l.enter(addr("127.0.0.1")) {
			t.Fatal("fewer than underWay")
		}
	}
	if l.enter(addr("127.0.0.1")) || !l.enter(addr("127.0.0.2")) {
		t.Error("one guest more than underWay, or another none")
	}
	l.keep(func(netip.Addr) bool { return false })
	l.leave(addr("127.0.0.1")) // of one that is gone meanwhile
	if len(l.guests) != 2 || l.guests[addr("127.0.0.1")].underWay != underWay-1 {
		t.Errorf("%+v", l.guests)
	}
}

func TestADNSThatDoesNotAnswerIsSaid(t *testing.T) {
	s := New(addr("127.0.0.1"), slog.New(slog.DiscardHandler))
	l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.upstream = netip.MustParseAddrPort(l.LocalAddr().String())
	l.Close()
	s.limits.enter(addr("127.0.0.1"))
	answer := s.answer(t.Context(), addr("127.0.0.1"), alice(), message("web.shop.svc.cluster.local.", dnsmessage.TypeA), "udp4", 512)
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil || m.RCode != dnsmessage.RCodeServerFailure || m.ID != 7 {
		t.Errorf("%v %+v", err, m.Header)
	}
}

func FuzzQuestionsOfGuests(f *testing.F) {
	for _, name := range []string{"web.shop.svc.cluster.local.", "9.9.43.10.in-addr.arpa.", "example.com."} {
		f.Add(message(name, dnsmessage.TypeA))
	}
	f.Add([]byte{})
	tenant := alice()
	f.Fuzz(func(t *testing.T, b []byte) {
		q, answer, err := read(tenant, b)
		room(b)
		switch {
		case err != nil && !errors.Is(err, errNoQuestion):
			t.Fatal(err)
		case err == nil && answer == nil && len(q.ask) < headerSize:
			t.Fatalf("%q asks %q", b, q.ask)
		case answer != nil && binary.BigEndian.Uint16(answer) != binary.BigEndian.Uint16(b):
			t.Fatal("an answer to something else")
		}
	})
}

func FuzzAnswersOfTheClustersDNS(f *testing.F) {
	tenant := alice()
	q, _, err := read(tenant, message("web.shop.svc.cluster.local.", dnsmessage.TypeA))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(dns{q.here: {a("10.43.7.7")}}.answer(q.ask))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := q.back(b, 512)
		if err == nil && len(out) > 512 {
			t.Fatalf("%d bytes", len(out))
		}
	})
}
