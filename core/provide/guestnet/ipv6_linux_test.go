package guestnet

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// Of alice's guests, and of the pods that the laptop and she have at the same addresses.
const (
	web6  = "fd71:1:2:3::2"
	db6   = "fd71:1:2:3::3"
	link6 = "fd71:1:2:3::1" // the host's, on each guest's link

	pod6  = "2001:cafe:42::5"
	node6 = "2001:cafe:42:ff::1"
)

var (
	ofAlice6 = netip.MustParsePrefix("fd71:1:2:3::/64")
	both     = netplan.Cluster{Pods: laptops.Pods, Services: laptops.Services, IPv6: netplan.Cluster6{
		Pods: netip.MustParsePrefix("2001:cafe:42::/56"), Services: netip.MustParsePrefix("2001:cafe:43::/112"),
	}}
	services6 = []Tenant{{Guests: ofAlice, Guests6: ofAlice6, Services: Services{
		addr("10.43.9.9"): addr("10.43.7.7"), addr("2001:cafe:43::99"): addr("2001:cafe:43::77"), addr("2001:cafe:43::98"): addr("2001:cafe:43::78"),
	}}}
)

const kubeProxy6 = `table ip6 proxy {
  chain services {
    ip6 daddr 2001:cafe:43::77 tcp dport 80 dnat to [2001:cafe:42::5]:8080
    ip6 daddr 2001:cafe:43::77 udp dport 81 dnat to [2001:cafe:42::5]:9
    ip6 daddr { 2001:cafe:43::78, 2001:cafe:43::50 } tcp dport 80 dnat to [fd71:1:2:3::3]:8080
  }
  chain in { type nat hook prerouting priority dstnat; jump services; }
  chain out { type nat hook output priority -100; jump services; }
}`

// newWorld6 is a world whose laptop, and whose alice, have IPv6 beside IPv4.
func newWorld6(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.set("tunnel", "net/ipv6/conf/all/forwarding", "1")
	for _, a := range []string{pod6, node6} {
		w.address("alice", "lo", a)
	}
	w.route("alice", ofAlice6.String(), "tunnel", "", unix.RT_TABLE_MAIN)
	w.route("tunnel", ofAlice6.String(), "host", "", unix.RT_TABLE_MAIN)
	w.route("tunnel", "::/0", "alice", "", 1005)
	r := netlink.NewRule()
	r.Family, r.Src, r.Table, r.Priority = unix.AF_INET6, hostnet.IPNet(ofAlice6), 1005, 10
	w.must(w.net("tunnel").RuleAdd(r))
	w.address("host", "cni0", "2001:cafe:42::1")
	w.reach("own", pod6, "2001:cafe:42::1")
	w.route("host", pod6+"/128", "cni0", "", unix.RT_TABLE_MAIN)
	w.address("host", "lo", node6)
	for name, a := range map[string]string{"web": web6, "db": db6} {
		w.address("host", "v"+name, link6)
		w.reach(name, a, link6)
		w.route("host", a+"/128", "v"+name, "", unix.RT_TABLE_MAIN)
	}
	w.must(w.node.UseIPv6(both.IPv6.Gateway()))
	w.must(w.node.Sync(nil, nil, []noderoute.Tenant{
		{From: ofAlice, From6: ofAlice6, To: []noderoute.Route{{To: both.Pods, MTU: 1400}, {To: both.IPv6.Pods, MTU: 1400}}},
	}))
	w.nft(kubeProxy6)
	w.kernel = New(both, silent)
	w.must(w.kernel.Set(services6))
	return w
}

func TestGuestsLiveInTheIPv6AddressSpaceOfTheirHome(t *testing.T) {
	w := newWorld6(t)
	at := func(a string) string { return net.JoinHostPort(a, "8080") }
	for _, c := range []struct{ what, from, to, want string }{
		{"a pod at home, and not the owner's of that address", "web", at(pod6), "alice " + web6},
		{"the node at home, and not this one", "web", at(node6), "alice " + web6},
		{"a service at home", "web", "[2001:cafe:43::99]:80", "alice " + web6},
		{"a service with a guest here behind it", "web", "[2001:cafe:43::98]:80", "db " + web6},
		{"a service of the owner's, of an address that home has not", "web", "[2001:cafe:43::50]:80", ""},
		{"a guest, by its address", "web", at(db6), "db " + web6},
		{"from home's pod", "alice", at(web6), "web " + node6},
		{"a probe", "host", at(web6), "web " + link6},
		{"the owner's pod asks a guest", "own", at(web6), "web " + link6},
		{"the owner's pod, by a service", "own", "[2001:cafe:43::78]:80", "db " + link6},
		{"IPv4 is as it was", "web", "10.43.9.9:80", "alice " + web},
	} {
		if got := w.ask(c.from, c.to); got != c.want {
			t.Errorf("%s: %s at %s: %q, want %q", c.what, c.from, c.to, got, c.want)
		}
	}
}

// TestAStreamThroughAnIPv6ServiceIsWhole: checksums fit, also of segments that the kernel cuts later.
func TestAStreamThroughAnIPv6ServiceIsWhole(t *testing.T) {
	w := newWorld6(t)
	for _, to := range []string{"[2001:cafe:43::99]:80", "[2001:cafe:43::98]:80"} {
		w.must(w.in("web", func() error {
			c, err := net.DialTimeout("tcp6", to, 5*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
			sent := make([]byte, 4<<20)
			_, _ = rand.Read(sent)
			go func() {
				_, _ = c.Write(sent)
				_ = c.(*net.TCPConn).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if _, echo, _ := bytes.Cut(got, []byte("\n")); err == nil && !bytes.Equal(echo, sent) {
				t.Errorf("%s: %d bytes came back of %d, or others", to, len(echo), len(sent))
			}
			return err
		}))
	}
}

// TestIPv6ErrorsReachWhoAskedAService: a guest finds its connection by what the error quotes.
func TestIPv6ErrorsReachWhoAskedAService(t *testing.T) {
	w := newWorld6(t)
	err := w.in("web", func() error {
		c, err := net.Dial("udp6", "[2001:cafe:43::99]:81") // closed at the pod
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err = c.Write([]byte("hello")); err == nil {
			_, err = c.Read(make([]byte, 10))
		}
		return err
	})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want connection refused", err)
	}
}
