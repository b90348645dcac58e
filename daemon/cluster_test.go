package daemon

import (
	"net/netip"
	"testing"

	"kith.dev/core/local/cluster"
	"kith.dev/core/net/netplan"
)

// TestWhoCanTakeGuestsIn: whoever gives them addresses, or has no more of others' than peers agree on.
func TestWhoCanTakeGuestsIn(t *testing.T) {
	for pods, want := range map[string]string{
		"10.42.0.0/16": "", "10.42.3.0/24": "", "10.32.0.0/12": "its pods have addresses of 10.32.0.0/12, and peers agree on no more than a /16",
	} {
		network := netplan.Cluster{Pods: netip.MustParsePrefix(pods)}
		if got := noGuests(cluster.Facts{Network: network}); got != want {
			t.Errorf("%s: %q, want %q", pods, got, want)
		}
		if got := noGuests(cluster.Facts{Network: network, GuestLinks: true}); got != "" {
			t.Errorf("%s, and addresses of its own for guests: %q", pods, got)
		}
	}
}
