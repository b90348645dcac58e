package fence

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHostSendsIntoTheTunnelOnlyToPeers: a route that should not be there brings nothing of the host's own to a peer.
func TestHostSendsIntoTheTunnelOnlyToPeers(t *testing.T) {
	const stray = "10.79.0.4" // nobody is seen there
	w := newWorld(t)
	w.address("far", "eth0", stray+"/32")
	w.routeDev("host", "10.79.0.0/16", "kith0", "10.42.255.2")
	w.expect("host", stray, open) // without a fence
	if got := w.far(stray, nodeIP); got != open {
		t.Fatalf("without a fence, from a stray address to the host: %s", got)
	}
	w.must(w.fence.Raise())
	w.expect("host", aliceHome, rejected) // nobody is known yet
	rel := twoTenants()
	w.must(w.fence.Set(rel))
	for _, to := range []string{aliceHome, doraHome, provider, "udp:" + aliceHome + ":10053"} {
		w.expect("host", to, open)
	}
	w.expect("host", stray, rejected)
	if got := w.dial("host", "udp:"+stray+":10053"); !strings.Contains(string(got), "not permitted") {
		t.Errorf("host to %s by UDP: %s", stray, got)
	}
	w.expect("own", stray, rejected)
	w.expect("host", neighbour, open) // elsewhere as ever
	w.expect("host", internet, open)
	for _, to := range []string{nodeIP, hostLAN, bridge, ownPod, web1} {
		if got := w.far(stray, to); got != silent {
			t.Errorf("from a stray address to %s: %s", to, got)
		}
	}

	// Each packet is judged by where it goes: with the link ends what was open by it.
	var c net.Conn
	w.in("host", func() (err error) {
		c, err = net.DialTimeout("tcp", aliceHome+":80", patience)
		return err
	})
	defer c.Close()
	say := func() error {
		_ = c.SetDeadline(time.Now().Add(2 * patience))
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 5))
		return err
	}
	if err := say(); err != nil {
		t.Fatal(err)
	}
	rel.Tenants = slices.DeleteFunc(rel.Tenants, func(one Tenant) bool { return one.Consumer == "alice" })
	w.must(w.fence.Set(rel))
	if say() == nil {
		t.Error("the host's connection to a former peer goes on")
	}
	w.expect("host", aliceHome, rejected)
	w.expect("host", doraHome, open)
}
