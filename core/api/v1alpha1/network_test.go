package v1alpha1

import (
	"net/netip"
	"testing"
)

func TestAddressesOutward(t *testing.T) {
	same := &NetworkStatus{
		Theirs: []RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.65.0.0/16"}},
		Ours:   []RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.70.0.0/16"}},
	}
	apart := &NetworkStatus{
		Theirs: []RangeAlias{{Name: "pods", Real: "10.50.0.0/16", Alias: "10.50.0.0/16"}},
		Ours:   []RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.42.0.0/16"}, {Name: "broken", Real: "x", Alias: "y"}},
	}
	for _, c := range []struct {
		network  *NetworkStatus
		in, want string // "" when the peer does not reach it
	}{
		{same, "10.42.0.5", "10.70.0.5"},
		{same, "10.65.0.5", "10.42.0.5"},
		{same, "10.80.0.5", ""},
		{apart, "10.42.0.5", "10.42.0.5"},
		{apart, "10.50.0.5", "10.50.0.5"},
		{apart, "192.0.2.1", ""},
		{nil, "10.42.0.5", ""},
	} {
		got, ok := c.network.Pair().There(netip.MustParseAddr(c.in))
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s is %s (%v), want %q", c.in, got, ok, c.want)
		}
	}
}
