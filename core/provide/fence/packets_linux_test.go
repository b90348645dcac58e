package fence

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// twoTenants: alice with the internet, dora without; both have the addresses of this cluster. Alice has guests at another provider, in a
// range that this cluster has at bea's. Guests of this cluster are at bea's and carol's.
func twoTenants() Relations {
	return Relations{
		Tenants: []Tenant{
			{Consumer: "alice", Internet: true, Home: ranges("10.42.0.0/16", atBea), Guests: ranges(alices)},
			{Consumer: "dora", Home: ranges("10.42.0.0/16"), Guests: ranges(doras)},
		},
		Providers: []Provider{{Peer: "bea", Guests: netip.MustParsePrefix(atBea)}, {Peer: "carol", Guests: netip.MustParsePrefix(atCarol)}},
	}
}

func TestGuestsReachTheirOwnAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.expect("web1", hostLAN, "host") // there is no fence yet: what is closed below is closed by it
	w.expect("web1", neighbour, "neighbour")
	w.expect("web1", job, "job")
	w.expect("newcomer", ownPod, "own")
	w.must(w.fence.Set(twoTenants()))
	var tries []try
	for _, c := range []struct {
		from, to string
		want     outcome
	}{
		{"web1", web2, "web2"}, {"web2", web1, "web1"}, {"web1", "udp:" + web2 + ":10053", "web2"}, // its own tenant
		{"web1", "10.43.8.6", "web2"}, {"web1", "10.43.5.5", "alice"}, {"job", "10.43.5.5", "dora"}, // and by services of its home, and not of the owner's
		{"web1", "10.43.5.7", silent}, {"job", "10.43.8.6", silent}, {"job", "10.43.5.6", silent},
		{"web1", web1, "web1"},
		// Its home, which has addresses that pods here, this laptop and others' guests have.
		{"web1", homePod, "alice"}, {"web1", homeOther, "alice"}, {"web1", "udp:" + homePod + ":10053", "alice"}, {"job", homePod, "dora"},
		{"web1", nodeIP, "alice"}, {"web1", gatewayIP, "alice"}, {"job", nodeIP, "dora"},
		{"web1", nodeIP + ":10053", "alice"}, // DNS of this laptop, but not asked for as DNS
		{"web1", beas, "alice"},              // its like at another provider, and not ours at bea's
		{"web1", internet, "router"},
		{"web1", "10.43.0.10:53", "host"}, {"web1", "udp:10.43.0.10:53", "host"},

		{"web1", hostLAN, rejected}, {"web1", gateway1, rejected}, {"web1", gateway2, rejected},
		{"web1", neighbour, rejected}, {"web1", router, rejected}, {"web1", office, rejected},
		{"web1", "169.254.169.254", rejected}, {"web1", "192.168.1.1", rejected}, {"web1", "172.16.0.1", rejected}, {"web1", "10.9.9.9", rejected}, {"web1", "100.64.0.1", rejected},
		{"web1", hostLAN + ":8081", rejected}, {"web1", hostLAN + ":8080", rejected}, {"job", hostLAN + ":8080", rejected}, // ports of the laptop
		{"web1", job, rejected}, {"job", web1, rejected},
		{"web1", carols, rejected}, {"job", beas, rejected}, {"web1", newcomerIP, rejected},
		{"job", internet, rejected}, // by the policy
		{"job", "udp:10.43.0.10:53", "host"},

		{"own", web1, "web1"}, {"own", job, "job"}, {"own", "udp:" + web1 + ":10053", "web1"}, {"host", web1, "web1"}, {"host", job, "job"}, // the owner, and the kubelet's probes
		{"own", neighbour, "neighbour"}, {"own", internet, "router"}, {"own", hostLAN, "host"}, {"own", "10.43.5.6", "web2"}, // pods of the owner as ever
		{"own", "udp:10.43.0.10:53", "host"}, {"neighbour", hostLAN, "host"}, {"own", nodeIP, "host"},
		{"own", beas, "bea"}, {"own", carols, "carol"}, {"host", beas, "bea"}, {"host", "udp:" + carols + ":10053", "carol"},
		{"own", strayPeer, rejected},
	} {
		tries = append(tries, try{c.from, "", c.to, c.want})
	}
	w.expectAll(tries...)
}

// Who asks for a pod that ended is told so, and not kept waiting.
func TestAnAddressThatNoGuestHasIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	var tries []try
	for _, c := range []struct {
		from, source string
		want         outcome
	}{
		{"web1", "", refused}, {"own", "", rejected}, {"host", "", rejected}, {"alice", homePod, refused}, {"alice", beas, refused},
		{"job", "", rejected}, {"newcomer", "", silent}, {"carol", carols, silent}, {"neighbour", "", rejected},
	} {
		tries = append(tries, try{c.from, c.source, absent1, c.want})
	}
	w.expectAll(tries...)
	w.expect("web1", "udp:"+absent1+":10053", rejected)
	h := w.net("host")
	kith0, err := h.LinkByName("kith0")
	w.must(err)
	w.must(h.LinkSetDown(kith0)) // its routes go too, and the default route would take what is for it
	w.address("router", "lo", absent1+"/32")
	w.expect("web1", absent1, refused)
	w.expect("own", absent1, silent)
}

