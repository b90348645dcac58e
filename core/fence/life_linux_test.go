package fence

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

func TestNewGuestIsKnownByItsLink(t *testing.T) {
	w := newWorld(t)
	rel := twoTenants()
	rel.Tenants[0].Guests = append(rel.Tenants[0].Guests, Guest{UID: "uid-late"})
	w.must(w.fence.Set(rel))
	w.run()
	w.make("late")
	w.guest("late", "10.42.255.140")
	w.serve("late")
	t.Logf("reaches home after %s", w.soon("late", aliceHome, open))
	w.expect("web1", "10.42.255.140", open)

	h := w.net("host")
	l, err := h.LinkByName("vlate")
	w.must(err)
	w.must(h.LinkDel(l))
	w.make("next")
	w.guest("next", "10.42.255.140") // the address has a new owner, whom nobody knows
	w.soon("next", aliceHome, silent)
	w.expect("next", internet, silent)
}

func TestTableOutlivesTheProcess(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	w.run()()
	holds := func() {
		t.Helper()
		w.expect("web1", web2, open)
		w.expect("web1", internet, open)
		w.expect("web1", aliceHome, open)
		w.expect("web1", ownPod, rejected)
		w.expect("newcomer", internet, silent)
		w.expect("own", internet, open)
	}
	holds()
	w.raise() // another process
	w.must(w.fence.Raise())
	w.run()
	holds()
	w.must(w.fence.Set(twoTenants()))
	holds()
}

// TestWhatIsMeantForAPeerGoesNowhereElse takes the tunnel away, as when kithd is killed, before a router that has the same
// addresses and answers.
func TestWhatIsMeantForAPeerGoesNowhereElse(t *testing.T) {
	w := newWorld(t)
	for _, a := range []string{aliceHome, provider} {
		w.address("router", "lo", a+"/32")
	}
	w.must(w.fence.Set(twoTenants()))
	w.run()()
	pairs := map[string]string{"own": provider, "web1": aliceHome}
	conns := map[string]net.Conn{}
	for from, to := range pairs {
		w.in(from, func() (err error) {
			conns[from], err = net.Dial("tcp", to+":80")
			return err
		})
		defer conns[from].Close()
	}
	h := w.net("host")
	kith0, err := h.LinkByName("kith0")
	w.must(err)
	routes, err := h.RouteList(kith0, netlink.FAMILY_V4)
	w.must(err)
	w.must(h.LinkSetDown(kith0))
	for from, to := range pairs {
		w.expect(from, to, silent)
		w.expect(from, "udp:"+to+":10053", silent)
		w.expect(from, internet, open)
		_, err := io.WriteString(conns[from], "hello")
		w.must(err)
	}
	time.Sleep(patience)
	w.must(h.LinkSetUp(kith0))
	for _, r := range routes {
		w.must(h.RouteReplace(&r))
	}
	for from, c := range conns {
		w.must(c.SetDeadline(time.Now().Add(10 * time.Second)))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Errorf("a connection of %s that was open when the tunnel went: %v", from, err)
		}
	}
}

func TestFlushedTableComesBack(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	w.run()
	w.expect("web1", hostLAN, rejected)
	w.nft("flush ruleset")
	t.Logf("closed again after %s", w.soon("web1", hostLAN, rejected))
	w.expect("web1", aliceHome, open)
}

func TestAnotherLAN(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	stop := w.run()
	w.expect("web1", internet, open)
	move := func(via string) {
		h := w.net("host")
		routes, err := h.RouteList(nil, 2)
		w.must(err)
		for _, r := range routes {
			if isDefault(r) {
				w.must(h.RouteDel(&r))
			}
		}
		w.route("host", "0.0.0.0/0", via)
	}
	move("203.0.113.2")
	t.Logf("internet again after %s", w.soon("web1", internet, open))
	stop()
	move(router)
	w.expect("web1", internet, rejected) // nobody is there to learn of the new router: closed, not open
	w.expect("web1", neighbour, rejected)
	w.expect("own", internet, open)
}

func TestGuestsWithoutLinksOfTheirOwnAreKnownByAddress(t *testing.T) {
	w := newWorld(t)
	cfg := testConfig
	cfg.Group, cfg.Log = 0, slog.New(slog.DiscardHandler)
	f, err := New(cfg)
	w.must(err)
	h := w.net("host")
	f.kernel.open = func() (*nftables.Conn, error) { return nftables.New(nftables.WithNetNSFd(int(w.place["host"]))) }
	f.readHost = func() (hostState, error) { return readHost(h, 0) }
	w.must(f.Set(Relations{Tenants: []Tenant{{Consumer: "alice", Internet: true, Home: ranges("10.76.0.0/16"),
		Guests: []Guest{{UID: "u", Addresses: addrs(web1, nodeIP)}}}}}))
	w.expect("web1", aliceHome, open)
	w.expect("web1", internet, open)
	w.expect("web1", ownPod, rejected)
	w.expect("web1", hostLAN, rejected)
	w.expect("host", "10.42.255.131", open) // the node's own address was not taken for a guest's
	if got := w.far(aliceHome, ownPod); got != silent {
		t.Errorf("alice's home reaches an own pod: %s", got)
	}
}

func TestSetChangesOnlyWhatChanged(t *testing.T) {
	w := newWorld(t)
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	handles := func() string {
		var out []byte
		w.in("host", func() (err error) {
			out, err = exec.Command("nft", "-a", "list", "table", "ip", Table).Output()
			return err
		})
		var rules []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "# handle") {
				rules = append(rules, line[strings.Index(line, "# handle"):])
			}
		}
		return strings.Join(rules, "")
	}
	before := handles()
	rel.Tenants[0].Guests = append(rel.Tenants[0].Guests, Guest{UID: "uid-newcomer"})
	w.must(w.fence.Set(rel))
	w.expect("newcomer", aliceHome, open)
	rel.Tenants[0].Guests, rel.Tenants[1].Guests = rel.Tenants[0].Guests[:2], append(rel.Tenants[1].Guests, Guest{UID: "uid-newcomer"})
	w.must(w.fence.Set(rel))
	w.expect("newcomer", aliceHome, rejected)
	w.expect("newcomer", doraHome, open)
	if after := handles(); before != after || before == "" {
		t.Errorf("the rules were written anew:\n%s\n%s", before, after)
	}
	rel.Tenants = rel.Tenants[:1]
	w.must(w.fence.Set(rel))
	if after := handles(); before == after {
		t.Error("a tenant went, and the rules are the same")
	}
	w.expect("dora", doraHome, silent)
	w.expect("web1", aliceHome, open)
}

func TestRunEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.must(inside(w.place["host"], func() error { return w.fence.Run(ctx) }))
}
