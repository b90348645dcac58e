//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/test/lab"
)

// TestDiskFull fills bob's disk to the last byte while guests run there, and clears it again. Guests are evicted; that
// much, and why, is told; those of controllers run at home meanwhile.
func TestDiskFull(t *testing.T) {
	w := newWorld(t)
	w.smallDisk(w.bob, "3g")
	w.spread(4)
	eventually(t, 20*time.Second, "consistent", w.consistent)
	if out := kith(t, w.bob, "status"); strings.Contains(out, "free of") {
		t.Fatalf("bob's owner is told of a full disk while there is room: %s", out)
	}
	if out, _, err := w.bob.Exec(t.Context(), "dd", "if=/dev/zero", "of=/var/lib/kith/filler", "bs=1M"); err == nil {
		t.Fatalf("the disk is not full: %s", out)
	}
	full := time.Now()
	took := eventually(t, 30*time.Second, "bob's owner is told", func() string {
		out, err := w.bob.Kith(t.Context(), "status")
		if err != nil || !strings.Contains(out, "free of") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	t.Logf("bob's owner was told after %s", took.Round(100*time.Millisecond))
	took = eventually(t, 2*time.Minute, "the pods at home say why they do not run, and others run", func() string {
		pods, err := w.pods(w.alice, "shop")
		if err != nil {
			return err.Error()
		}
		running := 0
		for i := range pods {
			switch p := &pods[i]; {
			case p.Spec.NodeName == "alice" && podReady(p):
				running++
			case p.Spec.NodeName == "kith-bob" && (p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted"):
				return fmt.Sprintf("%s is %s, %q", p.Name, p.Status.Phase, p.Status.Reason)
			}
		}
		if running != w.webs {
			return fmt.Sprintf("%d of %d run at home", running, w.webs)
		}
		return ""
	})
	t.Logf("alice's pods said so after %s", took.Round(100*time.Millisecond))
	time.Sleep(time.Until(full.Add(45 * time.Second)))
	if _, _, err := w.bob.Exec(t.Context(), "rm", "/var/lib/kith/filler"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, w.alice, "-n", "shop", "delete", "pods", "--field-selector", "status.phase=Failed")
	took = eventually(t, 6*time.Minute, "bob takes pods again", func() string {
		return kubectl(t, w.alice, "get", "node", "kith-bob", "-o", `jsonpath={.spec.taints[?(@.key=="kith.dev/closed")].value}`)
	})
	t.Logf("bob took pods again %s after there was room again", took.Round(time.Second))
	w.spread(4 + w.webs)
	eventually(t, time.Minute, "consistent again", w.consistent)
	var nodes corev1.NodeList
	if err := w.list(w.bob, &nodes); err != nil {
		t.Fatal(err)
	}
	for _, c := range nodes.Items[0].Status.Conditions {
		if c.Type == corev1.NodeDiskPressure && c.Status != corev1.ConditionFalse {
			t.Errorf("bob's node: %+v", c)
		}
	}
}

// smallDisk gives the data of a laptop's Kith a disk of its own.
func (w *world) smallDisk(p *lab.Laptop, size string) {
	w.t.Helper()
	if err := p.StopDaemon(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, program := range []string{"kith-k8s", "containerd"} {
		w.kill(p, program)
		eventually(w.t, 10*time.Second, program+" ends", func() string { return pid(w.t, p, program) })
	}
	if _, _, err := p.Exec(w.t.Context(), "sh", "-ec", "keep=$(mktemp -d); cp -a /var/lib/kith/. $keep; mount -t tmpfs -o size="+size+" tmpfs /var/lib/kith; cp -a $keep/. /var/lib/kith; rm -r $keep; df -m /var/lib/kith"); err != nil {
		w.t.Fatal(err)
	}
	if err := p.StartDaemon(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, time.Minute, p.Name()+" is back", w.well)
}
