package fence

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// A plugin's world is a node whose network plugin connects all pods: by a bridge, as flannel has it, or by a link and a route for each. Its range of
// pods is 10.42.0.0/24 of 10.42.0.0/16; all of them, and the node, serve.
func newPlugin(t *testing.T, bridged bool) *world {
	t.Helper()
	w := newPlaces(t, "host", "own", "own2", "guest", "kin", "stranger", "lan")
	for place := range w.place {
		w.setting(place, "ipv6/conf/default/accept_dad", "0")
		w.setting(place, "ipv6/conf/all/disable_ipv6", "0")
	}
	w.wire("lan", "eth0", "host", "eth0", hostLAN+"/24")
	w.address("lan", "eth0", router+"/24")
	w.address("lan", "lo", internet+"/32")
	w.route("lan", "0.0.0.0/0", hostLAN)
	w.route("host", "0.0.0.0/0", router)
	w.route("host", "10.42.1.0/24", router) // pods of another node, which is reached by this machine's only network: a veth, as in a container
	w.setting("host", "ipv4/ip_forward", "1")
	w.setting("host", "ipv4/icmp_ratelimit", "0")
	if bridged {
		w.bridge("host", "cni0", bridge+"/24")
		l, err := w.net("host").LinkByName("cni0")
		w.must(err)
		w.must(w.net("host").LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 1})) // else it takes that of a port, now of this one, now of that
	}
	for name, a := range map[string]string{"own": ownPod, "own2": own2IP, "kin": kinIP, "guest": guestIP, "stranger": strangerIP} {
		w.pod(name, a, bridged)
	}
	w.wire("lan", "peer", "host", "kith0", "10.255.0.1/30") // our guests at bea's
	w.address("lan", "peer", "10.255.0.2/30")
	w.address("lan", "lo", beas+"/32")
	w.route("host", atBea, "10.255.0.2")
	w.route("lan", "10.42.0.0/16", "10.255.0.1")
	w.address("host", "lo", nodeIP+"/32")
	w.address("own", "lo", ownOther+"/32")
	for name := range w.place {
		w.serve(name)
	}
	return w
}

const (
	own2IP     = "10.42.0.7"
	nobodyIP   = "10.42.0.77"
	guestIP    = "10.42.0.20"
	kinIP      = "10.42.0.21"
	strangerIP = "10.42.0.22"
)

// pod connects a place as a network plugin does.
func (w *world) pod(name, a string, bridged bool) {
	w.t.Helper()
	h := w.net("host")
	if !bridged {
		w.wire("host", "v"+name, name, "eth0", a+"/32")
		w.routeDev("host", a+"/32", "v"+name, hostLAN)
		w.routeDev(name, "169.254.1.1/32", "eth0", a)
		w.setting("host", "ipv4/conf/v"+name+"/proxy_arp", "1") // as Calico has it
		w.setting("host", "ipv4/neigh/v"+name+"/proxy_delay", "0")
		w.route(name, "0.0.0.0/0", "169.254.1.1")
		return
	}
	w.wire("host", "v"+name, name, "eth0", a+"/24")
	l, err := h.LinkByName("v" + name)
	w.must(err)
	br, err := h.LinkByName("cni0")
	w.must(err)
	w.must(h.LinkSetMaster(l, br))
	w.must(h.LinkSetHairpin(l, true))
	w.route(name, "0.0.0.0/0", bridge)
}

