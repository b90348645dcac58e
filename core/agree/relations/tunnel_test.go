package relations

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
)

// tunnels is a gateway of which only the tunnels are asked for.
type tunnels struct {
	link.Gateway
	stats map[string]gateway.Stats
}

func (g tunnels) Overlapping(string) []netip.Prefix { return nil }

func (g tunnels) Stats(id string) (gateway.Stats, bool) { s, ok := g.stats[id]; return s, ok }

// The condition is written when it changes, and not for every second that a tunnel is down.
func TestTheTunnelsConditionIsWrittenWhenItChanges(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "bob"}, Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{PublicKey: "x"}}}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}).WithObjects(peer).Build())
	told, states := &heardOf{}, map[string]gateway.Stats{}
	r := New(Config{Client: objects, Fleet: told, Log: slog.New(slog.DiscardHandler), Linker: link.New(objects, link.Config{Gateway: tunnels{stats: states}})})
	here := presence.Presence{State: presence.Reachable, Since: time.Now().Add(-time.Hour)}
	look := func(stats gateway.Stats) (version string, c *metav1.Condition) {
		t.Helper()
		states["bob"] = stats
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(peer), peer); err != nil {
			t.Fatal(err)
		}
		if _, err := r.showTunnel(t.Context(), peer, here); err != nil {
			t.Fatal(err)
		}
		return peer.ResourceVersion, meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionTunnel)
	}
	silent := func(since time.Duration) gateway.Stats {
		return gateway.Stats{LastHandshake: time.Now().Add(-since), Heard: time.Now().Add(-since)}
	}
	if _, c := look(gateway.Stats{Up: true}); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	first, c := look(silent(48 * time.Second))
	if c == nil || c.Status != metav1.ConditionFalse || c.Message != "tunnel: no answer for 48 s" {
		t.Errorf("%+v", c)
	}
	if again, _ := look(silent(50 * time.Second)); again != first {
		t.Error("written again")
	}
	if _, c := look(gateway.Stats{Up: true}); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	if want := []string{`bob's tunnel: ""`, `bob's tunnel: "tunnel: no answer for 48 s"`, `bob's tunnel: "tunnel: no answer for 50 s"`, `bob's tunnel: ""`}; !slices.Equal(told.told, want) {
		t.Errorf("told %q", told.told)
	}
	peer.Status.Network = nil // the contract ended
	if err := objects.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	if _, c := look(gateway.Stats{}); c != nil {
		t.Errorf("without a tunnel: %+v", c)
	}
}
