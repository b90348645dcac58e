package fence

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// slow lets 132 072 bytes through at once, which are 128 of pour's packets, and one more each second.
const (
	slow     = 8000
	slowOnce = (slow/8 + burst) / poured
	poured   = 20 + 8 + 1000 // bytes of a packet
)

// pour sends n packets from a place to another, and gives how many came and how many a chain of the table dropped meanwhile: all of them, together.
func (w *world) pour(from, source, place, to string, n int, chain string) (heard, dropped int) {
	w.t.Helper()
	var at net.PacketConn
	w.in(place, func() (err error) {
		at, err = net.ListenPacket("udp", net.JoinHostPort(to, "0"))
		return err
	})
	defer at.Close()
	var count atomic.Int32
	go func() {
		for buf := make([]byte, 2000); ; count.Add(1) {
			if _, _, err := at.ReadFrom(buf); err != nil {
				return
			}
		}
	}()
	before, sent := w.dropped(chain), 0
	var c *net.UDPConn
	w.in(from, func() (err error) {
		c, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(source)}, at.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer c.Close()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		heard, dropped = int(count.Load()), w.dropped(chain)-before
		switch {
		case heard+dropped == n:
			return heard, dropped
		case heard+dropped == sent: // no more at once than the listener's buffer has room for
			for range min(n-sent, 50) {
				_, err := c.Write(make([]byte, 1000))
				w.must(err)
				sent++
			}
		case time.Since(began) > patience:
			w.t.Fatalf("%s to %s: of %d packets %d were heard and %d dropped", from, to, n, heard, dropped)
		}
	}
}

var dropCount = regexp.MustCompile(`counter packets (\d+) `)

// dropped is how many packets a chain has dropped; 0 where there is none.
func (w *world) dropped(chain string) int {
	w.t.Helper()
	if !strings.Contains(w.nft("list tables"), Bandwidth) {
		return 0
	}
	_, rules, found := strings.Cut(w.nft("list table inet "+Bandwidth), "chain "+chain+" {")
	if !found {
		return 0
	}
	n, err := strconv.Atoi(dropCount.FindStringSubmatch(rules)[1])
	w.must(err)
	return n
}

// wants compares what came of 200 packets; where it is bounded, a slow machine brings some more.
func (w *world) wants(from, source, place, to, chain string, want int) {
	w.t.Helper()
	if got, dropped := w.pour(from, source, place, to, 200, chain); got < want || got > want+30 || want == 200 && dropped > 0 {
		w.t.Errorf("%s to %s: %d of 200 packets came, want %d", from, to, got, want)
	}
}

// bounding is twoTenants with alice's under a policy.
func bounding(b Bounds) Relations {
	rel := twoTenants()
	rel.Tenants[0].Bounds = b
	return rel
}

// TestWhatGuestsSendAndGetIsBounded: of all guests under the policy together, by the internet and by the tunnel; nobody else is.
func TestWhatGuestsSendAndGetIsBounded(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(bounding(Bounds{Of: "default", Ingress: slow, Egress: slow})))
	w.must(w.fence.Kept())
	w.wants("web1", web1, "router", internet, "s-default", slowOnce)
	w.wants("web2", web2, "router", internet, "s-default", 0) // there is one bound for both
	w.wants("web2", web2, "alice", homePod, "s-default", 0)
	w.wants("alice", homePod, "web1", web1, "r-default", slowOnce)
	w.wants("alice", homePod, "web2", web2, "r-default", 0)

	w.wants("web1", web1, "web2", web2, "s-default", 200) // on this machine
	w.wants("own", ownPod, "web1", web1, "r-default", 200)
	w.wants("job", job, "dora", homePod, "s-default", 200) // of another policy
	w.wants("dora", homePod, "job", job, "r-default", 200)
	w.wants("own", ownPod, "router", internet, "s-default", 200)
	w.wants("host", hostLAN, "router", internet, "s-default", 200)
	w.wants("router", internet, "host", hostLAN, "r-default", 200)
	w.expect("web1", web2, open)
}

// TestABoundIsForBothFamilies: what a guest sends by IPv6 is gone for IPv4.
func TestABoundIsForBothFamilies(t *testing.T) {
	w := newWorldOf(t, true)
	six := func(a string) string { return sixOf(netip.MustParseAddr(a)).String() }
	w.must(w.fence.Set(six6(bounding(Bounds{Of: "default", Egress: slow}))))
	if heard, dropped := w.pour("web1", six(web1), "router", six(internet), 200, "s-default"); heard < slowOnce-10 || heard > slowOnce+30 || dropped == 0 { // its header is longer
		t.Errorf("%d of 200 packets came by IPv6, %d were dropped", heard, dropped)
	}
	w.wants("web2", web2, "router", internet, "s-default", 0)
	w.wants("alice", six(homePod), "web1", six(web1), "r-default", 200)
}

