package consumer

import (
	"net/netip"
	"testing"

	"kith.dev/core/api/v1alpha1"
)

func TestAddressesOutward(t *testing.T) {
	same := &v1alpha1.NetworkStatus{
		Theirs: []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.65.0.0/16"}},
		Ours:   []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.70.0.0/16"}},
	}
	apart := &v1alpha1.NetworkStatus{
		Theirs: []v1alpha1.RangeAlias{{Name: "pods", Real: "10.50.0.0/16", Alias: "10.50.0.0/16"}},
		Ours:   []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.42.0.0/16"}, {Name: "broken", Real: "x", Alias: "y"}},
	}
	for _, c := range []struct {
		network  *v1alpha1.NetworkStatus
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
		got, ok := outward(c.network)(netip.MustParseAddr(c.in))
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s is %s (%v), want %q", c.in, got, ok, c.want)
		}
	}
}