// local is a place's address of its link.
func (w *world) local(place, link string) string {
	w.t.Helper()
	h := w.net(place)
	l, err := h.LinkByName(link)
	w.must(err)
	for range 100 {
		addrs, err := h.AddrList(l, unix.AF_INET6)
		w.must(err)
		for _, a := range addrs {
			if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				return a.IP.String()
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Skip("there is no IPv6 here")
	return ""
}

// byLink reports whether a place reaches an address of its link by TCP, as it is to or not.
func (w *world) byLink(from, to string, comes bool) (got bool) {
	w.t.Helper()
	at := net.JoinHostPort(to+"%"+w.zone(from, "eth0"), "80")
	w.in(from, func() error {
		c, err := net.DialTimeout("tcp6", at, within(comes))
		if got = err == nil; got {
			c.Close()
		}
		return nil
	})
	return got
}

// bridgedOrNot is both ways of plugins, and on a bridge that of a kernel that does not show its frames to the rules of IPv4.
func bridgedOrNot(t *testing.T, test func(t *testing.T, bridged, seen bool)) {
	t.Run("ptp", func(t *testing.T) { test(t, false, true) })
	t.Run("bridge", func(t *testing.T) { test(t, true, true) })
	t.Run("bridge, unseen by iptables", func(t *testing.T) { test(t, true, false) })
}

func (w *world) seenByRules(seen bool) {
	value := "0"
	if seen {
		value = "1"
	}
	w.setting("host", "bridge/bridge-nf-call-iptables", value)
	w.setting("host", "bridge/bridge-nf-call-ip6tables", value)
}

func guestsOfAlice() Relations {
	return Relations{
		Tenants: []Tenant{
			{Consumer: "alice", Home: ranges("10.76.0.0/16"), Guests: ranges(guestIP+"/32", kinIP+"/32"), Internet: true},
			{Consumer: "dora", Guests: ranges(strangerIP + "/32")},
		},
		Plugin: Plugin{Here: []netip.Addr{netip.MustParseAddr(guestIP), netip.MustParseAddr(kinIP), netip.MustParseAddr(strangerIP)}, Ranges: ranges("10.42.0.0/24")},
	}
}

// settled waits until the fence found all links that it looks for.
func (w *world) settled(f *Fence, rel Relations) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		w.must(f.Set(rel))
		w.must(f.bound)
		if again := f.again(); again == 0 {
			break
		}
		if time.Now().After(end) {
			w.t.Fatal("the links of guests were not found")
		}
	}
	if none, err := f.Unbound(); len(none) > 0 || err != nil {
		w.t.Fatalf("not bound to their links: %v, %v", none, err)
	}
}

func TestGuestsOfAPluginAreFencedOnTheirLinks(t *testing.T) {
	bridgedOrNot(t, func(t *testing.T, bridged, seen bool) {
		w := newPlugin(t, bridged)
		w.seenByRules(seen)
		f := w.byAddress()
		toHost := w.local("host", "vguest")
		if bridged {
			toHost = w.local("host", "cni0")
		}
		toOwn := w.local("own", "eth0")
		if !w.byLink("guest", toHost, true) || bridged && !w.byLink("guest", toOwn, true) {
			t.Fatal("without a fence, a guest does not reach the node and the owner's pod by IPv6")
		}
		for _, to := range []string{ownPod, hostLAN, kinIP, internet} {
			w.expect("guest", to, open)
		}
		w.address("guest", "lo", nobodyIP+"/32")
		if w.flood("guest", nobodyIP, "kin", kinIP, 1, 1) != 1 {
			t.Fatal("without a fence, a guest is not heard in another's name")
		}
		before := w.known("host", w.inside("guest", bridged), unix.AF_INET)
		w.tap("guest", "eth0").forge(netip.MustParseAddr(hostLAN), 200)
		if n := w.known("host", w.inside("guest", bridged), unix.AF_INET) - before; n < 300 {
			t.Fatalf("without a fence, 400 invented senders made %d neighbours", n)
		}
		w.settled(f, guestsOfAlice())
		if w.byLink("guest", toHost, false) || bridged && w.byLink("guest", toOwn, false) {
			t.Error("a guest reaches the node, or the owner's pod, by IPv6")
		}
		for to, want := range map[string]outcome{kinIP: "kin", internet: "lan"} {
			w.expect("guest", to, want)
		}
		w.unanswered("guest", ownPod, hostLAN, bridge, strangerIP)
		w.expect("own", guestIP, "guest")
		w.expect("host", guestIP, "guest")
		w.expect("own", own2IP, "own2")
		if bridged && !w.byLink("own", w.local("own2", "eth0"), true) {
			t.Error("the owner's pods do not reach each other by IPv6")
		}
		before = w.known("host", w.inside("guest", bridged), unix.AF_INET)
		w.tap("guest", "eth0").forge(netip.MustParseAddr(hostLAN), 201)
		if n := w.known("host", w.inside("guest", bridged), unix.AF_INET) - before; n > 1 {
			t.Errorf("400 invented senders made %d neighbours more", n)
		}
		// In the name of the owner's pod, and of its link-layer address.
		victim := w.tap("own2", "eth0")
		if w.flood("guest", nobodyIP, "kin", kinIP, 1, 0) != 0 {
			t.Error("a guest was heard in the name of the owner's pod")
		}
		if bridged {
			p := w.tap("guest", "eth0")
			p.frame(everybody, victim.mac, unix.ETH_P_ARP, make([]byte, 28))
			if port := w.portOf(victim.mac); port != "vown2" {
				t.Errorf("the bridge sends what is for the owner's pod to %s", port)
			}
		}
	})
}

// inside is the host's link by which a pod is its neighbour.
func (w *world) inside(place string, bridged bool) string {
	if bridged {
		return "cni0"
	}
	return "v" + place
}

