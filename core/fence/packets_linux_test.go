package fence

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

func ranges(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// twoTenants: alice with two guests and the internet, dora with one and without; the owner has pods at a third.
func twoTenants() Relations {
	return Relations{
		Tenants: []Tenant{
			{Consumer: "alice", Internet: true, Home: ranges("10.76.0.0/16"), Guests: []Guest{{UID: "uid-web1"}, {UID: "uid-web2"}}},
			{Consumer: "dora", Home: ranges("10.77.0.0/16"), Guests: []Guest{{UID: "uid-dora"}}},
		},
		Providers: []Provider{{Peer: "bea", Ranges: ranges("10.78.0.0/16"), Pods: addrs(provider)}},
	}
}

func TestGuestsReachTheirOwnAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.expect("web1", hostLAN, open) // there is no fence yet: what is closed below is closed by it
	w.expect("web1", ownPod, open)
	w.expect("web1", neighbour, open)
	w.expect("web1", doraHome, open)
	w.must(w.fence.Set(twoTenants()))
	for _, c := range []struct {
		from, to string
		want     outcome
	}{
		{"web1", web2, open}, {"web2", web1, open}, // its own tenant
		{"web1", "10.43.5.6", open}, // and by a service
		{"web1", aliceHome, open}, {"dora", doraHome, open},
		{"web1", internet, open},
		{"web1", "10.43.0.10:53", open}, {"web1", "udp:10.43.0.10:53", open},

		{"web1", hostLAN, rejected}, {"web1", nodeIP, rejected}, {"web1", bridge, rejected}, {"web1", "10.42.255.129", rejected}, {"web1", "10.42.255.2", rejected},
		{"web1", nodeIP + ":10053", rejected}, // DNS itself, but not asked for as DNS
		{"web1", neighbour, rejected}, {"web1", router, rejected}, {"web1", office, rejected},
		{"web1", ownPod, rejected}, {"web1", "10.43.5.5", rejected},
		{"web1", "169.254.169.254", rejected}, {"web1", "192.168.1.1", rejected}, {"web1", "172.16.0.1", rejected}, {"web1", "10.9.9.9", rejected}, {"web1", "100.64.0.1", rejected},
		{"web1", hostLAN + ":8081", rejected}, {"dora", hostLAN + ":8080", rejected}, // ports of the laptop that lead to the owner's pod, and to another tenant's guest
		{"web1", dora, rejected}, {"dora", web1, rejected},
		{"web1", doraHome, rejected}, {"web1", provider, rejected}, {"dora", aliceHome, rejected},
		{"dora", internet, rejected}, // by the policy
		{"dora", "udp:10.43.0.10:53", open},

		{"own", web1, open}, {"host", web1, open}, {"host", dora, open}, // the owner, and the kubelet's probes
		{"own", neighbour, open}, {"own", internet, open}, {"own", hostLAN, open}, {"own", "10.43.5.6", open}, // pods of the owner as ever
		{"own", "udp:10.43.0.10:53", open}, {"neighbour", hostLAN, open}, {"host", aliceHome, open},
		{"own", provider, open}, {"own", aliceHome, rejected},
	} {
		w.expect(c.from, c.to, c.want)
	}
}

// far tries from an address behind the tunnel.
func (w *world) far(source, to string) (got outcome) {
	w.t.Helper()
	w.in("far", func() error {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		c, err := d.Dial("tcp", to+":80")
		if err != nil {
			got = silent
			return nil
		}
		c.Close()
		got = open
		return nil
	})
	return got
}

func TestThroughTheTunnelEveryoneReachesOnlyWhatIsHis(t *testing.T) {
	w := newWorld(t)
	if got := w.far(aliceHome, ownPod); got != open {
		t.Fatalf("without a fence: %s", got)
	}
	w.must(w.fence.Set(twoTenants()))
	for _, c := range []struct {
		source, to string
		want       outcome
	}{
		{aliceHome, web1, open}, {aliceHome, web2, open}, {doraHome, dora, open},
		{aliceHome, ownPod, silent}, {aliceHome, dora, silent}, {doraHome, web1, silent}, {aliceHome, newcomer, silent},
		{aliceHome, nodeIP, silent}, {aliceHome, bridge, silent}, {aliceHome, neighbour, silent},
		{provider, ownPod, open}, {provider, nodeIP, open}, // pods of ours that run there; the gateway picks the ports
		{provider, web1, silent},
	} {
		if got := w.far(c.source, c.to); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.source, c.to, got, c.want)
		}
	}
}

