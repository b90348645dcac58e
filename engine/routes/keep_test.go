package routes

import (
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// TestRoutesAreOursAlone: they are put, moved and taken away again, and others' stay.
func TestRoutesAreOursAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // for good: the thread, and its namespace, end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	lan := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 2), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(eth, lan); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(eth); err != nil {
		t.Fatal(err)
	}
	_, others, _ := net.ParseCIDR("10.42.9.0/24")
	if err := netlink.RouteAdd(&netlink.Route{Dst: others, Gw: net.IPv4(192, 0, 2, 77)}); err != nil {
		t.Fatal(err)
	}
	is := func(want ...string) {
		t.Helper()
		all, err := netlink.RouteList(eth, unix.AF_INET)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range all {
			if r.Gw != nil {
				got = append(got, r.Dst.String()+" "+r.Gw.String())
			}
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("routes %q, want %q", got, want)
		}
	}
	do := func(want ...string) {
		t.Helper()
		if err := apply(ways(want...)); err != nil {
			t.Fatal(err)
		}
	}
	do("10.42.1.0/24 192.0.2.3", "10.42.2.0/24 192.0.2.4")
	do("10.42.1.0/24 192.0.2.3", "10.42.2.0/24 192.0.2.4")
	is("10.42.1.0/24 192.0.2.3", "10.42.2.0/24 192.0.2.4", "10.42.9.0/24 192.0.2.77")
	do("10.42.1.0/24 192.0.2.13")
	is("10.42.1.0/24 192.0.2.13", "10.42.9.0/24 192.0.2.77")
	if err := apply(ways("10.42.1.0/24 192.0.2.13", "10.42.3.0/24 198.51.100.1")); err == nil || !strings.Contains(err.Error(), "route to 10.42.3.0/24 by 198.51.100.1") {
		t.Errorf("over a router: %v", err)
	}
	if err := Remove(); err != nil {
		t.Fatal(err)
	}
	is("10.42.9.0/24 192.0.2.77")
}

// TestNodesAreReadOldestFirst: what a peer's node says is not looked at, and the server is where it said to be.
func TestNodesAreReadOldestFirst(t *testing.T) {
	at := func(name, pods, ip string, age time.Duration, labels map[string]string) any {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       corev1.NodeSpec{PodCIDR: pods},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"}, {Type: corev1.NodeInternalIP, Address: ip},
			}},
		}
		small, err := essence(n)
		if err != nil {
			t.Fatal(err)
		}
		return small
	}
	o := Options{Server: "alice", ServerLAN: netip.MustParseAddr("192.0.2.11")}
	got := o.list([]any{
		at("bob", "10.42.1.0/24", "192.0.2.12", time.Minute, nil), at("kith-carol", "10.42.2.0/24", "10.42.255.1", time.Second, map[string]string{v1alpha1.LabelPeer: "carol"}),
		at("alice", "10.42.0.0/24", "10.42.255.1", time.Hour, nil), at("dave", "", "192.0.2.14", time.Minute, nil),
	})
	want := []Node{
		node("alice", "10.42.0.0/24", "10.42.255.1", "192.0.2.11"), node("bob", "10.42.1.0/24", "192.0.2.12", "192.0.2.12"), node("dave", "", "192.0.2.14", "192.0.2.14"),
		node("kith-carol", "", "10.42.255.1", "10.42.255.1"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
