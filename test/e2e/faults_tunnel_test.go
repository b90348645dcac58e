//go:build lab && soak

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// TestNoUDPForAMinute lets the daemons speak and no packet through the tunnel.
func TestNoUDPForAMinute(t *testing.T) {
	w := newWorld(t).spread(4)
	twin := twinAt(t, w.bob, "shop")
	kubectl(t, w.alice, "-n", "shop", "expose", "deployment", "web", "--port=80", "--target-port=8080")
	every := func(string) bool { return true }
	both := func(atHome, abroad func(string) bool) string {
		if not := w.onlyReady(w.alice, "shop", atHome); not != "" {
			return not
		}
		return w.onlyReady(w.bob, twin, abroad)
	}
	eventually(t, 20*time.Second, "all endpoints are ready", func() string { return both(every, every) })
	eventually(t, 20*time.Second, "consistent", w.consistent)
	before := w.lives()
	var away []string // as alice sees them
	list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": "web"})
	for i := range list {
		if list[i].Spec.NodeName == "kith-bob" {
			away = append(away, list[i].Status.PodIP)
		}
	}
	guests := addresses(w.pods(w.bob, twin, client.MatchingLabels{"app": "web"}))
	if err != nil || len(away) != len(guests) || len(away) == 0 || len(away) == 4 {
		t.Fatalf("abroad are %v, guests %v, %v", away, guests, err)
	}

	rules := func(add string) {
		t.Helper()
		for _, rule := range []string{"INPUT -p udp --dport 6450", "OUTPUT -p udp --sport 6450"} {
			if out, stderr, err := w.bob.Exec(t.Context(), "sh", "-c", "iptables "+add+" "+rule+" -j DROP"); err != nil {
				t.Fatalf("iptables: %v %s%s", err, out, stderr)
			}
		}
	}
	rules("-I")
	took := eventually(t, 75*time.Second, "only endpoints on the same laptop are ready", func() string {
		return both(func(a string) bool { return !slices.Contains(away, a) }, func(a string) bool { return slices.Contains(guests, a) })
	})
	t.Logf("after %s", took.Round(100*time.Millisecond))
	status := w.peerAt(w.alice, "bob")
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionTunnel)
	if c == nil || c.Status != "False" || !strings.HasPrefix(c.Message, "tunnel: no answer for ") || status.Outgoing.State != v1alpha1.StateConnected {
		t.Errorf("%+v, the relation is %s", c, status.Outgoing.State)
	}
	for what, since := range w.nodeSince() {
		want := map[string]string{string(corev1.NodeReady): "True", string(corev1.NodeNetworkUnavailable): "True"}[what]
		if want != "" && !strings.HasPrefix(since, want) {
			t.Errorf("%s is %s", what, since)
		}
	}
	eventually(t, 5*time.Second, "no pod is bound there any more", func() string {
		if out := kubectl(t, w.alice, "get", "node", "kith-bob", "-o", "jsonpath={.spec.taints[*].key}"); !strings.Contains(out, "node.kubernetes.io/network-unavailable") {
			return instead(out)
		}
		return ""
	})
	rules("-D")
	took = eventually(t, 30*time.Second, "all endpoints are ready again", func() string { return both(every, every) })
	t.Logf("all ready %s after packets passed again", took.Round(100*time.Millisecond))
	eventually(t, 20*time.Second, "consistent", w.consistent)
	if after := w.lives(); !maps.Equal(before, after) {
		t.Errorf("containers changed:\n%v\n%v", before, after)
	}
	if c := meta.FindStatusCondition(w.peerAt(w.alice, "bob").Conditions, v1alpha1.ConditionTunnel); c == nil || c.Status != "True" {
		t.Errorf("%+v", c)
	}
}
