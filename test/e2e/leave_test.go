//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// staysAtHome: of alice's namespaces shop alone is offloaded, and pods of others that tolerate everything, or ask for bob's node, do
// not go there.
func staysAtHome(t *testing.T, alice, bob *lab.Laptop) {
	manifest, err := os.ReadFile(filepath.Join("testdata", "stay.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, alice, string(manifest))
	in := func(namespace string, args ...string) string {
		out, err := alice.Kubectl(t.Context(), append([]string{"-n", namespace}, args...)...)
		if err != nil {
			return "error: " + out
		}
		return out
	}
	becomes := func(what string, read func() string, want string) {
		t.Helper()
		eventually(t, time.Minute, what+" is "+want, func() string {
			if got := read(); got != want {
				return instead(got)
			}
			return ""
		})
	}
	eventually(t, 20*time.Second, "a pod of a namespace that is offloaded elsewhere is made on bob's node", func() string {
		if out, err := alice.KubectlInput(t.Context(), strings.NewReader(onBob("other", "stray")), "create", "-f", "-"); err != nil {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	for _, namespace := range []string{"private", "kube-system", "shop"} {
		becomes("daemon set agent of "+namespace, func() string {
			return in(namespace, "get", "daemonset", "agent", "-o", "jsonpath={.status.desiredNumberScheduled} {.status.numberReady}")
		}, "1 1")
		if got := in(namespace, "get", "pods", "-l", "app=agent", "-o", "jsonpath={.items[*].spec.nodeName}"); got != "alice" {
			t.Errorf("agents of %s on %s", namespace, got)
		}
	}
	for deployment, nodes := range map[[2]string]map[string]int{
		{"private", "wide"}:   {"alice": 3},
		{"private", "spread"}: {"alice": 3},
		{"shop", "spread"}:    {"alice": 1, "kith-bob": 1},
	} {
		becomes("where the pods of "+deployment[1]+" of "+deployment[0]+" are", func() string {
			seen := map[string]int{}
			for _, p := range pods(t, alice, "-n", deployment[0], "-l", "app="+deployment[1]) {
				if p.ready() {
					seen[p.Spec.NodeName]++
				}
			}
			return fmt.Sprint(seen)
		}, fmt.Sprint(nodes))
	}

	t.Run("who comes by the node's name is refused with a sentence", func(t *testing.T) {
		const says = "namespace private is not offloaded"
		out, err := alice.KubectlInput(t.Context(), strings.NewReader(onBob("private", "bare")), "create", "-f", "-")
		if err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("created: %s, %v", out, err)
		}
		out, err = alice.KubectlInput(t.Context(), strings.NewReader(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"unbound"},"target":{"kind":"Node","name":"kith-bob"}}`),
			"create", "--raw", "/api/v1/namespaces/private/pods/unbound/binding", "-f", "-")
		if err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("bound: %s, %v", out, err)
		}
		// The scheduler is told the same.
		eventually(t, time.Minute, "pod asks says why it waits", func() string {
			got := in("private", "get", "events", "--field-selector", "involvedObject.name=asks,reason=FailedScheduling", "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(got, says) {
				return instead(got)
			}
			return ""
		})
	})

	t.Run("who would debug bob's node is told what else to do", func(t *testing.T) {
		const says = "kubectl debug node/kith-bob would enter its owner's machine"
		if out, err := alice.Kubectl(t.Context(), "-n", "private", "debug", "node/kith-bob", "--image=kith.dev/echo:1"); err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("made: %s, %v", out, err)
		}
		out, _, err := alice.Exec(t.Context(), "sh", "-c", "timeout 6 kith-k8s kubectl -n shop debug node/kith-bob -it --image=kith.dev/echo:1 2>&1 </dev/null; true")
		if err != nil || !strings.Contains(out, "Warning: container debugger: bob refuses: ") || !strings.Contains(out, says) {
			t.Errorf("who waits for it reads %s, %v", out, err)
		}
		eventually(t, 20*time.Second, "bob's refusal says so, too", func() string {
			got := in("shop", "get", "events", "--field-selector", "reason=PodSecurity", "-o", "jsonpath={.items[*].message}")
			if !strings.HasPrefix(got, "bob refuses: ") || !strings.Contains(got, says) {
				return instead(got)
			}
			return ""
		})
		kubectl(t, alice, "-n", "shop", "delete", "pod", "-l", "app.kubernetes.io/managed-by=kubectl-debug")
	})

	t.Run("offloaded to others is not offloaded to bob", func(t *testing.T) {
		becomes("pod stray", func() string {
			return in("other", "get", "pod", "stray", "-o", "jsonpath={.status.phase} {.status.reason}: {.status.message}")
		}, "Failed NotOffloaded: namespace other is offloaded to carol, not to bob")
		if got := in("other", "get", "events", "--field-selector", "involvedObject.name=stray", "-o", "jsonpath={.items[*].reason}"); !strings.Contains(got, "NotOffloaded") {
			t.Errorf("events: %s", got)
		}
	})

	t.Run("nothing of it is at bob", func(t *testing.T) {
		for _, home := range []string{"private", "kube-system", "other"} {
			if got := strings.TrimSpace(kubectl(t, bob, "get", "namespaces", "-l", "kith.dev/home-namespace="+home, "-o", "name")); got != "" {
				t.Errorf("the twin of %s is %s", home, got)
			}
		}
		if got := kubectl(t, bob, "get", "secrets", "-A", "--field-selector", "metadata.name=topsecret", "-o", "name"); strings.TrimSpace(got) != "" {
			t.Errorf("bob has %s", got)
		}
	})

	t.Run("offloaded, what waits goes", func(t *testing.T) {
		kith(t, alice, "offload", "private")
		waitReady(t, alice, 1, "-n", "private", "-l", "app=asks")
		becomes("the node of pod asks", func() string { return in("private", "get", "pod", "asks", "-o", "jsonpath={.spec.nodeName}") }, "kith-bob")
		becomes("daemon set agent", func() string {
			return in("private", "get", "daemonset", "agent", "-o", "jsonpath={.status.desiredNumberScheduled} {.status.numberReady}")
		}, "1 1")
		if got := kubectl(t, bob, "get", "secrets", "-A", "--field-selector", "metadata.name=topsecret", "-o", "name"); strings.TrimSpace(got) != "" {
			t.Errorf("bob has %s, which no pod there refers to", got)
		}
	})
	kubectl(t, alice, "delete", "namespace", "private", "other", "--wait=false")
	kubectl(t, alice, "-n", "kube-system", "delete", "daemonset", "agent")
	kubectl(t, alice, "-n", "shop", "delete", "daemonset/agent", "deployment/spread")
}

// nodeOfBob: labels that spread constraints go by, and what a kubelet says of its machine.
func nodeOfBob(t *testing.T, alice, bob *lab.Laptop) {
	for node, want := range map[string]string{"alice": "alice lan", "kith-bob": "bob lan"} {
		if got := kubectl(t, alice, "get", "node", node, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone} {.metadata.labels.topology\.kubernetes\.io/region}`); got != want {
			t.Errorf("node %s is in %q, want %q", node, got, want)
		}
	}
	const info = "jsonpath={.status.nodeInfo.kernelVersion} {.status.nodeInfo.bootID} {.status.nodeInfo.containerRuntimeVersion}"
	if here, there := kubectl(t, alice, "get", "node", "kith-bob", "-o", info), kubectl(t, bob, "get", "node", "bob", "-o", info); here != there || len(strings.Fields(here)) != 3 {
		t.Errorf("the node says %q, bob %q", here, there)
	}
	// The API server of home refuses this for a node that does not declare it can do it.
	apply(t, alice, strings.Replace(onBob("shop", "starting"), `"containers"`, `"initContainers":[{"name":"init","image":"kith.dev/echo:1","imagePullPolicy":"IfNotPresent","command":["/bin/sleep","300"],"resources":{"requests":{"cpu":"5m","memory":"16Mi"}}}],"containers"`, 1))
	const cpu = "jsonpath={.status.initContainerStatuses[0].resources.requests.cpu}"
	becomes := func(want string) {
		t.Helper()
		eventually(t, time.Minute, "its init container has "+want, func() string {
			if got := kubectl(t, alice, "-n", "shop", "get", "pod", "starting", "-o", cpu); got != want {
				return fmt.Sprintf("%q", got)
			}
			return ""
		})
	}
	becomes("5m")
	kubectl(t, alice, "-n", "shop", "patch", "pod", "starting", "--subresource", "resize", "-p", `{"spec":{"initContainers":[{"name":"init","resources":{"requests":{"cpu":"7m"}}}]}}`)
	becomes("7m")
	kubectl(t, alice, "-n", "shop", "delete", "pod", "starting", "--wait=false")
}

// decoded is a Secret's JSON with its values as they are.
func decoded(secret string) string {
	var s struct{ Data map[string][]byte }
	if err := json.Unmarshal([]byte(secret), &s); err != nil {
		return err.Error()
	}
	var all []string
	for key, value := range s.Data {
		all = append(all, key+": "+string(value))
	}
	return strings.Join(all, "\n")
}

// podOfOneTaint makes, while no kithd runs, a pod at bob as there were before virtual nodes had a taint that evicts, and gives its UID.
func podOfOneTaint(t *testing.T, alice *lab.Laptop) string {
	kubectl(t, alice, "delete", "mutatingadmissionpolicy", "offloading.kith.dev")
	kubectl(t, alice, "taint", "node", "kith-bob", "kith.dev/peer:NoExecute-")
	pod := strings.Replace(onBob("shop", "old"), `{"operator":"Exists"}`, `{"key":"kith.dev/peer","operator":"Exists","effect":"NoSchedule"}`, 1)
	eventually(t, time.Minute, "no policy adds tolerations", func() string {
		out, err := alice.KubectlInput(t.Context(), strings.NewReader(pod), "create", "--dry-run=server", "-f", "-", "-o", `jsonpath={.spec.tolerations[?(@.key=="kith.dev/peer")].effect}`)
		if err != nil || out != "NoSchedule" {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	apply(t, alice, pod)
	return kubectl(t, alice, "-n", "shop", "get", "pod", "old", "-o", "jsonpath={.metadata.uid}")
}

// toleratesNow: the taint is on the node, and that pod is still there.
func toleratesNow(t *testing.T, alice *lab.Laptop, uid string) {
	eventually(t, time.Minute, "the node has the taint that evicts", func() string {
		if out := kubectl(t, alice, "get", "node", "kith-bob", "-o", "jsonpath={.spec.taints[*].effect}"); out != "NoSchedule NoExecute" {
			return instead(out)
		}
		return ""
	})
	waitReady(t, alice, 1, "-n", "shop", "--field-selector", "metadata.name=old")
	if got := kubectl(t, alice, "-n", "shop", "get", "pod", "old", "-o", `jsonpath={.metadata.uid} {.spec.tolerations[?(@.key=="kith.dev/peer")].effect}`); got != uid+" NoSchedule NoExecute" {
		t.Errorf("the pod of before is %q, want %s with both effects", got, uid)
	}
	kubectl(t, alice, "-n", "shop", "delete", "pod", "old", "--wait=false")
}

// onBob is a pod that names its node.
func onBob(namespace, name string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"` + namespace + `","name":"` + name + `"},
"spec":{"nodeName":"kith-bob","terminationGracePeriodSeconds":1,"tolerations":[{"operator":"Exists"}],
"containers":[{"name":"main","image":"kith.dev/echo:1","imagePullPolicy":"IfNotPresent"}]}}`
}
