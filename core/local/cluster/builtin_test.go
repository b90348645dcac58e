package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/net/netplan"
)

func TestAddressesFollowThePodRange(t *testing.T) {
	for _, tt := range []struct{ pods, nodeIP, podCIDR string }{
		{"10.42.0.0/16", "10.42.255.1", "10.42.0.0/24"},
		{"10.0.0.0/8", "10.255.255.1", "10.0.0.0/24"},
		{"192.168.4.0/22", "192.168.7.1", "192.168.4.0/24"},
		{"172.20.6.0/23", "172.20.7.1", "172.20.6.0/24"},
	} {
		b, err := NewBuiltin(BuiltinConfig{NodeName: "alice", DataDir: "/var/lib/kith/k8s", Network: netplan.Cluster{Pods: netip.MustParsePrefix(tt.pods), Services: netplan.Usual().Services}})
		if err != nil {
			t.Fatal(err)
		}
		f := b.Facts()
		if got := f.NodeIP.String(); got != tt.nodeIP || f.API.String() != tt.nodeIP+":6443" {
			t.Errorf("%s: node IP %s, API server at %s, want %s", tt.pods, got, f.API, tt.nodeIP)
		}
		if f.GuestNetworks != "/var/lib/kith/k8s/guests" || !slices.Contains(b.args(), "--guest-networks="+f.GuestNetworks) {
			t.Errorf("networks of guests in %q, the engine is told %v", f.GuestNetworks, b.args())
		}
		if !f.Ours || !f.GuestLinks || !f.TenantDNS || !f.NodePorts {
			t.Errorf("the engine can less than it does: %+v", f)
		}
		if got := f.Network.NodePods().String(); got != tt.podCIDR {
			t.Errorf("%s: pod CIDR %s, want %s", tt.pods, got, tt.podCIDR)
		}
		if f.Network.NodePods().Contains(f.NodeIP) {
			t.Errorf("%s: a pod may get the node's address", tt.pods)
		}
	}
}

func TestRangesThatCannotWorkAreRefused(t *testing.T) {
	for _, cfg := range []BuiltinConfig{
		{NodeName: "a", Network: netplan.Cluster{Pods: netip.MustParsePrefix("10.42.0.0/24"), Services: netplan.Usual().Services}},
		{NodeName: "a", Network: netplan.Cluster{Pods: netip.MustParsePrefix("fd00::/48"), Services: netplan.Usual().Services}},
		{NodeName: "a", Network: netplan.Cluster{Pods: netplan.Usual().Pods, Services: netip.MustParsePrefix("10.43.0.0/28")}},
		{NodeName: "a"},
		{Network: netplan.Usual()},
	} {
		if _, err := NewBuiltin(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestAnotherStateIsTold(t *testing.T) {
	s := newStatus(Starting, "not asked yet")
	told := func(set func()) bool {
		changed := s.changed.Wait()
		set()
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	if !told(func() { s.set(Ready, "") }) || !told(func() { s.set(Degraded, "it hangs") }) || !told(func() { s.set(Degraded, "it is full") }) {
		t.Error("nobody hears of another state")
	}
	if told(func() { s.set(Degraded, "it is full") }) {
		t.Error("the same state is told again")
	}
}

func TestArgumentsSayNetworkAndImages(t *testing.T) {
	b, err := NewBuiltin(BuiltinConfig{NodeName: "alice", ClusterID: "mfzwi3d", Network: netplan.Usual(), ImagesDir: "/images", ExposeLAN: true, Flags: []string{"--pod-mtu=1400"}})
	if err != nil {
		t.Fatal(err)
	}
	args := b.args()
	for _, want := range []string{"--images-dir=/images", "--expose=lan", "--pod-mtu=1400", "--cluster-id=mfzwi3d", "--cluster-dns=10.43.0.10", "--node-ip=10.42.255.1"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %s", want, strings.Join(args, " "))
		}
	}
}

func TestFailedChecksNameWhatIsWrong(t *testing.T) {
	body := "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: not finished\nreadyz check failed\n"
	want := "etcd failed: reason withheld; poststarthook/rbac/bootstrap-roles failed: not finished"
	if got := failedChecks(body); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := failedChecks("Unauthorized\n"); got != "Unauthorized" {
		t.Errorf("got %q", got)
	}
}
