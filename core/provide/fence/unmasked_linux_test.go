package fence

import (
	"net"
	"strings"
	"testing"
	"time"
)

// flannel hides pods behind the machine's address wherever they go but to other pods. What goes to peers keeps its source; the rest is hidden as
// before.
func TestPodsKeepTheirAddressesOnTheWayToPeers(t *testing.T) {
	w := newWorld(t)
	w.nft(`add table ip plugin
add chain ip plugin post { type nat hook postrouting priority srcnat; }
add rule ip plugin post ip saddr 10.42.0.0/16 ip daddr != 10.42.0.0/16 masquerade`)
	source := func(place, to string) string {
		t.Helper()
		p := w.listen(place)
		defer p.Close()
		var c net.Conn
		w.in("own", func() (err error) {
			c, err = net.Dial("udp", to+":7777")
			return err
		})
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = p.SetReadDeadline(time.Now().Add(time.Minute))
		_, from, err := p.ReadFrom(make([]byte, 1))
		if err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		ip, _, _ := strings.Cut(from.String(), ":")
		return ip
	}
	if got := source("bea", beas); got == ownPod || got == ownOther {
		t.Fatalf("the plugin does not hide %s", got)
	}
	f := w.byAddress()
	w.must(f.Set(Relations{Providers: []Provider{{Peer: "bea", Guests: ranges(atBea)[0]}}}))
	if got := source("bea", beas); got != ownPod && got != ownOther {
		t.Errorf("a peer sees a pod as %s", got)
	}
	if got := source("neighbour", neighbour); got != hostLAN {
		t.Errorf("a neighbour sees a pod as %s, want %s", got, hostLAN)
	}
}
