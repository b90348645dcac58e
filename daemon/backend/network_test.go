package backend

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
)

// A code confirms the question that is pending, and no other of the network; and who says nothing of that asks for what he asked for last.
func TestANetworkIsWhatWasAskedForLast(t *testing.T) {
	four := corev1.ResourceList{"cpu": resource.MustParse("4")}
	for name, c := range map[string]struct {
		was   v1alpha1.Network
		asks  corev1.ResourceList
		ask   api.PeerAsk
		next  v1alpha1.Network
		waits bool // for the answer to the question that is pending
	}{
		"as ever":                   {waits: true},
		"none, pending":             {was: v1alpha1.NetworkNone, next: v1alpha1.NetworkNone, waits: true},
		"its code":                  {was: v1alpha1.NetworkNone, ask: api.PeerAsk{Code: "069210"}, next: v1alpha1.NetworkNone, waits: true},
		"its code, and none again":  {was: v1alpha1.NetworkNone, ask: api.PeerAsk{Code: "069210", Network: api.NetworkNone}, next: v1alpha1.NetworkNone, waits: true},
		"none with another's code":  {ask: api.PeerAsk{Code: "069210", Network: api.NetworkNone}, next: v1alpha1.NetworkNone},
		"a tunnel, with none's":     {was: v1alpha1.NetworkNone, ask: api.PeerAsk{Code: "069210", Network: api.NetworkTunnel}},
		"none instead":              {ask: api.PeerAsk{Network: api.NetworkNone}, next: v1alpha1.NetworkNone},
		"taken back":                {was: v1alpha1.NetworkNone, ask: api.PeerAsk{Network: api.NetworkTunnel}},
		"other amounts, and as was": {was: v1alpha1.NetworkNone, asks: four, next: v1alpha1.NetworkNone},
	} {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{Request: &v1alpha1.ResourceRequest{Attempt: 2, Network: c.was}},
			Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{Attempt: 2, RequestID: "alice-x", State: v1alpha1.StateRequested}}}
		k := directory.Known{Name: "bob", Peer: peer, Contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable}}}
		if err := c.ask.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, waits := (&Backend{}).pending(k, nil, c.asks, c.ask); waits != c.waits {
			t.Errorf("%s: waits %v", name, waits)
		}
		if next := networkWanted(peer, c.ask.Network); next != c.next {
			t.Errorf("%s: the next question is for %q", name, next)
		}
	}
	if (api.PeerAsk{Network: "None"}).Check() == nil {
		t.Error("a word of no meaning is taken")
	}
}
