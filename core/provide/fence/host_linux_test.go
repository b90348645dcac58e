package fence

import (
	"slices"
	"strings"
	"testing"
)

// TestHostSendsIntoTheTunnelOnlyToPeers: a route that should not be there brings nothing of the host's own to a peer.
func TestHostSendsIntoTheTunnelOnlyToPeers(t *testing.T) {
	w := newWorld(t)
	w.expect("host", strayPeer, "carol") // without a fence
	w.expectAs("carol", strayPeer, nodeIP, "host")
	w.must(w.fence.Raise())
	w.expect("host", beas, rejected) // nobody is known yet
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	for to, who := range map[string]outcome{beas: "bea", carols: "carol", "udp:" + beas + ":10053": "bea"} {
		w.expect("host", to, who)
	}
	w.expectAs("host", gateway1, homePod, "alice") // as its guests ask, so that it is seen whether they could
	w.expectAs("host", gateway2, homePod, "dora")
	w.expect("host", strayPeer, rejected)
	if got := w.dial("host", "udp:"+strayPeer+":10053"); !strings.Contains(string(got), "not permitted") {
		t.Errorf("host to %s by UDP: %s", strayPeer, got)
	}
	w.expect("own", strayPeer, rejected)
	w.expect("host", neighbour, open) // elsewhere as ever
	w.expect("host", internet, open)
	w.expectAll(try{"carol", strayPeer, nodeIP, silent}, try{"carol", strayPeer, hostLAN, silent}, try{"carol", strayPeer, bridge, silent},
		try{"carol", strayPeer, ownPod, silent}, try{"carol", strayPeer, web1, silent})

	// Each packet is judged by where it goes: with the link ends what was open by it.
	c := w.talk("host", beas)
	w.must(c.say(true))
	rel.Providers = slices.DeleteFunc(rel.Providers, func(one Provider) bool { return one.Peer == "bea" })
	w.must(w.fence.Set(rel))
	if c.say(false) == nil {
		t.Error("the host's connection to a former peer goes on")
	}
	w.expect("host", beas, rejected)
	w.expect("host", carols, open)
}
