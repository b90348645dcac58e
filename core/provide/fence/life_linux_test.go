package fence

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
)

// Nothing has to be learned of a guest that starts, so it makes no difference whether kithd runs.
func TestANewGuestIsKnownByItsAddress(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	w.make("late")
	w.guest("late", "10.65.1.40")
	w.serve("late")
	w.expect("late", homePod, "alice")
	w.expect("late", internet, open)
	w.expect("late", job, rejected)
	w.expect("web1", "10.65.1.40", "late")
	w.expectAs("alice", homePod, "10.65.1.40", "late")
}

func TestTableOutlivesTheProcess(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	w.run()()
	holds := func() {
		t.Helper()
		w.expect("web1", web2, open)
		w.expect("web1", internet, open)
		w.expect("web1", homePod, "alice")
		w.expect("web1", job, rejected)
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
// addresses and answers. What guests want of their home is not for this laptop either, or for its owner's pods, that have such addresses.
func TestWhatIsMeantForAPeerGoesNowhereElse(t *testing.T) {
	w := newWorld(t)
	for _, a := range []string{homeOther, beas} {
		w.address("router", "lo", a+"/32")
	}
	w.must(w.fence.Set(twoTenants()))
	w.run()()
	conns := []talk{w.talk("own", beas), w.talk("web1", homePod), w.talk("web1", homeOther), w.talk("web1", nodeIP), w.talk("web1", beas)}
	h := w.net("host")
	kith0, err := h.LinkByName("kith0")
	w.must(err)
	w.must(h.LinkSetDown(kith0)) // its routes go with it
	for _, c := range conns {
		_, err := io.WriteString(c, "hello")
		w.must(err)
	}
	tries := []try{{"own", "", internet, open}, {"web1", "", internet, open}, {"web1", "", web2, "web2"}, {"own", "", web1, "web1"}}
	for from, list := range map[string][]string{"own": {beas}, "web1": {homePod, homeOther, nodeIP, gatewayIP, bridge, beas}, "job": {homePod, nodeIP}} {
		for _, to := range list {
			tries = append(tries, try{from, "", to, silent}, try{from, "", "udp:" + to + ":10053", silent})
		}
	}
	w.expectAll(tries...)
	w.must(h.LinkSetUp(kith0))
	w.lead()
	for _, c := range conns {
		w.must(c.SetDeadline(time.Now().Add(2 * time.Minute)))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Errorf("a connection from %s that was open when the tunnel went: %v", c.LocalAddr(), err)
		}
	}
}

func TestFlushedTableComesBack(t *testing.T) {
	w := newWorld(t)
	w.must(w.fence.Set(twoTenants()))
	w.run()
	w.expect("web1", hostLAN, rejected)
	for _, how := range []string{"flush ruleset", "flush table ip " + Table, "flush chain ip " + Table + " guest-to-host", "flush table ip " + Limits} {
		w.nft(how)
		t.Logf("closed again after %s", w.soon("web1", hostLAN, rejected))
		w.expect("web1", homePod, "alice")
	}
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
	f := w.byAddress()
	w.must(f.Set(Relations{
		Tenants:   []Tenant{{Consumer: "alice", Internet: true, Home: ranges("10.76.0.0/16"), Guests: ranges(newcomerIP+"/32", ownPod+"/32")}},
		Providers: []Provider{{Peer: "bea", Guests: netip.MustParsePrefix(atBea)}},
	}))
	w.expect("newcomer", aliasHome, "alice")
	w.expect("newcomer", internet, open)
	w.expect("newcomer", ownOther, rejected)
	w.expect("newcomer", hostLAN, rejected)
	w.expect("newcomer", beas, rejected)
	w.expectAs("host", gatewayIP, aliasHome, silent) // let through; who would translate it is not here, and home has that address itself
	w.expectAs("host", nodeIP, aliasHome, rejected)
	w.expectAs("alice", aliasHome, newcomerIP, "newcomer")
	w.expectAs("alice", aliasHome, ownOther, silent)
	w.expectAs("own", ownOther, beas, "bea")
	w.expectAs("bea", beas, ownOther, "own")
	w.expectAs("bea", beas, ownPod, silent) // as a guest has it
}

// byAddress is a fence that knows guests by their addresses alone.
func (w *world) byAddress() *Fence {
	w.t.Helper()
	return w.marking("")
}

// marking is that of a kithd that notes in a file whether guests are here.
func (w *world) marking(mark string) *Fence {
	w.t.Helper()
	cfg := testConfig
	cfg.Group, cfg.Mark, cfg.Log = 0, mark, slog.New(slog.DiscardHandler)
	f, err := New(cfg)
	w.must(err)
	h := w.net("host")
	f.fence.Options = []nftables.ConnOption{nftables.WithNetNSFd(int(w.place["host"]))}
	f.limits.Options, f.links.Options, f.bandwidth.Options = f.fence.Options, f.fence.Options, f.fence.Options
	w.at(f, h)
	f.Heard(time.Now())
	return f
}

// In a cluster of several nodes a guest's question to the cluster's DNS comes from its node with the address of the server: that it asked for the
// service shows there alone. What it sends home passes here where the tunnel is here, and nothing else of that.
func TestGuestsOnOtherNodesAreFencedThere(t *testing.T) {
	w := newWorld(t)
	f := w.byAddress()
	rel := func(apart ...netip.Prefix) Relations {
		return Relations{
			Tenants:   []Tenant{{Consumer: "alice", Home: ranges("10.76.0.0/16"), Guests: ranges(newcomerIP+"/32", ownOther+"/32"), Apart: apart}},
			Providers: []Provider{{Peer: "bea", Guests: netip.MustParsePrefix(atBea)}},
		}
	}
	w.must(f.Set(rel()))
	w.expectAs("own", ownOther, "udp:"+nodeIP+":10053", rejected) // it is judged here
	w.expectAs("own", ownOther, neighbour, rejected)
	w.must(f.Set(rel(ranges(ownOther + "/32")...)))
	w.expectAs("own", ownOther, "udp:"+nodeIP+":10053", "host")
	w.expectAs("own", ownOther, nodeIP+":10053", "host")
	w.expectAs("own", ownOther, neighbour, "neighbour")
	w.expectAs("own", ownOther, aliasHome, "alice")
	w.expectAs("alice", aliasHome, ownOther, "own")
	w.expectAs("own", ownOther, beas, rejected)
	w.expectAs("bea", beas, ownOther, silent)
	w.expect("newcomer", "udp:10.43.0.10:53", "host")
	w.expect("newcomer", "udp:"+nodeIP+":10053", rejected)
	w.expect("newcomer", neighbour, rejected)
	w.expect("newcomer", ownOther, "own") // of its tenant
}

func TestSetChangesNothingWhenNothingChanged(t *testing.T) {
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
	w.make("late")
	w.guest("late", "10.65.1.40")
	w.must(w.fence.Set(twoTenants()))
	if after := handles(); before != after || before == "" {
		t.Errorf("the rules were written anew:\n%s\n%s", before, after)
	}
	rel.Tenants = rel.Tenants[:1]
	w.must(w.fence.Set(rel))
	if after := handles(); before == after {
		t.Error("a tenant went, and the rules are the same")
	}
	w.expect("job", homePod, silent)
	w.expect("web1", homePod, "alice")
}

// TestItsOwnChangesAreNoNewsToRun: it hears of them, and what it wrote is what it finds.
func TestItsOwnChangesAreNoNewsToRun(t *testing.T) {
	w := newWorld(t)
	var said strings.Builder
	w.fence.fence.Log = slog.New(slog.NewTextHandler(&said, nil))
	w.fence.limits.Log = w.fence.fence.Log
	stop := w.run()
	rel := twoTenants()
	for _, tenants := range [][]Tenant{rel.Tenants, rel.Tenants[:1], nil, rel.Tenants} {
		w.must(w.fence.Set(Relations{Tenants: tenants, Providers: rel.Providers}))
		w.expect("own", job, open) // which takes longer than to hear of it
	}
	w.expect("newcomer", internet, silent)
	stop()
	if said.Len() > 0 {
		t.Error(said.String())
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.must(inside(w.place["host"], func() error { return w.fence.Run(ctx) }))
}
