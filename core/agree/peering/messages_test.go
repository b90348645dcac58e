package peering

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/wiretest"
)

func someLink() Link {
	return Link{
		PublicKey: "q1NXkVZOeu7ysGNJ0oGSmSVr8vR7Ub0BPZx8T4qCJX4=",
		Port:      6450,
		Plan:      LinkPlan,
		Space:     []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.65.3.0/24")},
		Services:  netip.MustParsePrefix("10.43.0.0/16"),
		At:        netip.MustParseAddr("10.42.255.2"),
		Here:      netip.MustParsePrefix("10.64.7.0/24"),
		AtHere:    netip.MustParseAddr("10.64.7.1"),
		There:     netip.MustParsePrefix("10.66.0.0/24"),
		IPv6: &LinkIPv6{
			Space: []netip.Prefix{netip.MustParsePrefix("2001:cafe:42::/56"), netip.MustParsePrefix("fd12::/64")}, Services: netip.MustParsePrefix("2001:cafe:43::/112"),
			At: netip.MustParseAddr("2001:cafe:42:ff::2"), Taken: []netip.Prefix{netip.MustParsePrefix("fd34::/64")},
		},
		Binding: &Binding{PeerKey: "q1NXkVZOeu7ysGNJ0oGSmSVr8vR7Ub0BPZx8T4qCJX4=", Signature: make([]byte, 64), Proof: make([]byte, 32)},
	}
}

// The link of a home with as many providers as there may be is taken: such a message is made of many small parts, and those are what costs.
func TestTheLargestLinkIsTaken(t *testing.T) {
	l := someLink()
	for n := 1; len(l.Space) < netplan.MaxSpace; n++ {
		l.Space = append(l.Space, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 100, byte(n), 0}), 24))
	}
	for n := 1; len(l.IPv6.Space) < netplan.MaxSpace; n++ {
		l.IPv6.Space = append(l.IPv6.Space, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x12, 0x34, 0x56, 0x78, 0x9a, byte(n), 0xbc}), 64))
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var got Link
	if err := decode("application/json", bytes.NewReader(text), &got); err != nil || len(got.Space) != netplan.MaxSpace || len(got.IPv6.Space) != netplan.MaxSpace {
		t.Errorf("%d bytes: %d ranges and %d, %v", len(text), len(got.Space), len(got.IPv6.Space), err)
	}
}

func someOffer() *Offer {
	return &Offer{
		Terms: contract.Terms{
			Resources:      map[string]string{"cpu": "2", "memory": "4Gi", "pods": "20"},
			PodSecurity:    contract.Baseline,
			StorageClasses: []string{"local-path"},
		},
		NodeLabels: map[string]string{"kubernetes.io/arch": "amd64", "empty": ""},
		ValidUntil: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		ValidFor:   3600,
	}
}

func someQuestion() Question {
	return Question{
		Name: "alice", Resources: map[string]string{"cpu": "1500m"},
		Endpoints: []string{"192.0.2.1:6450", "[2001:db8::1]:6450", "alice.local:6450"}, Attempt: 1,
	}
}

// messages has a good one of each type.
func messages() map[string]message {
	q := someQuestion()
	link := someLink()
	return map[string]message{
		"hello":    &Hello{Version: "0.1", ID: identity.ID{1}, Name: "bob", Protocol: []string{"kith/v0", Protocol}},
		"question": &q,
		"offer":    someOffer(),
		"outcome":  &Outcome{State: OutcomeAccepted, Offer: someOffer()},
		"supply":   &Supply{State: SupplyPaused, Resources: map[string]string{"cpu": "2"}, Why: "sharing is paused"},
		"declined": &Outcome{State: OutcomeDeclined, Reason: "not today"},
		"link":     &link,
		"notice":   &Notice{Type: NoticeContractEnded, Contract: "a1b2c3d4e5f6g7h8", Why: "time is over"},
		"opening":  &Opening{},
		"opened":   &Opened{ID: "0123", Commitment: make([]byte, 32)},
		"asking":   &Asking{Nonce: make([]byte, 32), Question: someQuestion(), Compare: true},
		"revealed": &Revealed{ID: "req-1", Expires: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Nonce: make([]byte, 32)},
		"refs":     &refs{{"a1b2c3d4e5f6g7h8", 2, contract.Provider, api.StateConnected, &Lowering{Resources: map[string]string{"cpu": "1"}, In: 60}}},
		"signed":   &signed{contract.Signed{Document: []byte("{}")}},
		"line":     &presenceLine{Notice: &Notice{Type: NoticeBye}, Beat: &Beat{Ailing: "its Kubernetes does not answer"}},
		"problem":  &Problem{Code: CodeDeclined, Message: "no"},
	}
}

