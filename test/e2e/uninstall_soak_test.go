//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestAClusterThatKithWasAttachedToIsLeftAsItWas: kithd is attached by a kubeconfig, provides and consumes; `kith uninstall --from-cluster` ends
// that, and of what was made nothing is left there, and nothing else is gone.
func TestAClusterThatKithWasAttachedToIsLeftAsItWas(t *testing.T) {
	l := laptops(t, lab.Options{Names: []string{"alice"}, Clusters: []lab.Cluster{{Name: "corp", Nodes: 1}}})
	alice, corp := l.Laptop("alice"), l.Laptop("corp-1")
	s := &server{at: corp}
	eventually(t, time.Minute, "the cluster's own objects are there", func() string {
		if out, err := corp.Kubectl(t.Context(), "-n", "default", "get", "configmap", "kube-root-ca.crt"); err != nil {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	kubectl(t, corp, "create", "namespace", "den")
	kubectl(t, corp, "-n", "den", "run", "own", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent")
	kubectl(t, corp, "-n", "den", "wait", "--for=condition=Ready", "pod/own", "--timeout=3m")
	before := s.left(t)

	start := fmt.Sprintf(`mkdir -p /etc/kith; printf 'name: corp\nengine: kubeconfig\nkubeconfig: %s\nnodeName: corp-1\nfrontDoorPort: 0\n' >/etc/kith/config.yaml
setsid kithd >/var/lib/kith/kithd-test.log 2>&1 </dev/null &
echo $! >/var/lib/kith/kithd-test.pid`, lab.Kubeconfig)
	if _, stderr, err := corp.Exec(t.Context(), "sh", "-ec", start); err != nil {
		t.Fatal(err, stderr)
	}
	eventually(t, time.Minute, "kithd attached", func() string { return engineReady(t, corp) })
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "4"}
	for _, p := range []*lab.Laptop{alice, corp} {
		kith(t, p, "share", "50%", "--auto-accept")
		kubectl(t, p, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":{"images":{"present":["kith.dev/*"]}}}`)
	}
	for from, to := range map[*lab.Laptop]string{alice: "corp", corp: "alice"} {
		var id string
		eventually(t, 30*time.Second, from.Name()+" sees "+to, func() string {
			p := peerOf(t, from, to)
			if id = p.ID; !p.Reachable {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
		kith(t, from, append([]string{"peer", id, "--timeout", "3m"}, ask...)...) // by the whole ID no codes are compared
		kubectl(t, from, "create", "namespace", "shop-of-"+from.Name())
		kith(t, from, "offload", "shop-of-"+from.Name(), "--strategy", "remote")
		if _, err := from.KubectlInput(t.Context(), strings.NewReader(fmt.Sprintf(serverWeb, 1)), "-n", "shop-of-"+from.Name(), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		waitReady(t, from, 1, "-n", "shop-of-"+from.Name(), "-l", "app=web")
	}

	out, stderr, err := corp.Exec(t.Context(), "kith", "uninstall", "--from-cluster", "--yes")
	t.Log(out, stderr)
	if err == nil || !strings.Contains(stderr, "kithd runs on, and would put back what is taken away") {
		t.Errorf("with a kithd that runs: %v", err)
	}
	eventually(t, 30*time.Second, "alice was told", func() string {
		if p := peerOf(t, alice, "corp"); p.Outgoing != "none" || p.Incoming != "none" {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	waitReady(t, corp, 1, "-n", "shop-of-corp-1", "-l", "app=web") // it came home
	if _, stderr, err := corp.Exec(t.Context(), "sh", "-ec", `pid=$(cat /var/lib/kith/kithd-test.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done`); err != nil {
		t.Fatal(err, stderr)
	}
	for range 2 { // it may be repeated
		out, stderr, err = corp.Exec(t.Context(), "kith", "uninstall", "--from-cluster", "--yes")
		t.Log(out, stderr)
		if err != nil || !strings.Contains(out, "Kith is gone from the cluster") {
			t.Errorf("%v, %s", err, stderr)
		}
	}
	waitReady(t, corp, 1, "-n", "shop-of-corp-1", "-l", "app=web") // what is the owner's runs on
	kubectl(t, corp, "delete", "namespace", "shop-of-corp-1")
	eventually(t, time.Minute, "the cluster is as it was", func() string {
		if gone, come := difference(before, s.left(t)); len(gone)+len(come) > 0 {
			return fmt.Sprintf("gone: %v, come: %v", gone, come)
		}
		return ""
	})
}
