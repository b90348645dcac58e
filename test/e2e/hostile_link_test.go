//go:build lab

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"kith.dev/core/gateway"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/test/lab"
)

// TestHostileLinkDrawsNoTraffic: a consumer with its real key and contract tells its provider, by hand, of ranges that are
// not its pods'. What the provider sends there goes on its way, and the tunnel that there was stays.
func TestHostileLinkDrawsNoTraffic(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "6")
	me, err := identity.Load(alice.Path("/var/lib/kith/identity"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := gateway.LoadKey(alice.Path("/var/lib/kith/wireguard.key"))
	if err != nil {
		t.Fatal(err)
	}
	link := func() string {
		return kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.network.theirs}{.status.network.ours}")
	}
	before := link()
	target := "172.20.1.1" // a server of bob's office, reached by its router
	route := func() string {
		out, stderr, err := bob.Exec(t.Context(), "ip", "route", "get", target)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		return out
	}
	if strings.Contains(route(), "kith0") {
		t.Fatalf("before anything was said: %s", route())
	}
	pods := func(p string) []peering.Range {
		return []peering.Range{{Name: "pods", Prefix: netip.MustParsePrefix(p)}}
	}
	beside := append(pods("10.42.0.0/16"), peering.Range{Name: "x", Prefix: netip.MustParsePrefix("172.16.0.0/12")})
	for _, lie := range []struct {
		what   string
		ranges []peering.Range
		no     bool // else an alias is found, elsewhere
	}{
		{"a range beside the pods'", beside, true},
		{"pods in the office's range", pods("172.16.0.0/12"), false},
		{"pods in all of 172/8", pods("172.0.0.0/8"), true},
	} {
		code, text := putLink(t, alice, bob, me, peering.Link{
			PublicKey: key.Public().String(), Port: 6450, Ranges: lie.ranges, Aliases: pods("10.99.0.0/16"),
		})
		t.Logf("%s: %d %s", lie.what, code, text)
		if lie.no && (code != http.StatusBadRequest || !strings.Contains(text, "range")) || code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", lie.what, code, text)
		}
		if out := route(); strings.Contains(out, "kith0") {
			t.Errorf("%s: what bob sends to %s goes to alice: %s", lie.what, target, out)
		}
	}
	if after := link(); after != before {
		t.Errorf("bob's side of the link was %s, is %s", before, after)
	}
	eventually(t, 10*time.Second, "the refusals are on bob's record", func() string {
		var log bytes.Buffer
		if err := bob.Logs(t.Context(), &log, "kithd", false); err != nil {
			return err.Error()
		}
		if !strings.Contains(log.String(), "msg=refused door=peer-api peer=alice") {
			return "no line of the log says so"
		}
		return ""
	})
}

// TestAliasesAreChosenAnew: a laptop comes to a network of the addresses by which it sees its peer, as provider and as
// consumer. It sends there as anybody would, sees the peer by others, and the peer's pods are reached as before.
func TestAliasesAreChosenAnew(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "6")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, solo("away", "kith-bob"))
	waitReady(t, alice, 1, "-n", "shop")
	network := func(at *lab.Laptop, of, what string) string {
		return kubectl(t, at, "get", "peer", of, "-o", "jsonpath={.status.network."+what+"[0].alias}")
	}
	for _, one := range []struct{ mover, other *lab.Laptop }{{bob, alice}, {alice, bob}} {
		was := network(one.mover, one.other.Name(), "theirs")
		gateway := func() string { // of the other, as the mover sees it
			b := netip.MustParsePrefix(network(one.mover, one.other.Name(), "theirs")).Addr().As4()
			return netip.AddrFrom4([4]byte{b[0], b[1], 255, 2}).String()
		}
		reached := func() string {
			if err := echo(one.mover, gateway()); err != nil {
				return err.Error()
			}
			return ""
		}
		eventually(t, 10*time.Second, one.mover.Name()+" reaches "+one.other.Name(), reached)
		inside := netip.MustParsePrefix(was).Addr().As4()
		lan := netip.PrefixFrom(netip.AddrFrom4([4]byte{inside[0], inside[1], 7, 1}), 16) // with the alias's own mask
		if _, stderr, err := one.mover.Exec(t.Context(), "ip", "address", "add", lan.String(), "dev", "eth0"); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		took := eventually(t, 20*time.Second, one.mover.Name()+" sees "+one.other.Name()+" elsewhere, who knows", func() string {
			is, told := network(one.mover, one.other.Name(), "theirs"), network(one.other, one.mover.Name(), "ours")
			if is == was || is != told {
				return fmt.Sprintf("was %s, is %s, %s knows %s", was, is, one.other.Name(), told)
			}
			return ""
		})
		t.Logf("%s: another alias after %s", one.mover.Name(), took.Round(10*time.Millisecond))
		there := netip.AddrFrom4([4]byte{inside[0], inside[1], 200, 9}).String()
		if out, _, _ := one.mover.Exec(t.Context(), "ip", "route", "get", there); strings.Contains(out, "kith0") || !strings.Contains(out, "eth0") {
			t.Errorf("%s sends to its new network by %s", one.mover.Name(), out)
		}
		eventually(t, 10*time.Second, one.mover.Name()+" reaches "+one.other.Name()+" again", reached)
		eventually(t, 10*time.Second, "alice reaches her pod abroad, at the address it has now", func() string {
			ip := kubectl(t, alice, "-n", "shop", "get", "pod", "away", "-o", "jsonpath={.status.podIP}")
			if at := network(alice, "bob", "theirs"); !netip.MustParsePrefix(at).Contains(netip.MustParseAddr(ip)) {
				return fmt.Sprintf("it is said to be at %s, bob is seen at %s", ip, at)
			}
			if err := echo(alice, ip); err != nil {
				return fmt.Sprintf("at %s: %v", ip, err)
			}
			return ""
		})
	}
}

// echo asks an address for an answer (ICMP), from a laptop.
func echo(from *lab.Laptop, to string) error {
	return from.InNetwork(func() error {
		c, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		if err != nil {
			return err
		}
		defer c.Close()
		ask := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 0x6b67, Seq: 1, Data: []byte("kith")}}
		b, err := ask.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(b, &net.IPAddr{IP: net.ParseIP(to)}); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		for b = make([]byte, 1500); ; {
			n, who, err := c.ReadFrom(b)
			if err != nil {
				return err
			}
			m, err := icmp.ParseMessage(1, b[:n])
			if err == nil && m.Type == ipv4.ICMPTypeEchoReply && who.String() == to {
				return nil
			}
		}
	})
}

// putLink has somebody with a laptop's key and network say a link by hand.
func putLink(t *testing.T, from, to *lab.Laptop, as *identity.Identity, link peering.Link) (code int, text string) {
	t.Helper()
	var status struct{ ID string }
	if err := json.Unmarshal([]byte(kith(t, to, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	id, err := identity.ParseID(status.ID)
	if err != nil {
		t.Fatal(err)
	}
	at, err := to.Address()
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			tcp, err := from.Dial(ctx, "tcp", net.JoinHostPort(at.String(), "6450"))
			if err != nil {
				return nil, err
			}
			config := as.ClientTLS(id)
			config.NextProtos = []string{"http/1.1"}
			conn := tls.Client(tcp, config)
			return conn, conn.HandshakeContext(ctx)
		},
	}}
	body, err := json.Marshal(link)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("https://peer/%s/link", peering.Protocol), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(said)
}
