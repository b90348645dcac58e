//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
	"kith.dev/test/pace"
)

// TestPodsAbroadEndAsAtHome: a pod at a peer ends when it should, with the grace it has, whatever happens to daemons and
// links meanwhile; and nothing of it is left at the peer.
func TestPodsAbroadEndAsAtHome(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	goneAt := func(p *lab.Laptop, name string) func() string {
		return func() string {
			for _, one := range pods(t, p, "-A", "-l", "app="+name) { // the twin has another name than shop
				return one.Metadata.Name + " is " + one.Status.Phase
			}
			return ""
		}
	}
	start := func(names ...string) {
		for _, name := range names {
			apply(t, alice, solo(name, "kith-bob"))
		}
		for _, name := range names {
			waitReady(t, alice, 1, "-n", "shop", "-l", "app="+name)
		}
	}

	t.Run("a deletion is over when the container ended, not when its grace is", func(t *testing.T) {
		start("quick")
		kubectl(t, alice, "-n", "shop", "delete", "pod", "quick", "--wait=false", "--grace-period=60")
		pace.Within(t, "quick is gone", eventually(t, 30*time.Second, "quick is gone", goneAt(alice, "quick")), 8*time.Second)
		if left := goneAt(bob, "quick")(); left != "" {
			t.Errorf("gone at home, but at bob %s", left)
		}
	})

	t.Run("a label set at home reaches the guest", func(t *testing.T) {
		start("labelled")
		kubectl(t, alice, "-n", "shop", "label", "pod", "labelled", "color=blue")
		eventually(t, 20*time.Second, "bob has it", func() string {
			return strings.TrimPrefix(kubectl(t, bob, "get", "pods", "-A", "-l", "app=labelled", "-o", "jsonpath={.items[*].metadata.labels.color}"), "blue")
		})
	})

	t.Run("a pod waits for the end of the one that had its name", func(t *testing.T) {
		start("again")
		uid := func() string {
			return kubectl(t, bob, "get", "offloadedpods", "-A", "-o", `jsonpath={.items[?(@.metadata.name=="again")].spec.homeUID}`)
		}
		first := uid()
		kubectl(t, alice, "-n", "shop", "delete", "pod", "again", "--force", "--grace-period=0")
		start("again")
		if now := uid(); first == "" || now == first {
			t.Errorf("bob runs the pod %q, and before it %q", now, first)
		}
	})

	t.Run("a daemon killed on the way changes nothing", func(t *testing.T) {
		start("killed", "forced")
		if err := alice.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		kubectl(t, alice, "-n", "shop", "delete", "pod", "killed", "--wait=false")
		kubectl(t, alice, "-n", "shop", "delete", "pod", "forced", "--force", "--grace-period=0")
		if err := alice.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"killed", "forced"} {
			eventually(t, time.Minute, name+" is gone at bob", goneAt(bob, name))
			eventually(t, 10*time.Second, name+" is gone at home", goneAt(alice, name))
		}
	})

	t.Run("a cut link only puts it off", func(t *testing.T) {
		start("kept", "leaving", "hurried")
		if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		kubectl(t, alice, "-n", "shop", "delete", "pod", "leaving", "--wait=false")
		kubectl(t, alice, "-n", "shop", "delete", "pod", "hurried", "--force", "--grace-period=0")
		condition := func(kind string) string {
			return kubectl(t, alice, "get", "node", "kith-bob", "-o",
				fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status}`, kind))
		}
		eventually(t, 40*time.Second, "the node says that bob is unreachable", func() string {
			return strings.TrimPrefix(condition("PeerReachable"), "False")
		})
		eventually(t, 60*time.Second, "and then that it is not ready", func() string {
			return strings.TrimPrefix(condition("Ready"), "False")
		})
		if goneAt(alice, "leaving")() == "" || goneAt(bob, "leaving")() == "" {
			t.Error("a pod left home, or bob, though nobody there knew of the other")
		}
		if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "the node is ready again", func() string { return strings.TrimPrefix(condition("Ready"), "True") })
		for _, name := range []string{"leaving", "hurried"} {
			eventually(t, 30*time.Second, name+" is gone at bob", goneAt(bob, name))
			eventually(t, 10*time.Second, name+" is gone at home", goneAt(alice, name))
		}
		if p := waitReady(t, alice, 1, "-n", "shop", "-l", "app=kept")[0]; p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Error("the pod that stayed was restarted")
		}
	})
}