func blank(m message) message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(message) }

func TestMessagesSurviveTheWay(t *testing.T) {
	for name, m := range messages() {
		data, err := json.Marshal(m)
		must(t, err)
		out := blank(m)
		if err := decode("application/json; charset=UTF-8", bytes.NewReader(data), out); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(m, out) {
			t.Errorf("%s: %+v became %+v", name, m, out)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := json.Marshal(someQuestion())
	must(t, err)
	text := string(good)
	for _, c := range []struct {
		name, contentType, body string
		code                    Code
	}{
		{"no content type", "", text, CodeBadRequest},
		{"a form", "application/x-www-form-urlencoded", text, CodeBadRequest},
		{"another charset", "application/json; charset=utf-16", text, CodeBadRequest},
		{"garbage behind", "application/json", text + "x", CodeBadRequest},
		{"a second message", "application/json", text + text, CodeBadRequest},
		{"nothing", "application/json", "", CodeBadRequest},
		{"null", "application/json", "null", CodeBadRequest},
		{"a number", "application/json", "7", CodeBadRequest},
		{"a cut message", "application/json", text[:20], CodeBadRequest},
		{"another type", "application/json", `{"name": 7}`, CodeBadRequest},
		{"depth", "application/json", strings.Repeat("[", 20000), CodeBadRequest},
		{"length", "application/json", text + strings.Repeat(" ", MaxMessage), CodeTooLarge},
	} {
		err := decode(c.contentType, strings.NewReader(c.body), &Question{})
		if p := problemOf(err); err == nil || p.Code != c.code || !wire.Printable(p.Message) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// What a newer daemon adds is passed over.
	if err := decode("application/json", strings.NewReader(`{"name":"alice","mood":"good"}`), &Question{}); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	refuse := func(says string, m message) {
		t.Helper()
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want it to say %q", m, err, says)
		}
	}
	hello := func(change func(*Hello)) *Hello {
		h := &Hello{Version: "0.1", ID: identity.ID{1}, Name: "bob", Protocol: []string{Protocol}}
		change(h)
		return h
	}
	refuse("id", hello(func(h *Hello) { h.ID = identity.ID{} }))
	refuse("name", hello(func(h *Hello) { h.Name = "bob\x1b[31m" }))
	refuse("version", hello(func(h *Hello) { h.Version = strings.Repeat("1", 65) }))
	refuse("protocol", hello(func(h *Hello) { h.Protocol = nil }))
	refuse("protocol", hello(func(h *Hello) { h.Protocol = []string{"\x00"} }))

	question := func(change func(*Question)) *Question {
		q := someQuestion()
		change(&q)
		return &q
	}
	refuse("attempt", question(func(q *Question) { q.Attempt = -1 }))
	refuse("resources", question(func(q *Question) { q.Resources["cpu"] = "lots" }))
	refuse("endpoints: 17", question(func(q *Question) { q.Endpoints = make([]string, 17) }))
	for _, bad := range []string{"", "alice", "alice:", "alice:0", "alice:65536", ":6450", "a b:1", "[fe80::1%eth0]:6450",
		"-a:1", "alice:http", strings.Repeat("a", 300) + ":1", "http://alice:1", "a_b:1"} {
		refuse("endpoints", question(func(q *Question) { q.Endpoints = []string{bad} }))
	}

	offer := func(change func(*Offer)) *Offer {
		o := someOffer()
		change(o)
		return o
	}
	refuse("validFor", offer(func(o *Offer) { o.ValidFor = 0 }))
	refuse("validUntil", offer(func(o *Offer) { o.ValidUntil = time.Time{} }))
	refuse("nodeLabels", offer(func(o *Offer) { o.NodeLabels["a b"] = "" }))
	refuse("nodeLabels", offer(func(o *Offer) { o.NodeLabels["a"] = "b c" }))
	refuse("podSecurity", offer(func(o *Offer) { o.PodSecurity = "none" }))

	refuse("state", &Outcome{State: "maybe"})
	refuse("offer", &Outcome{State: OutcomeAccepted})
	refuse("offer", &Outcome{State: OutcomeDeclined, Offer: someOffer()})
	refuse("reason", &Outcome{State: OutcomeDeclined, Reason: strings.Repeat("x", 257)})

	link := func(change func(*Link)) *Link {
		l := someLink()
		change(&l)
		return &l
	}
	refuse("publicKey", link(func(l *Link) { l.PublicKey = "AAAA" }))
	refuse("publicKey", link(func(l *Link) { l.PublicKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" }))
	refuse("port", link(func(l *Link) { l.Port = 65536 }))
	refuse("binding: peerKey", link(func(l *Link) { l.Binding.PeerKey = "" }))
	refuse("binding: signature", link(func(l *Link) { l.Binding.Signature = nil }))
	refuse("binding: proof", link(func(l *Link) { l.Binding.Proof = make([]byte, 33) }))
	refuse("older Kith", link(func(l *Link) { l.Plan = 0 }))
	refuse("older Kith", link(func(l *Link) { l.Plan = LinkPlan + 1 }))
	refuse("space: 0", link(func(l *Link) { l.Space = nil }))
	refuse("space: 161", link(func(l *Link) { l.Space = make([]netip.Prefix, netplan.MaxSpace+1) }))
	for _, bad := range []string{"10.42.0.1/16", "0.0.0.0/0", "10.0.0.0/8", "10.42.0.0/29", "127.0.0.0/12", "224.0.0.0/12", "::/0", "fe80::/64", "::ffff:10.0.0.0/112"} {
		refuse("space: ", link(func(l *Link) { l.Space[1] = netip.MustParsePrefix(bad) }))
		refuse("services: ", link(func(l *Link) { l.Services = netip.MustParsePrefix(bad) }))
	}
	refuse("space: ", link(func(l *Link) { l.Space[0] = netip.Prefix{} }))
	for _, bad := range []string{"10.64.7.1/24", "10.64.0.0/15", "8.8.8.0/24", "fd00::/64"} {
		refuse("here: ", link(func(l *Link) { l.Here = netip.MustParsePrefix(bad) }))
		refuse("there: ", link(func(l *Link) { l.There = netip.MustParsePrefix(bad) }))
	}
	for _, bad := range []netip.Addr{{}, netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("fe80::1%" + strings.Repeat("z", 1000))} {
		refuse("at: ", link(func(l *Link) { l.At = bad }))
		refuse("atHere: ", link(func(l *Link) { l.AtHere = bad }))
	}
	refuse("atHere: ", link(func(l *Link) { l.Here = netip.Prefix{} }))
	refuse("ipv6: space: 0", link(func(l *Link) { l.IPv6 = &LinkIPv6{} }))
	refuse("ipv6: space: 161", link(func(l *Link) { l.IPv6.Space = make([]netip.Prefix, netplan.MaxSpace+1) }))
	refuse("ipv6: space: ", link(func(l *Link) { l.IPv6.Space[0] = netip.Prefix{} }))
	refuse("ipv6: taken: 3", link(func(l *Link) { l.IPv6.Taken = make([]netip.Prefix, 3) }))
	for _, bad := range []string{"::/0", "2000::/3", "fe80::/64", "ff05::/64", "::ffff:10.0.0.0/112", "64:ff9b::/96", "2002::/32", "10.42.0.0/16", "fd00::1/64", "fd00::/121"} {
		refuse("ipv6: space: ", link(func(l *Link) { l.IPv6.Space[1] = netip.MustParsePrefix(bad) }))
		refuse("ipv6: services: ", link(func(l *Link) { l.IPv6.Services = netip.MustParsePrefix(bad) }))
		refuse("ipv6: taken: ", link(func(l *Link) { l.IPv6.Taken[0] = netip.MustParsePrefix(bad) }))
	}
	for _, bad := range []string{"10.42.255.2", "fe80::1%eth0", "2001:cafe:42:ff::2%" + strings.Repeat("z", 1000), "2600::1"} {
		refuse("ipv6: at: ", link(func(l *Link) { l.IPv6.At = netip.MustParseAddr(bad) }))
	}
	refuse("ipv6: at: ", link(func(l *Link) { l.IPv6.At = netip.Addr{} }))

	refuse("contract ID", &refs{{"x", 1, contract.Provider, api.StateConnected, nil}})
	refuse("revision", &refs{{"a1b2c3d4e5f6g7h8", 0, contract.Provider, api.StateConnected, nil}})
	refuse("role", &refs{{"a1b2c3d4e5f6g7h8", 1, "witness", api.StateConnected, nil}})
	refuse("state", &refs{{"a1b2c3d4e5f6g7h8", 1, contract.Provider, "married", nil}})
	refuse("in -1 s", &refs{{"a1b2c3d4e5f6g7h8", 1, contract.Provider, api.StateConnected, &Lowering{In: -1}}})
	refuse("in 2592001 s", &refs{{"a1b2c3d4e5f6g7h8", 1, contract.Provider, api.StateConnected, &Lowering{In: 2592001}}})
	refuse("resources: cpu", &refs{{"a1b2c3d4e5f6g7h8", 1, contract.Provider, api.StateConnected, &Lowering{Resources: map[string]string{"cpu": "1e999999999"}}}})
	tooMany := make(refs, 257)
	refuse("257", &tooMany)

	refuse("type", &Notice{})
	refuse("contract ID", &Notice{Type: NoticeContractEnded, Contract: "../.."})
	refuse("request ID", &Opened{ID: "a/b", Commitment: make([]byte, 32)})
	refuse("why", &Notice{Type: NoticeBye, Why: "\n"})
	refuse("state", &Supply{State: "plenty"})
	refuse("why", &Supply{State: SupplyNothing, Why: strings.Repeat("x", maxReason+1)})
	refuse("cpu", &Supply{State: SupplySome, Resources: map[string]string{"cpu": "1e-99999999"}})
	refuse("commitment", &Opened{ID: "a", Commitment: make([]byte, 31)})
	refuse("request ID", &Opened{ID: "../hello", Commitment: make([]byte, 32)})
	refuse("nonce", &Asking{Nonce: make([]byte, 31), Question: someQuestion()})
	refuse("name", &Asking{Nonce: make([]byte, 32)})
	refuse("nonce", &Revealed{ID: "a", Nonce: make([]byte, 33)})
	refuse("request ID", &Revealed{ID: "../hello", Nonce: make([]byte, 32)})
	refuse("code", &Problem{Message: "x"})
}

func TestAProblemFromAPeerIsFitToBeShown(t *testing.T) {
	p := &Problem{Code: "x", Message: "\x1b[2J" + strings.Repeat("é", 400), Do: "a\nb\xff"}
	must(t, p.Validate())
	if !wire.Printable(p.Message) || len(p.Message) > 512 || p.Do != "a?b?" {
		t.Errorf("%q %q", p.Message, p.Do)
	}
}

// FuzzDecode feeds each type, numbered in the order of their names, with what the fuzzer makes of good messages.
func FuzzDecode(f *testing.F) {
	good := messages()
	names := slices.Sorted(maps.Keys(good))
	for i, name := range names {
		data, err := json.Marshal(good[name])
		must(f, err)
		f.Add(byte(i), data)
		f.Add(byte(i), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		kind := good[names[int(which)%len(names)]]
		m := blank(kind)
		var err error
		wiretest.Within(t, len(data), func() { err = decode("application/json", bytes.NewReader(data), m) })
		if err != nil {
			if !wire.Printable(problemOf(err).Message) {
				t.Fatalf("the problem cannot be shown: %q", err)
			}
			return
		}
		// What was taken can be sent, and is taken again.
		again, err := json.Marshal(m)
		must(t, err)
		if err := unmarshal(again, blank(kind)); err != nil {
			t.Fatalf("%q is taken, but not %q: %v", data, again, err)
		}
	})
}