func TestThroughTheTunnelEveryoneReachesOnlyWhatIsHis(t *testing.T) {
	w := newWorld(t)
	closed := []struct{ from, source, place, to string }{
		{"alice", homeOther, "own", ownOther}, {"alice", homeOther, "host", bridge}, {"alice", homeOther, "host", hostLAN}, {"alice", homeOther, "neighbour", neighbour},
		{"alice", homeOther, "newcomer", newcomerIP}, {"alice", homeOther, "host", gateway1},
		{"bea", beas, "neighbour", neighbour}, {"bea", beas, "job", job}, {"bea", beas, "host", gateway1},
		{"carol", carols, "web1", web1}, {"carol", carols, "job", job}, {"carol", strayPeer, "own", ownPod}, {"carol", strayPeer, "host", nodeIP}, {"carol", strayPeer, "bea", beas},
		{"bea", beas, "host", nodeIP}, // by UDP
	}
	for _, c := range closed {
		if w.flood(c.from, c.source, c.place, c.to, 1, 1) != 1 {
			t.Fatalf("without a fence, from %s at %s to %s: not heard", c.source, c.from, c.to)
		}
	}
	w.must(w.fence.Set(twoTenants()))
	var done sync.WaitGroup
	for _, c := range closed {
		done.Go(func() {
			if w.flood(c.from, c.source, c.place, c.to, 1, 0) != 0 {
				t.Errorf("from %s at %s to %s: heard", c.source, c.from, c.to)
			}
		})
	}
	done.Wait()
	w.expectAll([]try{
		{"alice", homePod, web1, "web1"}, {"alice", nodeIP, web2, "web2"}, {"dora", homePod, job, "job"},
		{"alice", beas, web1, "web1"},                                  // her guest elsewhere
		{"bea", beas, ownPod, "own"}, {"carol", carols, ownPod, "own"}, // pods of ours that run there,
		{"bea", beas, nodeIP, "host"},                                  // for which the gateway picks the ports
		{"bea", beas, nodeIP + ":30080", silent},                       // that of no service
		{"bea", beas, carols, "carol"}, {"carol", carols, beas, "bea"}, // each other
		{"alice", homeOther, carols, silent}, // nor has the kernel a way for that
	}...)
}

// both: alice consumes here, and this cluster has pods at alice's.
func both() Relations {
	rel := twoTenants()
	rel.Providers = append(rel.Providers, Provider{Peer: "alice", Guests: netip.MustParsePrefix(atAlice)})
	return rel
}

func TestWhoConsumesAndProvidesReachesOwnPodsOnlyAsTheOwnersPodsThere(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(both()))
	w.expectAll([]try{
		{"alice", ownThere, ownOther, "own"}, {"alice", ownThere, bridge, "host"}, // the gateway picks the ports
		{"alice", ownThere, carols, "carol"}, {"carol", carols, ownThere, "alice"},
		{"alice", homeOther, ownOther, silent}, {"alice", homeOther, bridge, silent},
		{"alice", homePod, web1, "web1"}, {"alice", ownThere, neighbour, silent}, {"alice", ownThere, job, silent}, {"alice", ownThere, web1, silent},
		{"own", ownOther, ownThere, "alice"},
		{"web1", "", ownThere, rejected}, {"web1", "", homePod, "alice"},
	}...)
	w.must(w.fence.Set(twoTenants())) // the contract ended
	w.expectAs("alice", ownThere, ownOther, silent)
	w.expect("own", ownThere, rejected)
}

func TestNobodyOfTheLANReachesGuests(t *testing.T) {
	w := newWorld(t)
	w.route("neighbour", "10.43.0.0/16", hostLAN)
	for _, to := range []string{web1, "10.43.5.6"} {
		w.expect("neighbour", to, open) // without a fence
	}
	w.address("neighbour", "lo", "10.42.0.99/32")
	w.address("neighbour", "lo", web1+"/32")
	forged := []struct{ source, place, to string }{{"10.42.0.99", "web2", web2}, {web1, "web2", web2}, {web1, "alice", homeOther}, {web1, "alice", beas}}
	for _, f := range forged {
		if w.flood("neighbour", f.source, f.place, f.to, 1, 1) != 1 {
			t.Fatalf("without a fence, from the LAN as %s to %s: not heard", f.source, f.to)
		}
	}
	w.must(w.fence.Set(twoTenants()))
	w.expectAll(try{"neighbour", "", web2, silent}, try{"neighbour", "", newcomerIP, silent}, try{"neighbour", "", "10.43.5.6", silent},
		try{"neighbour", "", hostLAN + ":8080", "web2"}) // a port that was opened for a guest
	var done sync.WaitGroup
	for _, f := range forged {
		done.Go(func() {
			if w.flood("neighbour", f.source, f.place, f.to, 1, 0) != 0 {
				t.Errorf("the LAN as %s was heard at %s", f.source, f.to)
			}
		})
	}
	done.Wait()
}

