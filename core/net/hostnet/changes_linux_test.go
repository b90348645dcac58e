package hostnet

import (
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// apart has the test in a network namespace of its own, which ends with it.
func apart(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // and never unlocked: the thread goes with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func told(t *testing.T, news <-chan struct{}) (open bool) {
	t.Helper()
	select {
	case _, open = <-news:
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody told")
	}
	return open
}

// TestEachHearsOfItsKinds: one subscription, and who waits for routes is not woken by links.
func TestEachHearsOfItsKinds(t *testing.T) {
	apart(t)
	var c Changes
	hear := func(kinds Kinds) <-chan struct{} {
		news, stop, err := c.Listen(kinds)
		must(t, err)
		t.Cleanup(stop)
		return news
	}
	links, addresses, routes, routes6 := hear(Links), hear(Addresses), hear(Routes), hear(Routes6)
	socket := c.socket
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, netlink.LinkAdd(br))
	told(t, links)
	if len(addresses)+len(routes)+len(routes6) != 0 {
		t.Error("a link is news for those who wait for addresses and routes")
	}
	must(t, netlink.LinkSetUp(br))
	must(t, netlink.AddrAdd(br, &netlink.Addr{IPNet: IPNet(netip.MustParsePrefix("192.0.2.1/24"))}))
	told(t, addresses)
	told(t, routes) // to the network and to the address
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: br.Attrs().Index, Dst: IPNet(netip.MustParsePrefix("2001:db8::/64"))}))
	told(t, routes6)
	if c.socket != socket {
		t.Error("there was another subscription")
	}
}

// TestWhoListensHearsOfTheEnd: when the kernel tells nothing any more the channels are closed, and who listens again is told again.
func TestWhoListensHearsOfTheEnd(t *testing.T) {
	apart(t)
	var c Changes
	first, stopFirst, err := c.Listen(All)
	must(t, err)
	c.socket.Close()
	for told(t, first) {
	}
	again, stop, err := c.Listen(Links)
	must(t, err)
	stopFirst() // late, and of the subscription before
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	if !told(t, again) {
		t.Error("the new subscription ended with the old one")
	}
	if stop(); c.socket != nil {
		t.Error("nobody listens, and the socket is open")
	}
}

func TestKindsOf(t *testing.T) {
	message := func(kind uint16, family byte) []byte {
		b := make([]byte, unix.SizeofNlMsghdr+8)
		binary.NativeEndian.PutUint32(b, uint32(unix.SizeofNlMsghdr+5)) // padded
		binary.NativeEndian.PutUint16(b[4:], kind)
		b[unix.SizeofNlMsghdr] = family
		return b
	}
	for _, c := range []struct {
		news []byte
		want Kinds
	}{
		{nil, All}, // some were lost
		{message(unix.RTM_NEWLINK, 0), Links},
		{message(unix.RTM_DELADDR, unix.AF_INET6), Addresses},
		{message(unix.RTM_NEWROUTE, unix.AF_INET), Routes},
		{append(message(unix.RTM_DELROUTE, unix.AF_INET6), message(unix.RTM_DELLINK, 0)...), Routes6 | Links},
		{message(unix.RTM_NEWNEIGH, unix.AF_INET), 0},
		{message(unix.RTM_NEWLINK, 0)[:12], 0},
	} {
		if got := kindsOf(c.news); got != c.want {
			t.Errorf("%v: %b, want %b", c.news, got, c.want)
		}
	}
}
