package tenants

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/guests"
)

var network = grants.Network{Guests: "10.71.0.0/24", Space: "10.42.0.0/16,10.72.0.0/24", Services: "10.43.0.0/16"}

// TestGuestsHaveARangeBeforeTheyHaveANamespace: the twin has the address space of home, and the plugin its range, when the consumer hears
// of it; both follow what is agreed on, and the range goes with the namespace.
func TestGuestsHaveARangeBeforeTheyHaveANamespace(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	p := newProvider(t, peer, contract)
	p.tenants.networks = filepath.Join(t.TempDir(), "guests")
	if _, err := p.ensure(contract, bob, "shop", ""); err == nil || err.(*api.Error).Code != api.CodeNotReady {
		t.Fatalf("no addresses are agreed on: %v", err)
	}
	agree := func(n *v1alpha1.NetworkStatus) {
		t.Helper()
		peer.Status.Network = n
		if err := p.client.Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		if _, err := p.contracts.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	is := func(guests, space string) {
		t.Helper()
		var ns corev1.Namespace
		if err := p.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns); err != nil {
			t.Fatal(err)
		}
		told, err := os.ReadFile(filepath.Join(p.tenants.networks, bobsShop))
		if got := ns.Annotations[kinds.AnnotationSpace]; err != nil || !strings.Contains(string(told), `"`+guests+`"`) || got != space {
			t.Errorf("told %s, %v; the address space is %s", told, err, got)
		}
	}
	agree(&v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16"}})
	if _, err := p.ensure(contract, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	is("10.71.0.0/24", "10.71.0.0/24,10.42.0.0/16")
	agree(&v1alpha1.NetworkStatus{GuestsHere: "10.71.1.0/24", Space: []string{"10.42.0.0/16", "10.72.0.0/24"}}) // carol provides too, and another range was free
	if err := p.tenants.Reapply(t.Context(), p.contracts.Of("contractb")); err != nil {
		t.Fatal(err)
	}
	is("10.71.1.0/24", "10.71.1.0/24,10.42.0.0/16,10.72.0.0/24")

	if err := p.tenants.tellNetwork(bobsShop); err != nil { // by whoever began under the terms of before, and comes last
		t.Fatal(err)
	}
	is("10.71.1.0/24", "10.71.1.0/24,10.42.0.0/16,10.72.0.0/24")
	if err := guestnet.WriteNetwork(p.tenants.networks, "bank-bob", netip.MustParsePrefix("10.71.1.0/24"), netip.Prefix{}, netip.Prefix{}); err != nil { // it went while no daemon ran
		t.Fatal(err)
	}
	p.tenants.sweep()
	if _, err := os.Stat(filepath.Join(p.tenants.networks, "bank-bob")); err == nil {
		t.Error("the range of a namespace that went unseen is still told")
	}

	p.tenants.Gone(bobsShop) // news of one of that name that was there before
	is("10.71.1.0/24", "10.71.1.0/24,10.42.0.0/16,10.72.0.0/24")
	p.contracts.NamespaceChanged(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bobsShop, UID: p.contracts.Twin(bobsShop).UID}}, true)
	p.tenants.Gone(bobsShop)
	if _, err := os.Stat(filepath.Join(p.tenants.networks, bobsShop)); err == nil {
		t.Error("the range of a namespace that is gone is still told")
	}
}

func serviceIn(namespace, name, home, here string, age time.Duration) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: guests.Selector, Annotations: map[string]string{kinds.AnnotationClusterIP: home},
			CreationTimestamp: metav1.NewTime(time.Unix(2_000_000_000, 0).Add(-age))},
		Spec: corev1.ServiceSpec{ClusterIP: here, ClusterIPs: []string{here}},
	}
}