func TestGuestNobodyKnowsYetHasOnlyDNS(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Raise())
	tries := []try{{"own", "", internet, open}, {"host", "", newcomerIP, "newcomer"}}
	for _, from := range []string{"newcomer", "web1"} {
		for _, to := range []string{hostLAN, nodeIP, ownPod, neighbour, internet, homeOther, web2, job, beas} {
			tries = append(tries, try{from, "", to, silent})
		}
		tries = append(tries, try{from, "", "udp:10.43.0.10:53", "host"})
	}
	w.expectAll(tries...)
	w.must(w.fence.Set(twoTenants()))
	w.expectAll(try{"newcomer", "", internet, silent}, try{"newcomer", "", homeOther, silent}, try{"newcomer", "", web2, silent}, try{"web1", "", web2, "web2"})
}

func TestForgedSourceGetsNowhere(t *testing.T) {
	w := newWorld(t)
	sources := []string{ownPod, web1, neighbour}
	for _, source := range sources {
		w.address("job", "lo", source+"/32")
		if w.flood("job", source, "web2", web2, 1, 1) != 1 {
			t.Fatalf("without a fence, %s was not heard", source)
		}
	}
	w.must(w.fence.Set(twoTenants()))
	for _, source := range sources {
		if w.flood("job", source, "web2", web2, 1, 0) != 0 {
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
			if c, err = net.DialTimeout("tcp", "["+local+"%"+w.zone("web1", "eth0")+"]:80", time.Second); err == nil {
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

// zone of a link by its number, for of names the net package remembers whose number they had in the place before.
func (w *world) zone(place, link string) string {
	l, err := w.net(place).LinkByName(link)
	w.must(err)
	return strconv.Itoa(l.Attrs().Index)
}

// ping asks an address for an answer (ICMP), from one of a place's own, and waits by whether one is to come.
func (w *world) ping(place, from, to string, answers bool) (answered bool) {
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
		_ = c.SetReadDeadline(time.Now().Add(within(answers)))
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

// TestWhatMayBePinged: whether the address is there that a laptop has in a range of guests, or those in its own pods' range, is no
// secret to those who have it.
func TestWhatMayBePinged(t *testing.T) {
	w := newWorld(t)
	for _, to := range []string{hostLAN, neighbour, ownPod, web1} {
		if !w.ping("newcomer", newcomerIP, to, true) {
			t.Fatalf("without a fence %s does not answer", to)
		}
	}
	w.must(w.fence.Set(twoTenants()))
	var done sync.WaitGroup
	for _, c := range []struct {
		place, from, to string
		answers         bool
	}{
		{"web1", web1, gateway1, true}, {"web1", web1, nodeIP, true}, // of its home
		{"web1", web1, web2, true}, {"web1", web1, internet, true}, {"job", job, gateway2, true},
		{"web1", web1, gateway2, false}, {"web1", web1, hostLAN, false}, {"web1", web1, router, false}, {"web1", web1, neighbour, false},
		{"web1", web1, job, false}, {"web1", web1, carols, false}, {"newcomer", newcomerIP, hostLAN, false}, {"newcomer", newcomerIP, nodeIP, false},
		{"newcomer", newcomerIP, internet, false}, {"job", job, internet, false},
		{"alice", gatewayIP, gateway1, true}, {"alice", homePod, web1, true}, {"bea", beas, nodeIP, true}, {"host", gateway1, homePod, true},
		{"host", gatewayIP, "10.65.8.1", true}, {"alice", homeOther, ownOther, false}, {"alice", homeOther, neighbour, false},
	} {
		done.Go(func() {
			if got := w.ping(c.place, c.from, c.to, c.answers); got != c.answers {
				t.Errorf("%s pings %s: answered %t, want %t", c.from, c.to, got, c.answers)
			}
		})
	}
	done.Wait()
}

func TestChangeOfPolicyHoldsForOpenConnections(t *testing.T) {
	w := newWorld(t)
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	c := w.talk("web1", internet)
	w.must(c.say(true))
	rel.Tenants[0].Internet = false
	w.must(w.fence.Set(rel))
	if c.say(false) == nil {
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
		c, err := d.Dial("udp", homePod+":10053")
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
