package trouble

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/virtualnode"
	"kith.dev/core/find/directory"
	"kith.dev/core/provide/hosting/grants"
)

func TestNamespacesThatAPeerKeepsForNothingAreShown(t *testing.T) {
	now := time.Now()
	left := func(home string, ago time.Duration, leaving bool, why string) virtualnode.Left {
		return virtualnode.Left{Home: home, Name: home + "-x", Since: now.Add(-ago), Leaving: leaving, Why: why}
	}
	peers := []directory.Known{{Name: "bob", Peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}}, {Name: "a stranger"}}
	for name, c := range map[string]struct {
		left []virtualnode.Left
		want string
	}{
		"none":              {nil, ""},
		"one just now":      {[]virtualnode.Left{left("shop", time.Second, false, "")}, ""},
		"one that is going": {[]virtualnode.Left{left("shop", time.Minute, true, "")}, ""},
		"one that does not": {[]virtualnode.Left{left("shop", 3*time.Minute, false, "no answer")}, "bob still keeps namespaces that are not offloaded here any more: 1|shop; for 3 min; no answer"},
		"many": {[]virtualnode.Left{left("a", time.Minute, false, ""), left("b", time.Hour, true, ""), left("c", time.Minute, false, ""), left("d", time.Minute, false, ""), left("e", time.Second, false, "")},
			"bob still keeps namespaces that are not offloaded here any more: 4|a, b, c, 1 more; for 60 min"},
	} {
		list := Leftovers(peers, func(string) []virtualnode.Left { return c.left }, now)
		got := ""
		for _, p := range list {
			got += p.What + "|" + p.Why
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	held := Stuck([]grants.Leaving{{Namespace: "shop-x", Consumer: "alice", Since: now.Add(-5 * time.Minute)}, {Namespace: "new-x", Consumer: "alice", Since: now}}, now)
	if len(held) != 1 || !strings.Contains(held[0].What, "shop-x of alice") {
		t.Errorf("%+v", held)
	}
}
