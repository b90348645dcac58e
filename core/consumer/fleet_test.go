package consumer

import (
	"net/netip"
	"testing"

	"kith.dev/core/api/v1alpha1"
)

// TestGuestsReachPodsOfTheirOwnClusterOnly: at home, and at every peer that one of its members stands for.
func TestGuestsReachPodsOfTheirOwnClusterOnly(t *testing.T) {
	f := &Fleet{Config: Config{Pods: netip.MustParsePrefix("10.42.0.0/16")}}
	reached := func() (all string) {
		for _, a := range []string{"10.42.0.5", "10.42.255.1", "10.71.0.9", "10.72.0.9", "192.168.1.9", "fd00::1"} {
			if f.reaches(netip.MustParseAddr(a)) {
				all += a + " "
			}
		}
		return all
	}
	if got := reached(); got != "10.42.0.5 10.42.255.1 " {
		t.Errorf("without a peer: %s", got)
	}
	f.space.Store(&[]netip.Prefix{netip.MustParsePrefix("10.71.0.0/24"), {}}) // the second is not linked yet
	if got := reached(); got != "10.42.0.5 10.42.255.1 10.71.0.9 " {
		t.Errorf("with one: %s", got)
	}
}

func TestAMemberKnowsTheRangeOfItsGuests(t *testing.T) {
	peer, m := &v1alpha1.Peer{}, &member{}
	for _, c := range []struct {
		network *v1alpha1.NetworkStatus
		changed bool
		want    string
	}{
		{nil, true, "invalid Prefix"}, // before the link; the first look is always news
		{nil, false, "invalid Prefix"},
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.0.0/24", Endpoint: "192.0.2.1:6450"}, true, "10.71.0.0/24"},
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.0.0/24", Endpoint: "192.0.2.2:6450"}, false, "10.71.0.0/24"}, // it moved
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.1.0/24"}, true, "10.71.1.0/24"},
	} {
		peer.Status.Network = c.network
		if changed := m.readdress(peer); changed != c.changed || m.guests.Load().String() != c.want {
			t.Errorf("%+v: changed %v, %s", c.network, changed, m.guests.Load())
		}
	}
}