// portOf is the port behind which the host's bridge heard an address last.
func (w *world) portOf(mac net.HardwareAddr) string {
	h := w.net("host")
	list, err := h.NeighList(0, unix.AF_BRIDGE)
	w.must(err)
	for _, n := range list {
		if slices.Equal(n.HardwareAddr, mac) && n.State&netlink.NUD_PERMANENT == 0 {
			l, err := h.LinkByIndex(n.LinkIndex)
			w.must(err)
			return l.Attrs().Name
		}
	}
	return ""
}

// TestAGuestThatIsAwaitedBeginsNothing: from when it is bound until its address is known. The owner's pods that are known go on.
func TestAGuestThatIsAwaitedBeginsNothing(t *testing.T) {
	bridgedOrNot(t, func(t *testing.T, bridged, seen bool) {
		w := newPlugin(t, bridged)
		w.seenByRules(seen)
		f := w.byAddress()
		rel := guestsOfAlice()
		rel.Providers = []Provider{{Peer: "bea", Guests: netip.MustParsePrefix(atBea)}}
		w.settled(f, rel)
		rel.Plugin.Awaited, rel.Plugin.Own = true, []netip.Addr{netip.MustParseAddr(ownPod), netip.MustParseAddr(own2IP)}
		w.must(f.Set(rel))
		w.make("late")
		w.setting("late", "ipv6/conf/default/accept_dad", "0")
		w.pod("late", "10.42.0.30", bridged)
		w.serve("late")
		toHost := w.local("host", w.inside("late", bridged))
		if w.byLink("late", toHost, false) || bridged && w.byLink("late", w.local("own", "eth0"), false) {
			t.Error("a guest that is awaited reaches the node, or the owner's pod, by IPv6")
		}
		for _, to := range []string{ownPod, hostLAN, internet, guestIP, beas} {
			w.expect("late", to, silent)
		}
		w.expect("own", beas, "lan")
		w.expect("own", "10.42.0.30", "late") // probes
		w.expect("host", "10.42.0.30", "late")
		w.expect("own", internet, "lan")
		w.expect("own", hostLAN, "host")
		w.expect("own", own2IP, "own2")
		w.expect("guest", internet, "lan") // one that is known
		if bridged && !w.byLink("own", w.local("own2", "eth0"), true) {
			t.Error("the owner's pods do not reach each other by IPv6")
		}
		// It came out to be the owner's: nothing is awaited any more.
		rel.Plugin.Awaited = false
		w.settled(f, rel)
		w.expect("late", ownPod, "own")
		w.expect("late", internet, "lan")
	})
}

// TestWhereNobodySeesWhoComesTheyBeginNothing: a guest whose sandbox is made anew has another address, and where kithd is dead, or hears nothing of
// the kubelet, nobody says so. Who is known goes on.
func TestWhereNobodySeesWhoComesTheyBeginNothing(t *testing.T) {
	bridgedOrNot(t, func(t *testing.T, bridged, seen bool) {
		w := newPlugin(t, bridged)
		w.seenByRules(seen)
		f := w.byAddress()
		rel := guestsOfAlice()
		rel.Plugin.Own = []netip.Addr{netip.MustParseAddr(ownPod)}
		f.Heard(time.Now())
		w.settled(f, rel)
		w.expect("own2", internet, "lan") // whom nobody asked about yet
		addressOf := map[string]string{"late": "10.42.0.30", "later": "10.42.0.31"}
		closed := func(name, why string) {
			t.Helper()
			t.Log(why)
			var tries []try
			for _, to := range []string{ownPod, hostLAN, internet, guestIP} {
				tries = append(tries, try{name, "", to, silent})
			}
			w.expectAll(tries...)
			w.expect("own", internet, "lan")
			w.expect("own", hostLAN, "host")
			w.expect("lan", hostLAN, "host")
			w.expect("guest", internet, "lan")
			w.expect("host", addressOf[name], outcome(name))
		}
		lapse := func() { // in a second what else takes calmFor
			t.Helper()
			for _, at := range []string{"ip " + Table + " " + calmSet + " { ipv4", "ip6 " + Table + " " + calmSet + " { ipv6", "bridge " + Links + " " + calmSet + " { 7"} {
				name, _, _ := strings.Cut(at, " {")
				w.nft("flush set " + name + "\nadd element " + at + " timeout 1s }")
			}
			time.Sleep(1100 * time.Millisecond)
		}
		start := func(name string) {
			t.Helper()
			w.make(name)
			w.setting(name, "ipv6/conf/default/accept_dad", "0")
			w.pod(name, addressOf[name], bridged)
			w.serve(name)
		}
		lapse()
		f.seen.beat = f.seen.beat.Add(-calmFor)
		start("late")
		closed("late", "nothing is heard of the kubelet")
		w.must(f.Set(rel)) // as kithd does whatever else changes
		closed("late", "the kubelet is still not heard of")
		f.Heard(f.seen.beat) // the same word once more
		w.must(f.Set(rel))
		closed("late", "the kubelet said nothing new")
		f.Heard(time.Now())
		w.must(f.Set(rel))
		w.expect("late", internet, "lan")
		if bridged && !w.byLink("late", w.local("own", "eth0"), true) {
			t.Error("the owner's pods do not reach each other by IPv6")
		}

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f.cfg.Kernel = new(hostnet.Changes)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(50 * time.Millisecond)
		w.expect("late", internet, "lan")
		stop()
		w.must(<-ended)
		start("later")
		closed("later", "kithd ended")
		next := w.byAddress()
		w.must(next.Raise())
		closed("later", "a new kithd has not read the cluster")
		next.Heard(time.Now().Add(-calmFor))
		w.must(next.Set(rel))
		closed("later", "it did not hear of the kubelet")
		next.Heard(time.Now())
		w.must(next.Set(rel))
		w.expect("later", internet, "lan")
	})
}