// both: alice consumes here, and this cluster has a pod at alice's.
func both() Relations {
	rel := twoTenants()
	rel.Providers = append(rel.Providers, Provider{Peer: "alice", Ranges: ranges("10.76.0.0/16"), Pods: addrs(ownAtAlice)})
	return rel
}

func TestWhoConsumesAndProvidesReachesOwnPodsOnlyAsTheOwnersPodsThere(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(both()))
	for _, c := range []struct {
		source, to string
		want       outcome
	}{
		{ownAtAlice, ownPod, open}, {ownAtAlice, nodeIP, open}, // the gateway picks the ports
		{aliceHome, ownPod, silent}, {aliceHome, nodeIP, silent}, {aliceHome, bridge, silent},
		{aliceHome, web1, open}, {ownAtAlice, neighbour, silent}, {ownAtAlice, dora, silent},
		{doraHome, ownPod, silent},
	} {
		if got := w.far(c.source, c.to); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.source, c.to, got, c.want)
		}
	}
	w.expect("own", ownAtAlice, open)
	w.expect("own", aliceHome, open) // an answer comes back; whom it reaches there is for alice's fence to say

	rel := both()
	rel.Providers[1].Pods = nil // it ended: its address may be another's by now
	w.must(w.fence.Set(rel))
	if got := w.far(ownAtAlice, ownPod); got != silent {
		t.Errorf("what was the address of an own pod at alice's reaches an own pod: %s", got)
	}
}

func TestNobodyOfTheLANReachesGuests(t *testing.T) {
	w := newWorld(t)
	w.route("neighbour", "10.43.0.0/16", hostLAN)
	for _, to := range []string{web1, "10.43.5.6"} {
		w.expect("neighbour", to, open) // without a fence
	}
	w.must(w.fence.Set(twoTenants()))
	for _, to := range []string{web1, newcomerIP, "10.43.5.6"} {
		w.expect("neighbour", to, silent)
	}
	w.expect("neighbour", hostLAN+":8080", open) // a port that was opened for a guest
	w.address("neighbour", "lo", "10.42.0.99/32")
	var got error
	w.in("neighbour", func() error {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.42.0.99")}}
		_, got = d.Dial("tcp", web1+":80")
		return nil
	})
	if got == nil {
		t.Error("the LAN reached a guest as a pod of the owner")
	}
}

func TestGuestNobodyKnowsYetHasOnlyDNS(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Raise())
	for _, from := range []string{"newcomer", "web1"} {
		for _, to := range []string{hostLAN, nodeIP, ownPod, neighbour, internet, aliceHome, web2} {
			w.expect(from, to, silent)
		}
		w.expect(from, "udp:10.43.0.10:53", open)
	}
	w.expect("own", internet, open)
	w.expect("host", "10.42.255.133", open)
	w.must(w.fence.Set(twoTenants()))
	w.expect("newcomer", internet, silent)
	w.expect("newcomer", aliceHome, silent)
}

func TestForgedSourceGetsNowhere(t *testing.T) {
	w := newWorld(t)
	heard := func(source string) bool {
		p := w.listen("web2")
		defer p.Close()
		w.in("dora", func() error {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}
			c, err := d.Dial("udp", web2+":7777")
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("forged"))
			return err
		})
		_ = p.SetReadDeadline(time.Now().Add(patience))
		_, _, err := p.ReadFrom(make([]byte, 16))
		return err == nil
	}
	sources := []string{ownPod, web1, aliceHome}
	for _, source := range sources {
		w.address("dora", "lo", source+"/32")
		if !heard(source) {
			t.Fatalf("without a fence, %s was not heard", source)
		}
	}
	w.must(w.fence.Set(twoTenants()))
	for _, source := range sources {
		if heard(source) {
			t.Errorf("dora's guest was heard by alice's as %s", source)
		}
	}
}

func (w *world) listen(place string) (p net.PacketConn) {
	w.in(place, func() (err error) {
		p, err = net.ListenPacket("udp", ":7777")
		return err
	})
	return p
}