// TestServicesOfAHomeAreBelievedWithinItsRange: two consumers with the same ranges, each led to its own.
func TestServicesOfAHomeAreBelievedWithinItsRange(t *testing.T) {
	carols := grants.Network{Guests: "10.73.0.0/24", Space: "10.42.0.0/16", Services: "10.43.0.0/16"}
	of := func(namespace string) grants.Network {
		return map[string]grants.Network{"shop-alice": network, "bank-alice": network, "shop-carol": carols, "shop-dave": {Services: "10.43.0.0/16"}}[namespace]
	}
	got, believed, left := tenantsOf([]grants.Network{network, carols, {Guests: "nonsense"}, {Guests: "10.74.0.0/16", Services: "10.43.0.0/16"}}, []corev1.Service{
		serviceIn("bank-alice", kinds.APIServerAbroad, "10.43.0.1", "10.43.9.2", time.Minute),
		serviceIn("shop-alice", kinds.APIServerAbroad, "10.43.0.1", "10.43.9.1", time.Hour), // the oldest counts
		serviceIn("shop-alice", "web", "10.43.1.2", "10.43.9.3", 0),
		serviceIn("shop-alice", "thief", "10.43.1.2", "10.43.9.4", 0), // of the same age
		serviceIn("shop-alice", "outside", "10.42.0.5", "10.43.9.5", 0),
		serviceIn("shop-alice", "internet", "9.9.9.9", "10.43.9.6", 0),
		serviceIn("shop-alice", "headless", "", corev1.ClusterIPNone, 0),
		serviceIn("shop-alice", "headless here", "10.43.1.3", corev1.ClusterIPNone, 0),
		serviceIn("shop-alice", "odd", "fd00::1", "10.43.9.7", 0),
		serviceIn("shop-alice", "another's", "10.43.1.5", "10.43.9.8", -time.Minute), // as a cache may have it while one goes and one comes
		serviceIn("shop-carol", "web", "10.43.1.2", "10.43.9.8", 0),
		serviceIn("shop-dave", "unlinked", "10.43.1.2", "10.43.9.9", 0),
		serviceIn("owners", "own", "10.43.1.4", "10.43.9.10", 0),
	}, of)
	a := netip.MustParseAddr
	both := network
	both.Guests6, both.Services6 = "fd71:1:2:3::/64", "2001:cafe:43::/112"
	dual := func(name, home6, here6 string) corev1.Service {
		s := serviceIn("shop-alice", name, "10.43.1.9", "10.43.9.20", 0)
		s.Annotations[kinds.AnnotationClusterIPv6], s.Spec.ClusterIPs = home6, []string{"10.43.9.20", here6}
		return s
	}
	for _, c := range []struct {
		home, here string
		n          grants.Network
		leads      bool
	}{
		{"2001:cafe:43::9", "fd44::9", both, true},
		{"2001:cafe:43::9", "fd44::9", network, false}, // IPv6 was not agreed on
		{"2001:cafe:42::9", "fd44::9", both, false},
		{"10.43.1.9", "fd44::9", both, false},
		{"::ffff:10.43.1.9", "fd44::9", both, false},
		{"2001:cafe:43::9%eth0", "fd44::9", both, false},
	} {
		got, believed, _ := tenantsOf([]grants.Network{c.n}, []corev1.Service{dual("web", c.home, c.here)}, func(string) grants.Network { return c.n })
		if here, leads := got[0].Services[a("2001:cafe:43::9")]; leads != c.leads || leads && here != a(c.here) || got[0].Services[a("10.43.1.9")] != a("10.43.9.20") || len(got[0].Services) > 2 || len(believed["shop-alice"]) != 1 {
			t.Errorf("%s to %s: %v, %v", c.home, c.here, got, believed)
		}
	}
	want := []guestnet.Tenant{
		{Guests: netip.MustParsePrefix("10.71.0.0/24"), Services: guestnet.Services{a("10.43.0.1"): a("10.43.9.1"), a("10.43.1.2"): a("10.43.9.4")}}, // by name
		{Guests: netip.MustParsePrefix("10.73.0.0/24"), Services: guestnet.Services{a("10.43.1.2"): a("10.43.9.8")}},
	}
	if !reflect.DeepEqual(got, want) || len(left) > 0 || len(believed["shop-alice"]) != 2 || len(believed["bank-alice"])+len(believed["shop-dave"])+len(believed["owners"]) > 0 {
		t.Errorf("got %v, left %v\nwant %v", got, left, want)
	}

	var many []corev1.Service
	for i := range guestnet.MaxServices + 10 {
		many = append(many, serviceIn("shop-alice", fmt.Sprint(i), fmt.Sprintf("10.43.%d.%d", 16+i/256, i%256), fmt.Sprintf("10.43.%d.%d", 64+i/256, i%256), 0))
	}
	if got, _, left := tenantsOf([]grants.Network{network}, many, of); len(got[0].Services) != guestnet.MaxServices || left[network.Guests] != 10 {
		t.Errorf("%d services, left %v", len(got[0].Services), left)
	}
}

type kernel struct {
	sets [][]guestnet.Tenant
	err  error
}

func (k *kernel) Set(all []guestnet.Tenant) error {
	k.sets = append(k.sets, all)
	return k.err
}

