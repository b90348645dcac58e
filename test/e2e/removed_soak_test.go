//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestTeardownOfALaptopWithK3s: what kithd leaves running when it is stopped is ended, with a K3s as with the built-in Kubernetes.
func TestTeardownOfALaptopWithK3s(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 1, Engines: map[string]string{"alice": lab.K3s}})
	alice := l.Laptop("alice")
	kubectl(t, alice, "run", "own", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent")
	kubectl(t, alice, "wait", "--for=condition=Ready", "pod/own", "--timeout=3m")
	script := teardown(t, alice)
	kubectl(t, alice, "create", "deployment", "begins", "--image=kith.dev/echo:1", "--replicas=8") // some of it is half there when all ends
	// The kernel may take a pod's namespace, and its link, long after the last of its processes: so it is while somebody is in it.
	if _, stderr, err := alice.Exec(t.Context(), "sh", "-c", `nsenter --net="$(ls -d /run/netns/cni-* | head -n 1)" sleep 120 >/dev/null 2>&1 &
		until [ "$(cat /proc/$!/comm)" = sleep ]; do kill -0 $! || exit; sleep 0.1; done`); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if err := alice.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := func() string {
		out, _, err := alice.Exec(t.Context(), "sh", "-c", `for name in k3s containerd containerd-shim pause app; do pgrep -r D,R,S -lx "$name"; done; pgrep -r D,R,S -l containerd-shim
			grep -E ' (/run/k3s|/var/lib/kith/k3s)/' /proc/mounts | cut -d' ' -f2; ls -d /run/k3s 2>/dev/null; nft list tables | grep kith; ip -o link show cni0 2>/dev/null; true`)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, what := range []string{"k3s\n", "containerd\n", "/run/k3s\n", "cni0"} {
		if out := left(); !strings.Contains(out, what) {
			t.Fatalf("%q does not stay when kithd is stopped:\n%s", what, out)
		}
	}
	if out, stderr, err := alice.Exec(t.Context(), "sh", "-c", script, "teardown", "5"); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	if out := left(); out != "" {
		t.Errorf("left:\n%s", out)
	}
	if err := alice.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := func() string {
		out, err := alice.Kubectl(t.Context(), "get", "pod", "own", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Sprint(out, err)
		}
		return ""
	}
	eventually(t, 2*time.Minute, "the pod runs again", func() string {
		if why := engineReady(t, alice); why != "" {
			return why
		}
		return ready()
	})
}
