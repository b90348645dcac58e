package datapath

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"kith.dev/core/net/netplan"
)

// sharing: bob shares a pod with alice, under an address in her range there, and has dave's guests too. All have the same pods.
func sharing() *Table {
	space := prefixes("10.42.0.0/16", "10.128.0.0/24")
	return New(testHost("10.127.0.1/32", "10.127.4.1/32"), []Peer{
		{Pair: netplan.Pair{
			Here: prefix("10.127.0.0/24"), Space: space, Aliases: []netplan.Mapping{testMapping("10.42.0.0/16", "10.70.0.0/16"), testMapping("10.128.0.0/24", "10.71.9.0/24")},
			Shared: []netplan.Shared{{As: netip.MustParseAddr("10.127.0.200"), Pod: netip.MustParseAddr("10.42.0.7")}},
		}, MTU: 1400, Up: up()},
		{Pair: netplan.Pair{Here: prefix("10.127.4.0/24"), Space: space[:1]}, MTU: 1400, Up: up()},
	})
}

func TestASharedPodIsReachedByTheAddressOfItsPeer(t *testing.T) {
	bob := sharing()
	for _, c := range []struct{ src, arrived, back string }{
		{"10.42.0.7", "10.70.0.7 > 10.42.0.7", "10.127.0.200 > 10.42.0.7"}, // a pod at home with the very address
		{"10.128.0.9", "10.71.9.9 > 10.42.0.7", "10.127.0.200 > 10.128.0.9"},
	} {
		for _, proto := range []byte{protoTCP, protoUDP} {
			payload := udpSegment(40000, 80, []byte("hello"))
			if proto == protoTCP {
				payload = tcpSegment(16, nil, []byte("hello"))
			}
			p, v := arrive(bob, sentBy(aliceAndBob, ipv4Packet(c.src, "10.127.0.200", proto, payload)))
			if v != Pass {
				t.Fatalf("%s: %s", c.src, verdictNames[v])
			}
			check(t, "it arrives", p, c.arrived)
			answer := ipv4Packet("10.42.0.7", addressAt(p, atSource).String(), proto, payload)
			b, v := leave(bob, answer)
			if v != Pass {
				t.Fatalf("the answer to %s: %s", c.src, verdictNames[v])
			}
			check(t, "the answer leaves", b[Header:], c.back)
		}
	}
}

// TestErrorsAboutSharedPodsQuoteWhatTheirReaderSent: who gets an error finds its socket by what it quotes.
func TestErrorsAboutSharedPodsQuoteWhatTheirReaderSent(t *testing.T) {
	bob := sharing()
	sent := ipv4Packet("10.42.0.5", "10.127.0.200", protoUDP, udpSegment(40000, 80, []byte("hello")))
	arrived, v := arrive(bob, sentBy(aliceAndBob, bytes.Clone(sent)))
	if v != Pass {
		t.Fatal(verdictNames[v])
	}
	b, v := leave(bob, ipv4Packet("10.42.0.7", "10.70.0.5", protoICMP, icmpMessage(3, arrived)))
	if v != Pass {
		t.Fatal(verdictNames[v])
	}
	check(t, "the error leaves", b[Header:], "10.127.0.200 > 10.42.0.5")
	if quote := b[Header+28:]; addresses(quote) != addresses(sent) || binary.BigEndian.Uint16(quote[10:]) != binary.BigEndian.Uint16(sent[10:]) {
		t.Errorf("it quotes %s, sent was %s", addresses(quote), addresses(sent))
	}
}

func TestNothingButSharedPodsIsShared(t *testing.T) {
	bob := sharing()
	udp := udpSegment(40000, 80, []byte("hello"))
	for what, c := range map[string]struct {
		src, dst string
		want     Verdict
	}{
		"from nobody she has":        {"10.50.0.1", "10.127.0.200", dropSender},
		"as her guest":               {"10.127.0.9", "10.127.0.200", dropSender},
		"by its alias":               {"10.42.0.5", "10.70.0.7", dropDestination},
		"the pod by its own address": {"10.42.0.5", "10.42.0.7", dropSender},
		"a guest beside it":          {"10.42.0.5", "10.127.0.201", Pass},
	} {
		if _, v := arrive(bob, sentBy(aliceAndBob, ipv4Packet(c.src, c.dst, protoUDP, udp))); v != c.want {
			t.Errorf("%s: %s, want %s", what, verdictNames[v], verdictNames[c.want])
		}
	}
	if _, v := arrive(bob, sentBy("10.127.4.0/24", ipv4Packet("10.42.0.5", "10.127.0.200", protoUDP, udp))); v != dropDestination {
		t.Errorf("from dave: %s", verdictNames[v])
	}
	for what, c := range map[string]struct{ src, dst string }{
		"another pod of bob's": {"10.42.0.8", "10.70.0.5"}, "a guest": {"10.127.0.9", "10.70.0.5"}, "the host": {"10.42.0.1", "10.70.0.5"},
		"an address behind the alias": {"10.42.0.7", "10.71.0.5"},
	} {
		if _, v := leave(bob, ipv4Packet(c.src, c.dst, protoUDP, udp)); v == Pass {
			t.Errorf("%s to alice's pod: passed", what)
		}
	}
}