// TestTheKernelIsToldWhatChanged: of a consumer before it has services, again after an error, and of nothing twice.
func TestTheKernelIsToldWhatChanged(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16"}, Services: "10.43.0.0/16"}
	contract := contractWith("bob", "contractb")
	p := newProvider(t, peer, contract)
	shop, err := p.ensure(contract, bob, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{err: errors.New("busy")}
	s := &services{tenants: p.tenants, kernel: k}
	look := func(sets, services int) {
		t.Helper()
		s.next = time.Time{}
		if _, err := s.Reconcile(t.Context(), ctrl.Request{}); (err != nil) != (k.err != nil) {
			t.Fatal(err)
		}
		if len(k.sets) != sets || len(k.sets[sets-1]) != 1 || len(k.sets[sets-1][0].Services) != services {
			t.Errorf("told %v", k.sets)
		}
	}
	look(1, 0)
	k.err = nil
	look(2, 0)
	look(2, 0)
	web := serviceIn(shop, "web", "10.43.1.2", "10.43.9.3", 0)
	if err := p.client.Create(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	look(3, 1)
	if err := p.client.Delete(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	s.next = time.Now().Add(time.Minute)
	if result, err := s.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter <= 0 || len(k.sets) != 3 {
		t.Errorf("too soon: %v, %v, told %v", result, err, k.sets)
	}
	look(4, 0)
}

func TestTheNetworkOfAConsumer(t *testing.T) {
	pods := netip.MustParsePrefix("10.42.0.0/16")
	translated := grants.Network{Guests: "198.18.0.0/16", Space: "10.42.0.0/16,198.19.4.0/24", GuestsHere: "10.42.0.0/16", SpaceHere: "10.71.0.0/16,10.72.0.0/24"}
	dual := network
	dual.Guests6, dual.Space6, dual.Services6 = "fd71:1:2:3::/64", "2001:cafe:42::/56", "2001:cafe:43::/112"
	for _, c := range []struct {
		pods   netip.Prefix
		status *v1alpha1.NetworkStatus
		want   grants.Network
		space  string
	}{
		{netip.Prefix{}, nil, grants.Network{}, ""},
		{pods, nil, grants.Network{}, ""},
		{netip.Prefix{}, &v1alpha1.NetworkStatus{GuestsThere: "10.71.0.0/24"}, grants.Network{}, ""}, // it provides only
		{netip.Prefix{}, &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"nonsense"}}, grants.Network{}, ""},
		{netip.Prefix{}, &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16", "10.72.0.0/24"}, Services: "10.43.0.0/16"}, network, "10.71.0.0/24,10.42.0.0/16,10.72.0.0/24"},
		{netip.Prefix{}, &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16", "10.72.0.0/24"}, Services: "10.43.0.0/16", IPv6: &v1alpha1.NetworkIPv6{
			GuestsHere: "fd71:1:2:3::/64", Space: []string{"2001:cafe:42::/56"}, Services: "2001:cafe:43::/112",
		}}, dual, "10.71.0.0/24,10.42.0.0/16,10.72.0.0/24,fd71:1:2:3::/64,2001:cafe:42::/56"},
		{pods, &v1alpha1.NetworkStatus{GuestsHere: "198.18.0.0/16", Space: []string{"10.42.0.0/16", "198.19.4.0/24"}, Aliases: []v1alpha1.RangeAlias{
			{Real: "10.42.0.0/16", Alias: "10.71.0.0/16"}, {Real: "198.19.4.0/24", Alias: "10.72.0.0/24"},
		}}, translated, "10.42.0.0/16,10.71.0.0/16,10.72.0.0/24"},
	} {
		got := grants.NetworkOf(&v1alpha1.Peer{Status: v1alpha1.PeerStatus{Network: c.status}}, c.pods)
		var elsewhere []string
		for _, p := range got.Elsewhere() {
			elsewhere = append(elsewhere, p.String())
		}
		want := c.want.Space
		if c.want.SpaceHere != "" {
			want = c.want.SpaceHere
		}
		if c.want.Space6 != "" {
			want += "," + c.want.Space6
		}
		if got != c.want || got.AddressSpace() != c.space || strings.Join(elsewhere, ",") != want {
			t.Errorf("%+v: %+v, %s", c.status, got, got.AddressSpace())
		}
		for home, here := range map[string]string{"198.18.3.4": "10.42.3.4", "10.42.3.4": "10.71.3.4", "198.19.4.9": "10.72.0.9"} {
			moved, ok := got.Translation().Here(netip.MustParseAddr(home))
			if c.want != translated {
				here = home
			}
			if !ok || moved.String() != here {
				t.Errorf("%+v: %s is %s here, %v", got, home, moved, ok)
			}
		}
	}
}

// TestEndpointsGoWithTheNamesTheyHave: a range of home's has another name here than when its endpoints were written; home does not know, and writes
// anew what it sees gone. While the names stay, so do the endpoints.
func TestEndpointsGoWithTheNamesTheyHave(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	p := newProvider(t, peer, contract)
	p.contracts.Pods = netip.MustParsePrefix("10.42.0.0/16")
	shop, err := p.ensure(contract, bob, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{"web": guests.Selector, "the-owners": nil} {
		if err := p.client.Create(t.Context(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	agree := func(want int, aliases ...v1alpha1.RangeAlias) {
		t.Helper()
		peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "198.18.0.0/16", Space: []string{"10.42.0.0/16"}, Aliases: aliases}
		if err := p.client.Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		if _, err := p.contracts.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.tenants.Reapply(t.Context(), p.contracts.Of("contractb")); err != nil {
			t.Fatal(err)
		}
		var left discoveryv1.EndpointSliceList
		if err := p.client.List(t.Context(), &left, client.InNamespace(shop)); err != nil || len(left.Items) != want {
			t.Errorf("%d slices, %v; want %d", len(left.Items), err, want)
		}
	}
	home, carols := v1alpha1.RangeAlias{Real: "10.42.0.0/16", Alias: "10.71.0.0/16"}, v1alpha1.RangeAlias{Real: "198.19.4.0/24", Alias: "10.72.0.0/24"}
	agree(2, home)
	agree(2, home, carols)
	home.Alias = "10.73.0.0/16"
	agree(1, home, carols)
}