func TestIPv6OfGuestsIsDropped(t *testing.T) {
	w := newWorld(t)
	reach := func() (err error) {
		var local string
		h := w.net("host")
		l, _ := h.LinkByName("vweb1")
		for range 50 { // until the address is past duplicate detection
			addrs, _ := h.AddrList(l, unix.AF_INET6)
			for _, a := range addrs {
				if a.Flags&unix.IFA_F_TENTATIVE == 0 {
					local = a.IP.String()
				}
			}
			if local != "" {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if local == "" {
			t.Skip("there is no IPv6 here")
		}
		w.in("web1", func() error {
			var c net.Conn
			if c, err = net.DialTimeout("tcp", "["+local+"%eth0]:80", time.Second); err == nil {
				c.Close()
			}
			return nil
		})
		return err
	}
	err := reach()
	for range 50 { // the guest's own address is checked for duplicates as well
		if err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
		err = reach()
	}
	if err != nil {
		t.Fatalf("without a fence: %v", err)
	}
	w.must(w.fence.Raise())
	if reach() == nil {
		t.Error("a guest reached the host by IPv6")
	}
}

// ping asks an address for an answer (ICMP), from one of a place's own.
func (w *world) ping(place, from, to string) (answered bool) {
	w.t.Helper()
	w.in(place, func() error {
		c, err := icmp.ListenPacket("ip4:icmp", from)
		if err != nil {
			return err
		}
		defer c.Close()
		ask, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Data: []byte("kith")}}).Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(ask, &net.IPAddr{IP: net.ParseIP(to)}); err != nil {
			return nil // there is no way
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		for b := make([]byte, 200); ; {
			n, who, err := c.ReadFrom(b)
			if err != nil {
				return nil
			}
			m, err := icmp.ParseMessage(unix.IPPROTO_ICMP, b[:n])
			if answered = err == nil && m.Type == ipv4.ICMPTypeEchoReply && who.String() == to; answered {
				return nil
			}
		}
	})
	return answered
}

// TestWhatMayBePinged: whether a laptop's addresses in the pods' range are there is no secret, to guests or through the tunnel.
func TestWhatMayBePinged(t *testing.T) {
	w := newWorld(t)
	for _, to := range []string{hostLAN, neighbour, ownPod, doraHome, web1} {
		if !w.ping("newcomer", newcomerIP, to) {
			t.Fatalf("without a fence %s does not answer", to)
		}
	}
	w.must(w.fence.Set(twoTenants()))
	for _, c := range []struct {
		place, from, to string
		answers         bool
	}{
		{"web1", web1, nodeIP, true}, {"web1", web1, "10.42.255.129", true}, {"web1", web1, bridge, true}, {"newcomer", newcomerIP, nodeIP, true},
		{"web1", web1, web2, true}, {"web1", web1, internet, true},
		{"web1", web1, hostLAN, false}, {"web1", web1, router, false}, {"web1", web1, neighbour, false}, {"web1", web1, ownPod, false},
		{"web1", web1, dora, false}, {"web1", web1, doraHome, false}, {"newcomer", newcomerIP, hostLAN, false}, {"newcomer", newcomerIP, internet, false},
		{"dora", dora, internet, false},
		{"far", aliceHome, nodeIP, true}, {"far", aliceHome, web1, true},
		{"far", aliceHome, ownPod, false}, {"far", aliceHome, dora, false},
	} {
		if got := w.ping(c.place, c.from, c.to); got != c.answers {
			t.Errorf("%s pings %s: answered %t, want %t", c.from, c.to, got, c.answers)
		}
	}
}

func TestChangeOfPolicyHoldsForOpenConnections(t *testing.T) {
	w := newWorld(t)
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	var c net.Conn
	w.in("web1", func() (err error) {
		c, err = net.Dial("tcp", internet+":80")
		return err
	})
	defer c.Close()
	say := func() error {
		_ = c.SetDeadline(time.Now().Add(2 * patience))
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 16))
		return err
	}
	if err := say(); err != nil {
		t.Fatal(err)
	}
	rel.Tenants[0].Internet = false
	w.must(w.fence.Set(rel))
	if say() == nil {
		t.Error("the connection goes on")
	}
	rel.Tenants[0].Internet = true
	w.must(w.fence.Set(rel))
	w.expect("web1", internet, open)
}

func TestAnswersAndErrorsComeBack(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	// A router on the way asks for smaller packets: the guest must hear it.
	h := w.net("host")
	kith0, err := h.LinkByName("kith0")
	w.must(err)
	w.must(h.LinkSetMTU(kith0, 1000))
	var got error
	w.in("web1", func() error {
		d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			})
		}}
		c, err := d.Dial("udp", aliceHome+":10053")
		if err != nil {
			return err
		}
		defer c.Close()
		for range 5 {
			if _, got = c.Write(make([]byte, 1200)); got != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	if got == nil || !strings.Contains(got.Error(), "message too long") {
		t.Errorf("the guest did not hear of the path MTU: %v", got)
	}
}
