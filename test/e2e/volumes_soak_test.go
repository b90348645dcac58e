//go:build lab && soak

package e2e

import (
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestFiveStoresOverThreeLaptopsSurviveAPowerLoss: a StatefulSet of five with claims is spread over three laptops; one loses power, its kithd and
// home's are killed, and each of the five has its data again where it was.
func TestFiveStoresOverThreeLaptopsSurviveAPowerLoss(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	alice, bob, carol := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol")
	for _, p := range []*lab.Laptop{bob, carol} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
		kith(t, p, "share", "--storage", "2Gi")
		befriend(t, alice, p, "--cpu", "200m", "--memory", "256Mi", "--pods", "10", "--storage", "1Gi")
	}
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--volumes", "anywhere")
	apply(t, alice, strings.NewReplacer("replicas: 2", "replicas: 5",
		"affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: store}}}]}}",
		"topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: store}}}]").Replace(stores))
	where := func() map[string]string {
		t.Helper()
		at := map[string]string{}
		for _, p := range waitReady(t, alice, 5, "-n", "shop", "-l", "app=store") {
			at[p.Metadata.Name] = p.Spec.NodeName
		}
		return at
	}
	first, each := where(), map[string]int{}
	for pod, node := range first {
		each[node]++
		if out, errs, err := alice.Exec(t.Context(), "sh", "-c", "echo of "+pod+" > /tmp/word && kith-k8s kubectl -n shop cp /tmp/word "+pod+":/data/word"); err != nil {
			t.Fatalf("%s: %v %s%s", pod, err, out, errs)
		}
	}
	if len(each) != 3 {
		t.Fatalf("they are on %v", each)
	}
	t.Log(kubectl(t, alice, "-n", "shop", "get", "pods,pvc", "-o", "wide"))
	same := func(what string) {
		t.Helper()
		eventually(t, 3*time.Minute, what+": each has its data where it was", func() string {
			for pod, node := range first {
				out, err := alice.Kubectl(t.Context(), "-n", "shop", "get", "pod", pod, "-o", `jsonpath={.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}`)
				if err != nil || out != node+" True" {
					return pod + ": " + instead(out)
				}
				if out, err = alice.Kubectl(t.Context(), "-n", "shop", "exec", pod, "--", "/bin/cat", "/data/word"); err != nil || strings.TrimSpace(out) != "of "+pod {
					return pod + " reads " + instead(out)
				}
			}
			return ""
		})
	}
	same("at first")
	for _, p := range []*lab.Laptop{bob, alice, carol} {
		if err := p.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	same("every kithd killed")
	for _, p := range []*lab.Laptop{bob, alice} {
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := p.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 2*time.Minute, p.Name()+" is back", func() string { return engineReady(t, p) })
		same(p.Name() + " without power for a while")
	}
	kubectl(t, alice, "-n", "shop", "delete", "pods", "--all")
	same("every pod deleted")
	kubectl(t, alice, "delete", "namespace", "shop", "--wait=true", "--timeout=3m")
	for _, p := range []*lab.Laptop{alice, bob, carol} {
		eventually(t, 2*time.Minute, "no volume is left at "+p.Name(), func() string { return kubectl(t, p, "get", "pv", "-o", "name") })
	}
}