// TestABoundChangesAndGoesWithThePolicy: at once, for who sends already, and nothing of it is left.
func TestABoundChangesAndGoesWithThePolicy(t *testing.T) {
	w := newWorld(t)
	list := func() string { return w.nft("list table inet " + Bandwidth) }
	w.must(w.fence.Set(twoTenants()))
	if is := list(); strings.Contains(is, "chain") {
		t.Errorf("without a bound packets are looked at: %s", is)
	}
	w.must(w.fence.Set(bounding(Bounds{Of: "default", Egress: slow})))
	w.wants("web1", web1, "router", internet, "s-default", slowOnce)
	w.must(w.fence.Set(bounding(Bounds{Of: "default", Ingress: slow, Egress: 99e9}))) // the most there is
	w.wants("web1", web1, "router", internet, "s-default", 200)
	w.wants("alice", homePod, "web1", web1, "r-default", slowOnce)
	rel := bounding(Bounds{Of: "default", Ingress: slow, Egress: 99e9})
	rel.Tenants[1].Bounds = Bounds{Of: strings.Repeat("x", 253), Egress: slow} // as long as names are
	w.must(w.fence.Set(rel))
	w.must(w.fence.Kept())
	w.wants("alice", homePod, "web1", web1, "r-default", 0) // that goes on
	w.wants("job", job, "dora", homePod, "s-"+rel.Tenants[1].Bounds.Of, slowOnce)
	w.must(w.fence.Set(twoTenants()))
	w.wants("web1", web1, "router", internet, "s-default", 200)
	if is := list(); strings.Contains(is, "chain") {
		t.Errorf("a bound is left: %s", is)
	}
}

// TestABoundOutlivesTheProcess, and comes back when somebody takes it away.
func TestABoundOutlivesTheProcess(t *testing.T) {
	w := newWorld(t)
	rel := bounding(Bounds{Of: "default", Egress: slow})
	w.must(w.fence.Set(rel))
	w.run()()
	w.wants("web1", web1, "router", internet, "s-default", slowOnce)
	w.raise() // another process, which does not know the policies yet
	w.must(w.fence.Raise())
	w.wants("web1", web1, "router", internet, "s-default", 0)
	w.must(w.fence.Set(rel))
	w.run()
	for _, how := range []string{"delete table inet " + Bandwidth, "flush ruleset"} {
		w.nft(how)
		for began := time.Now(); !strings.Contains(w.nft("list tables"), Bandwidth); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatalf("after %s there is no bound", how)
			}
		}
		w.wants("web1", web1, "router", internet, "s-default", slowOnce)
	}
}

// TestAGuestOfAPluginIsBoundedByItsAddress: where it has no link of its own, and where another node has it, which bounds it.
func TestAGuestOfAPluginIsBoundedByItsAddress(t *testing.T) {
	for _, bridged := range []bool{true, false} {
		w := newPlugin(t, bridged)
		w.fence = w.byAddress()
		guests := ranges(guestIP+"/32", kinIP+"/32")
		rel := Relations{Tenants: []Tenant{{Consumer: "alice", Guests: guests, Apart: guests[1:], Internet: true, Bounds: Bounds{Of: "default", Ingress: slow, Egress: slow}}}}
		rel.Plugin = guestsOfAlice().Plugin
		w.must(w.fence.Set(rel))
		w.must(w.fence.Kept())
		w.wants("guest", guestIP, "lan", internet, "s-default", slowOnce)
		w.wants("kin", kinIP, "lan", internet, "s-default", 200)
		w.wants("guest", guestIP, "kin", kinIP, "s-default", 200)
		w.wants("own", ownPod, "lan", internet, "s-default", 200)
		w.wants("own", ownPod, "guest", guestIP, "r-default", 200)
	}
}

// TestAKernelWithoutBoundsTakesNoGuests: nothing passes unbounded that is to be bounded, and the rest stands.
func TestAKernelWithoutBoundsTakesNoGuests(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	impossible := bounding(Bounds{Of: strings.Repeat("x", 300), Egress: slow}) // stands for a kernel that has no word for it
	if err := w.fence.Set(impossible); err == nil || w.fence.Kept() == nil {
		t.Errorf("%v: the fence counts as kept", err)
	}
	w.expect("web1", web2, open)
	w.expect("web1", hostLAN, rejected)
	w.must(w.fence.Set(twoTenants()))
	w.must(w.fence.Kept())
}