// TestAfterABootTheFenceIsClosedUntilTheClusterWasRead: the kubelet may be faster with its guests' new sandboxes.
func TestAfterABootTheFenceIsClosedUntilTheClusterWasRead(t *testing.T) {
	w := newPlugin(t, true)
	mark := filepath.Join(t.TempDir(), "guests-here")
	boot := func() *Fence {
		t.Helper()
		w.nft("flush ruleset")
		f := w.marking(mark)
		w.must(f.Raise())
		return f
	}
	f := boot()
	w.expect("own", internet, "lan") // where no guests were
	f.Heard(time.Now())
	w.must(f.Set(guestsOfAlice()))
	w.expect("own", internet, "lan")
	f = boot()
	w.expect("own", internet, silent)
	w.expect("guest", hostLAN, silent)
	w.expect("host", ownPod, "own")
	w.must(f.Set(Relations{}))
	w.expect("own", internet, "lan")
	boot()
	w.expect("own", internet, "lan")
}

// TestAnAddressOfNoRangeIsClosed: one outside the range of pods, or that two claim, has DNS at the most.
func TestAnAddressOfNoRangeIsClosed(t *testing.T) {
	w := newPlugin(t, true)
	w.make("far")
	w.pod("far", "10.99.0.9", false)
	w.serve("far")
	for _, to := range []string{ownPod, hostLAN, internet, guestIP} {
		w.expect("far", to, open)
	}
	f := w.byAddress()
	rel := guestsOfAlice()
	rel.Plugin.Closed = ranges("10.99.0.9/32")
	rel.Tenants[0].Guests = append(rel.Tenants[0].Guests, ranges(strangerIP+"/32")...)
	w.must(f.Set(rel))
	for _, from := range []string{"far", "stranger"} {
		w.unanswered(from, ownPod, hostLAN, internet, guestIP)
	}
	w.expect("host", "10.99.0.9", "far")
	w.expect("own", internet, "lan")
}

// TestWhatWasLedIsJudgedByWhereItGoes: core/provide/translate leads a guest to who has an address at home, and marks that. What leads it elsewhere
// without is closed, and the mark opens nothing.
func TestWhatWasLedIsJudgedByWhereItGoes(t *testing.T) {
	w := newPlugin(t, false)
	f := w.byAddress()
	w.settled(f, guestsOfAlice())
	w.nft(`table ip led {
  chain services { type nat hook prerouting priority dstnat - 10
    ip daddr 10.99.0.1 ct mark set 0x10000000 dnat to ` + kinIP + `
    ip daddr 10.99.0.2 ct mark set 0x10000000 dnat to ` + ownPod + `
    ip daddr 10.99.0.3 ct mark set 0x10000000 dnat to ` + strangerIP + `
    ip daddr 10.99.0.4 ct mark set 0x10000000 dnat to ` + hostLAN + `
    ip daddr 10.99.0.5 dnat to ` + kinIP + `
  }
}`)
	w.expect("guest", "10.99.0.1", "kin")
	w.unanswered("guest", "10.99.0.2", "10.99.0.3", "10.99.0.4", "10.99.0.5")
	w.expect("own2", "10.99.0.2", "own") // whom it is none of the fence's business to judge
}
