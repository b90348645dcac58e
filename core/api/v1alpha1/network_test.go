package v1alpha1

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"kith.dev/core/net/netplan"
)

func agreed() *NetworkStatus {
	return &NetworkStatus{
		PublicKey: "x", GuestsThere: "10.64.3.0/24", GuestsHere: "10.70.0.0/24", Space: []string{"10.42.0.0/16", "10.65.9.0/24"}, Services: "10.43.0.0/16",
		AtThere: "10.64.3.1", AtHome: "10.42.255.2",
	}
}

func TestPairOfANetwork(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	want := netplan.Pair{
		There: prefix("10.64.3.0/24"), Here: prefix("10.70.0.0/24"), Space: []netip.Prefix{prefix("10.42.0.0/16"), prefix("10.65.9.0/24")},
		Services: prefix("10.43.0.0/16"), AtThere: addr("10.64.3.1"), AtHome: addr("10.42.255.2"),
	}
	got, err := agreed().Pair(netip.Prefix{})
	if err != nil || !reflect.DeepEqual(got, want) || got.Validate() != nil {
		t.Errorf("%+v, %v, %v", got, err, got.Validate())
	}
	translated := agreed()
	translated.GuestsHere, translated.Aliases = "10.70.0.0/16", []RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.71.0.0/16"}}
	pods := prefix("10.42.0.0/16")
	want.Here, want.Guests = prefix("10.70.0.0/16"), netplan.Mapping{Name: "guests", Real: pods, Alias: prefix("10.70.0.0/16")}
	want.Aliases = []netplan.Mapping{{Name: "pods", Real: pods, Alias: prefix("10.71.0.0/16")}}
	if got, err = translated.Pair(pods); err != nil || !reflect.DeepEqual(got, want) || got.Validate() != nil {
		t.Errorf("%+v, %v, %v", got, err, got.Validate())
	}
	both := agreed()
	both.IPv6 = &NetworkIPv6{
		GuestsThere: "fd11::/64", GuestsHere: "fd22::/64", Space: []string{"2001:cafe:42::/56"}, Services: "2001:cafe:43::/112", AtThere: "fd11::1", AtHome: "2001:cafe:42:ff::2",
	}
	six := netplan.Pair6{
		There: prefix("fd11::/64"), Here: prefix("fd22::/64"), Space: []netip.Prefix{prefix("2001:cafe:42::/56")}, Services: prefix("2001:cafe:43::/112"),
		AtThere: addr("fd11::1"), AtHome: addr("2001:cafe:42:ff::2"),
	}
	if got, err = both.Pair(netip.Prefix{}); err != nil || !reflect.DeepEqual(got.IPv6, six) || got.Validate() != nil {
		t.Errorf("%+v, %v, %v", got, err, got.Validate())
	}
	var none *NetworkStatus
	if got, err := none.Pair(pods); err != nil || !reflect.DeepEqual(got, netplan.Pair{}) || none.Ranges() != nil {
		t.Errorf("of no network: %+v, %v", got, err)
	}
	if got := translated.Ranges(); !reflect.DeepEqual(got, []netip.Prefix{want.There, want.Here, want.Aliases[0].Alias}) {
		t.Errorf("ranges: %v", got)
	}
}

func TestWhatCannotBeReadOfANetworkIsNamed(t *testing.T) {
	for field, change := range map[string]func(*NetworkStatus){
		"guestsThere":      func(n *NetworkStatus) { n.GuestsThere = "x" },
		"guestsHere":       func(n *NetworkStatus) { n.GuestsHere = "10.0.0.0" },
		"space":            func(n *NetworkStatus) { n.Space[1] = "10.0.0.0/33" },
		"services":         func(n *NetworkStatus) { n.Services = "/16" },
		"atThere":          func(n *NetworkStatus) { n.AtThere = "10.0.0" },
		"atHome":           func(n *NetworkStatus) { n.AtHome = "home" },
		"aliases":          func(n *NetworkStatus) { n.Aliases = []RangeAlias{{Name: "a", Real: "x", Alias: "y"}} },
		"ipv6.guestsThere": func(n *NetworkStatus) { n.IPv6 = &NetworkIPv6{GuestsThere: "fd11::"} },
		"ipv6.guestsHere":  func(n *NetworkStatus) { n.IPv6 = &NetworkIPv6{GuestsHere: "fd11::/129"} },
		"ipv6.services":    func(n *NetworkStatus) { n.IPv6 = &NetworkIPv6{Services: "x"} },
		"ipv6.atThere":     func(n *NetworkStatus) { n.IPv6 = &NetworkIPv6{AtThere: "fd11"} },
		"ipv6.atHome":      func(n *NetworkStatus) { n.IPv6 = &NetworkIPv6{AtHome: "home"} },
	} {
		n := agreed()
		change(n)
		if _, err := n.Pair(netip.Prefix{}); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
