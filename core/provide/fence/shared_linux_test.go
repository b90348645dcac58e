package fence

import (
	"net/netip"
	"testing"
)

// TestOfTheOwnersPodsAHomeReachesWhatIsShared: a pod of home, by the alias that it has here, and the ports that are shared; and nothing else of them.
func TestOfTheOwnersPodsAHomeReachesWhatIsShared(t *testing.T) {
	w := newWorld(t)
	own := netip.MustParseAddr(ownPod)
	rel := twoTenants()
	rel.Tenants[0].Aliases = ranges("10.79.0.0/16")
	w.must(w.fence.Set(rel))
	w.expectAll(try{"carol", strayPeer, ownPod, silent}, try{"carol", strayPeer, "udp:" + ownPod + ":10053", silent})
	rel.Tenants[0].Shared = []Shared{{own, 6, 80}, {own, 17, 10053}}
	w.must(w.fence.Set(rel))
	w.expectAll([]try{
		{"carol", strayPeer, ownPod, "own"}, {"carol", strayPeer, "udp:" + ownPod + ":10053", "own"},
		{"carol", strayPeer, ownPod + ":10053", silent},               // another protocol
		{"carol", strayPeer, ownOther, silent},                        // another pod
		{"own", "", strayPeer, rejected},                              // the other way
		{"web1", "", ownPod, "alice"},                                 // to her guests that address is still one at home
		{"alice", homePod, web1, "web1"}, {"web1", "", job, rejected}, // and they have what they had
	}...)
	rel.Tenants[0].Shared = nil
	w.must(w.fence.Set(rel))
	w.expectAll(try{"carol", strayPeer, ownPod, silent})
}
