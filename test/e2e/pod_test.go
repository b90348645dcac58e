//go:build lab && soak

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
	"kith.dev/test/pace"
)

// abroadIn is a lab in which namespace shop of alice runs at bob, who has a namespace of that name himself.
type abroadIn struct {
	l          *lab.Lab
	alice, bob *lab.Laptop
	twin       string
}

func newAbroad(t *testing.T, manifest string) *abroadIn {
	t.Helper()
	l := laptops(t, lab.Options{Laptops: 2})
	a := &abroadIn{l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob")}
	kubectl(t, a.bob, "create", "namespace", "shop")
	apply(t, a.bob, solo("own", "bob"))
	kubectl(t, a.bob, "-n", "shop", "create", "service", "clusterip", "web", "--tcp=80:8080")
	kubectl(t, a.bob, "-n", "shop", "create", "service", "clusterip", "mine", "--tcp=80:8080")
	befriend(t, a.alice, a.bob, "--cpu", "700m", "--memory", "700Mi", "--pods", "60")
	kubectl(t, a.alice, "create", "namespace", "shop")
	kith(t, a.alice, "offload", "shop")
	a.apply(t, manifest)
	eventually(t, time.Minute, "shop has its twin at bob", func() string {
		a.twin = a.get(t, "namespaceoffloading", "offloading", "{.status.twins[0].namespace}")
		if !strings.HasPrefix(a.twin, "shop-") {
			return a.twin
		}
		return ""
	})
	return a
}

func (a *abroadIn) apply(t *testing.T, file string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, a.alice, string(manifest))
}

// get reads a field of an object of alice in shop; an error is in what it gives.
func (a *abroadIn) get(t *testing.T, kind, name, path string) string {
	out, err := a.alice.Kubectl(t.Context(), "-n", "shop", "get", kind, name, "-o", "jsonpath="+path)
	if err != nil {
		return "error: " + out
	}
	return out
}

// becomes waits until the field has the value.
func (a *abroadIn) becomes(t *testing.T, kind, name, path, want string) {
	t.Helper()
	eventually(t, 2*time.Minute, fmt.Sprintf("%s %s: %s is %q", kind, name, path, want), func() string {
		if got := a.get(t, kind, name, path); got != want {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
}

// exec runs the test program in a pod.
func (a *abroadIn) exec(t *testing.T, pod string, args ...string) (string, error) {
	return a.alice.Kubectl(t.Context(), append([]string{"-n", "shop", "exec", pod, "--", "/app"}, args...)...)
}

func (a *abroadIn) event(t *testing.T, pod, reason, says string) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("an event %s of pod %s says %q", reason, pod, says), func() string {
		out := kubectl(t, a.alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, reason+": ") && strings.Contains(line, says) {
				return ""
			}
		}
		return instead(out)
	})
}

// TestAPodAbroadKeepsItsContract: what Kubernetes promises of a pod holds for one at a peer.
func TestAPodAbroadKeepsItsContract(t *testing.T) {
	a := newAbroad(t, "pods.yaml")

	t.Run("probes", func(t *testing.T) {
		a.becomes(t, "pod", "probed", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
		if out, err := a.exec(t, "probed", "post", "http://127.0.0.1:8080/healthz?ok=false"); err != nil {
			t.Fatal(out, err)
		}
		a.becomes(t, "pod", "probed", `{.status.conditions[?(@.type=="Ready")].status}`, "False")
		a.becomes(t, "pod", "probed", `{.status.containerStatuses[0].restartCount}`, "1")
		a.becomes(t, "pod", "probed", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
		a.event(t, "probed", "Unhealthy", "Liveness probe failed")
	})
	t.Run("init containers and sidecars", func(t *testing.T) {
		a.becomes(t, "pod", "prepared", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
		a.becomes(t, "pod", "prepared", `{.status.initContainerStatuses[0].state.terminated.reason} {.status.initContainerStatuses[1].started}`, "Completed true")
		if out, err := a.exec(t, "prepared", "get", "http://127.0.0.1:8081/file?path=/shared/made"); err != nil || out != "by init" {
			t.Errorf("the sidecar has %q (%v)", out, err)
		}
		a.becomes(t, "pod", "accompanied", `{.status.phase} {.status.containerStatuses[0].state.terminated.exitCode}`, "Succeeded 0")
	})
	t.Run("restart policies, exit codes and last words", func(t *testing.T) {
		a.becomes(t, "pod", "never", `{.status.phase} {.status.containerStatuses[0].state.terminated.exitCode} {.status.containerStatuses[0].state.terminated.message} {.status.containerStatuses[0].restartCount}`, "Failed 3 so it ends 0")
		for name, last := range map[string]string{"onfailure": "4 Error", "always": "0 Completed"} {
			eventually(t, 2*time.Minute, name+" is restarted again and again", func() string {
				got := a.get(t, "pod", name, `{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].lastState.terminated.exitCode} {.status.containerStatuses[0].lastState.terminated.reason} {.status.phase}`)
				count, rest, _ := strings.Cut(got, " ")
				if n, err := strconv.Atoi(count); err != nil || n < 2 || rest != last+" Running" {
					return instead(got)
				}
				return ""
			})
			a.event(t, name, "BackOff", "restarting failed container")
		}
		a.becomes(t, "pod", "late", `{.status.phase} {.status.reason}`, "Failed DeadlineExceeded")
	})
	t.Run("what goes wrong is said at home", func(t *testing.T) {
		a.becomes(t, "pod", "greedy", `{.status.containerStatuses[0].lastState.terminated.reason}`, "OOMKilled")
		eventually(t, 2*time.Minute, "the image is missing", func() string {
			reason := a.get(t, "pod", "imageless", `{.status.containerStatuses[0].state.waiting.reason}`)
			if reason != "ImagePullBackOff" && reason != "ErrImagePull" {
				return instead(reason)
			}
			return ""
		})
		a.event(t, "imageless", "Failed", "registry.invalid")
	})
	t.Run("surroundings of a container", func(t *testing.T) {
		a.becomes(t, "pod", "dressed", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
		for args, want := range map[string]string{
			"id": "2000]", "cat /etc/hosts": "elsewhere.example", "cat /run/started": "after start", "cat /all/namespace": "shop",
			"cat /all/word": "s3cret", "cat /all/page": "made at home", "ls /all": "token", "cat /all/labels": `tier="front"`,
		} {
			if out, err := a.exec(t, "dressed", strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %q, want %q (%v)", args, out, want, err)
			}
		}
		out, err := a.exec(t, "dressed", "env")
		for _, line := range []string{"NODE=kith-bob", "NAMESPACE=shop", "NAME=dressed", "HOST_IP=" + a.get(t, "pod", "dressed", "{.status.hostIP}"), "TIER=front", "MEMORY=32"} {
			if err != nil || !slices.Contains(strings.Split(out, "\n"), line) {
				t.Errorf("the environment has no %s (%v):\n%s", line, err, out)
			}
		}
		if ip := a.get(t, "pod", "dressed", "{.status.podIP}"); ip == "" || !slices.Contains(strings.Split(out, "\n"), "IP="+ip) {
			t.Errorf("status.podIP is %s at home, in the pod\n%s", ip, out)
		}
		if out := kubectl(t, a.bob, "-n", a.twin, "get", "secret", "registry", "-o", "jsonpath={.type}"); out != "kubernetes.io/dockerconfigjson" {
			t.Errorf("the pull secret at bob is %q", out)
		}
		kubectl(t, a.alice, "-n", "shop", "label", "pod", "dressed", "tier=back", "--overwrite")
		kubectl(t, a.alice, "-n", "shop", "annotate", "pod", "dressed", "note=changed")
		eventually(t, 3*time.Minute, "labels and annotations follow", func() string {
			labels, _ := a.exec(t, "dressed", "cat", "/all/labels")
			notes, _ := a.exec(t, "dressed", "cat", "/all/annotations")
			if !strings.Contains(labels, `tier="back"`) || !strings.Contains(notes, `note="changed"`) {
				return labels + notes
			}
			return ""
		})
	})
	t.Run("names", func(t *testing.T) { names(t, a) })
	t.Run("kubectl debug", func(t *testing.T) { debug(t, a) })
	t.Run("resize", func(t *testing.T) { resize(t, a) })
	t.Run("claims", func(t *testing.T) { claims(t, a) })
	t.Run("deletion takes the time it needs", func(t *testing.T) {
		began := time.Now()
		kubectl(t, a.alice, "-n", "shop", "delete", "pod", "polite", "--wait=true")
		if took := time.Since(began); took < 4*time.Second {
			t.Errorf("a pod whose preStop takes 4 s was gone after %s", took)
		} else {
			pace.Within(t, "a pod whose preStop takes 4 s is gone", took, 40*time.Second)
		}
		kubectl(t, a.alice, "-n", "shop", "create", "pdb", "all", "--selector=app=guarded", "--min-available=1")
		evict := func() (string, error) {
			body := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"guarded","namespace":"shop"}}`
			return a.alice.KubectlInput(t.Context(), strings.NewReader(body), "create", "--raw", "/api/v1/namespaces/shop/pods/guarded/eviction", "-f", "-")
		}
		eventually(t, 30*time.Second, "the disruption budget protects it", func() string {
			if got := a.get(t, "pdb", "all", "{.status.currentHealthy}"); got != "1" {
				return instead(got)
			}
			return ""
		})
		if out, err := evict(); err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("evicted against the budget: %s (%v)", out, err)
		}
		kubectl(t, a.alice, "-n", "shop", "delete", "pdb", "all")
		if out, err := evict(); err != nil {
			t.Errorf("evict: %s (%v)", out, err)
		}
		eventually(t, time.Minute, "the evicted pod is gone on both sides", func() string {
			return kubectl(t, a.alice, "-n", "shop", "get", "pod", "guarded", "--ignore-not-found", "-o", "name") +
				kubectl(t, a.bob, "-n", a.twin, "get", "pod", "guarded", "--ignore-not-found", "-o", "name")
		})
	})
}

// names looks up a service in every form, from a pod in a twin that has another name than its namespace at home.
func names(t *testing.T, a *abroadIn) {
	a.becomes(t, "pod", "dressed", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
	want := a.get(t, "service", "web", "{.spec.clusterIP}")
	for _, name := range []string{"web", "web.shop", "web.shop.svc", "web.shop.svc.cluster.local", "web.shop.svc.cluster.local."} {
		if out, err := a.exec(t, "dressed", "lookup", name); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s is %q, want %s (%v)", name, out, want, err)
		}
	}
	eventually(t, time.Minute, "a named pod is found", func() string {
		out, err := a.exec(t, "dressed", "lookup", "probed.named.shop")
		if ip := a.get(t, "pod", "probed", "{.status.podIP}"); err != nil || strings.TrimSpace(out) != ip {
			return fmt.Sprintf("%q, at home %s", out, ip)
		}
		return ""
	})
	// What it tells of itself by its host's name in full, others of its home find: abroad and at home.
	full := "probed.named." + a.twin + ".svc.cluster.local."
	a.becomes(t, "pod", "keeper", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
	for _, from := range []string{"dressed", "keeper"} {
		if out, err := a.exec(t, from, "lookup", full); err != nil {
			t.Errorf("%s asks for %s: %s (%v)", from, full, out, err)
		}
	}
	// Nobody is told where the laptop's own servers are, or what its LAN is called.
	a.becomes(t, "pod", "sized", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
	for pod, want := range map[string]string{
		"dressed": "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.43.0.10\noptions ndots:5",
		"sized":   "nameserver 10.43.0.10",
	} {
		if out, err := a.exec(t, pod, "cat", "/etc/resolv.conf"); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s has the resolv.conf\n%s (%v), want\n%s", pod, out, err, want)
		}
	}
	if out, err := a.exec(t, "sized", "lookup", "web.shop.svc.cluster.local"); err != nil || strings.TrimSpace(out) != want {
		t.Errorf("with dnsPolicy Default the service is %q, want %s (%v)", out, want, err)
	}
	// Pods by their address: real ones only, and none of bob's for a guest.
	dashed := func(namespace, pod string) string {
		ip := kubectl(t, a.bob, "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
		return strings.ReplaceAll(ip, ".", "-")
	}
	own := dashed("shop", "own") + ".shop.pod.cluster.local."
	if out, err := a.bob.Kubectl(t.Context(), "-n", "shop", "exec", "own", "--", "/app", "lookup", own); err != nil {
		t.Errorf("bob's own pod does not find itself by its address: %s %v", out, err)
	}
	if out, err := a.bob.Kubectl(t.Context(), "-n", "shop", "exec", "own", "--", "/app", "lookup", "1-2-3-4.shop.pod.cluster.local."); err == nil {
		t.Errorf("an address no pod has is found: %s", out)
	}
	if out, err := a.exec(t, "dressed", "lookup", dashed(a.twin, "probed")+".shop.pod.cluster.local."); err != nil {
		t.Errorf("a guest does not find another of its own by its address: %s %v", out, err)
	}
	for _, name := range []string{"mine.shop", "mine.shop.svc.cluster.local.", "kube-dns.kube-system.svc.cluster.local.", own, "1-2-3-4.shop.pod.cluster.local.", "nas.lan."} {
		if out, err := a.exec(t, "dressed", "lookup", name); err == nil {
			t.Errorf("a guest finds bob's own %s: %s", name, out)
		}
	}
	if out, err := a.bob.Kubectl(t.Context(), "-n", "shop", "exec", "own", "--", "/app", "lookup", "mine.shop"); err != nil {
		t.Errorf("bob's own pod does not find bob's own service: %s %v", out, err)
	}
}

func debug(t *testing.T, a *abroadIn) {
	a.becomes(t, "pod", "dressed", `{.status.conditions[?(@.type=="Ready")].status}`, "True")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := a.alice.Run(ctx, lab.Command{Stdout: &out, Stderr: &out, Args: []string{"sh", "-c",
		"(sleep 5; echo typed; sleep 3) | timeout 80 kith-k8s kubectl -n shop debug -i dressed --image=kith.dev/echo:1 --image-pull-policy=IfNotPresent -c looking --target=main -- /bin/cat"}})
	if err != nil || !strings.Contains(out.String(), "typed") {
		t.Errorf("kubectl debug: %v\n%s", err, out.String())
	}
	kubectl(t, a.alice, "-n", "shop", "debug", "dressed", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent", "-c", "ended", "--profile=baseline", "--", "/app", "exit", "7")
	a.becomes(t, "pod", "dressed", `{.status.ephemeralContainerStatuses[*].name} {.status.ephemeralContainerStatuses[1].state.terminated.exitCode}`, "looking ended 7")
	a.event(t, "dressed", "Debugger", "SYS_PTRACE")

	_ = a.alice.Run(ctx, lab.Command{Args: []string{"sh", "-c",
		"timeout 10 kith-k8s kubectl -n shop debug dressed --image=kith.dev/echo:1 -c mighty --profile=sysadmin -- /bin/sleep 60"}})
	a.becomes(t, "pod", "dressed", `{.status.ephemeralContainerStatuses[?(@.name=="mighty")].state.waiting.reason}`, "PodSecurity")
	a.event(t, "dressed", "PodSecurity", "mighty")
	if got := a.get(t, "pod", "dressed", `{.status.phase} {.status.containerStatuses[0].restartCount}`); got != "Running 0" {
		t.Errorf("the pod is %s", got)
	}
}

func resize(t *testing.T, a *abroadIn) {
	patch := func(pod, cpu, memory string) (string, error) {
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q,"memory":%q},"limits":{"cpu":%q,"memory":%q}}}]}}`, cpu, memory, cpu, memory)
		return a.alice.Kubectl(t.Context(), "-n", "shop", "patch", "pod", pod, "--subresource", "resize", "--type", "strategic", "-p", patch)
	}
	to := func(pod, cpu, memory string) {
		t.Helper()
		if out, err := patch(pod, cpu, memory); err != nil {
			t.Fatal(out, err)
		}
	}
	used := func(want string) {
		t.Helper()
		eventually(t, time.Minute, "bob's book says "+want, func() string {
			out := kubectl(t, a.bob, "get", "contracts", "-o", "jsonpath={.items[0].status.used.cpu}")
			if out != want {
				return instead(out)
			}
			return ""
		})
	}
	book := func() int {
		out := kubectl(t, a.bob, "get", "contracts", "-o", "jsonpath={.items[0].status.used.cpu}")
		n, err := strconv.Atoi(strings.TrimSuffix(out, "m"))
		if err != nil {
			t.Fatalf("used: %q", out)
		}
		return n
	}
	const actual = `{.status.containerStatuses[0].resources.requests.cpu} {.status.containerStatuses[0].resources.limits.memory} {.status.containerStatuses[0].restartCount}`
	const pending = `{.status.conditions[?(@.type=="PodResizePending")].reason}`
	a.becomes(t, "pod", "sized", actual, "20m 32Mi 0")
	time.Sleep(3 * time.Second) // the book is published once a second
	before := book()
	to("sized", "60m", "48Mi")
	a.becomes(t, "pod", "sized", actual, "60m 48Mi 0")
	used(fmt.Sprintf("%dm", before+40))
	// The API server of home refuses more than the node has in all, and that is what the contract grants.
	if out, err := patch("sized", "5", "48Mi"); err == nil || !strings.Contains(err.Error(), "enough allocatable resources") {
		t.Errorf("five cores of a contract of less: %s %v", out, err)
	}
	to("sized", "650m", "48Mi") // the contract has it, but not besides the others
	a.becomes(t, "pod", "sized", pending, "Deferred")
	a.event(t, "sized", "ResizeDeferred", "contract")
	if got := a.get(t, "pod", "sized", actual); got != "60m 48Mi 0" {
		t.Errorf("what was refused has an effect: %s", got)
	}
	to("sized", "30m", "48Mi")
	a.becomes(t, "pod", "sized", actual, "30m 48Mi 0")
	a.becomes(t, "pod", "sized", pending, "")
	used(fmt.Sprintf("%dm", before+10))
}

func claims(t *testing.T, a *abroadIn) {
	// Nothing is said of nodes: it runs where its volume is.
	a.becomes(t, "pod", "keeper", `{.spec.nodeName} {.status.phase}`, "alice Running")
	// Told to go abroad all the same, it says why it cannot.
	a.becomes(t, "pod", "claimant", `{.spec.nodeName} {.status.phase} {.status.reason} {.status.conditions[?(@.type=="Ready")].reason}`, "kith-bob Pending NotSupported NotSupported")
	a.event(t, "claimant", "NotSupported", "the volume of its claim far is not at bob")
	kubectl(t, a.alice, "-n", "shop", "delete", "pod", "claimant", "--wait=true")
}

// TestWorkloadsAbroadAreKeptByHome: controllers at home do with pods at a peer what they do with others.
func TestWorkloadsAbroadAreKeptByHome(t *testing.T) {
	a := newAbroad(t, "workloads.yaml")

	t.Run("jobs", func(t *testing.T) {
		a.becomes(t, "job", "thrice", `{.status.succeeded} {.status.conditions[?(@.type=="Complete")].status}`, "3 True")
		a.becomes(t, "job", "doomed", `{.status.failed} {.status.conditions[?(@.type=="Failed")].reason}`, "2 BackoffLimitExceeded")
		a.becomes(t, "job", "strict", `{.status.failed} {.status.conditions[?(@.type=="Failed")].reason}`, "1 PodFailurePolicy")
		a.becomes(t, "job", "enough", `{.status.conditions[?(@.type=="Complete")].status} {.status.conditions[?(@.type=="SuccessCriteriaMet")].reason}`, "True SuccessPolicy")
	})
	t.Run("stateful sets", func(t *testing.T) {
		a.becomes(t, "statefulset", "store", "{.status.readyReplicas}", "3")
		made := strings.Fields(kubectl(t, a.alice, "-n", "shop", "get", "pods", "-l", "app=store", "--sort-by=.metadata.creationTimestamp", "-o", "jsonpath={.items[*].metadata.name}"))
		if !slices.Equal(made, []string{"store-0", "store-1", "store-2"}) {
			t.Errorf("made in the order %v", made)
		}
		uid := a.get(t, "pod", "store-0", "{.metadata.uid}")
		kubectl(t, a.alice, "-n", "shop", "delete", "pod", "store-0", "--wait=true")
		eventually(t, 2*time.Minute, "store-0 is another, and Ready", func() string {
			got := a.get(t, "pod", "store-0", `{.metadata.uid} {.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}`)
			if strings.HasPrefix(got, uid) || !strings.HasSuffix(got, " kith-bob True") {
				return instead(got)
			}
			return ""
		})
		kubectl(t, a.alice, "-n", "shop", "scale", "statefulset", "store", "--replicas=1")
		eventually(t, time.Minute, "the last ones went", func() string {
			left := kubectl(t, a.alice, "-n", "shop", "get", "pods", "-l", "app=store", "-o", "jsonpath={.items[*].metadata.name}")
			if left != "store-0" {
				return instead(left)
			}
			return ""
		})
	})
	t.Run("daemon sets stay at home", func(t *testing.T) {
		a.becomes(t, "daemonset", "agent", "{.status.desiredNumberScheduled} {.status.numberReady}", "1 1")
		if out := kubectl(t, a.alice, "-n", "shop", "get", "pods", "-l", "app=agent", "-o", "jsonpath={.items[*].spec.nodeName}"); out != "alice" {
			t.Errorf("agents on %s", out)
		}
	})
	t.Run("what pods use", func(t *testing.T) { used(t, a) })
	t.Run("what the peer refuses goes elsewhere if it may", func(t *testing.T) { refusedPods(t, a) })
	t.Run("cron jobs", func(t *testing.T) {
		eventually(t, 3*time.Minute, "a run of the cron job succeeded", func() string {
			if out := kubectl(t, a.alice, "-n", "shop", "get", "jobs", "-l", "from=tick", "-o", "jsonpath={.items[*].status.succeeded}"); !strings.Contains(out, "1") {
				return instead(out)
			}
			return ""
		})
	})
	t.Run("a namespace that goes at home goes at the peer", func(t *testing.T) {
		began := time.Now()
		kubectl(t, a.alice, "delete", "namespace", "shop", "--wait=true", "--timeout=3m")
		t.Logf("gone at home after %s", time.Since(began).Round(time.Second))
		eventually(t, 3*time.Minute, "the twin is gone", func() string {
			return strings.TrimSpace(kubectl(t, a.bob, "get", "namespace", a.twin, "--ignore-not-found", "-o", "jsonpath={.metadata.name} {.metadata.deletionTimestamp} {.status.conditions[*].message}"))
		})
		t.Logf("gone at bob after %s", time.Since(began).Round(time.Second))
	})
}

// used asks the endpoints of the node's kubelet that collectors of metrics ask.
func used(t *testing.T, a *abroadIn) {
	a.becomes(t, "statefulset", "store", "{.status.readyReplicas}", "1")
	var metrics string
	eventually(t, time.Minute, "the node tells what its pods use", func() string {
		metrics, _ = a.alice.Kubectl(t.Context(), "get", "--raw", "/api/v1/nodes/kith-bob/proxy/metrics/resource")
		for _, want := range []string{
			`container_cpu_usage_seconds_total{container="main",namespace="shop",pod="store-0"} `, `container_memory_working_set_bytes{container="main",namespace="shop",pod="store-0"} `,
			`container_start_time_seconds{container="main",namespace="shop",pod="store-0"} `, `pod_memory_working_set_bytes{namespace="shop",pod="store-0"} `,
			"node_cpu_usage_seconds_total ", "node_memory_working_set_bytes ", "resource_scrape_error 0",
		} {
			if !strings.Contains(metrics, want) {
				return "no " + want + " in\n" + metrics
			}
		}
		return ""
	})
	if strings.Contains(metrics, `pod="own"`) || strings.Contains(metrics, a.twin) {
		t.Errorf("the metrics tell of what is bob's:\n%s", metrics)
	}
	summary := kubectl(t, a.alice, "get", "--raw", "/api/v1/nodes/kith-bob/proxy/stats/summary")
	var told struct {
		Node struct {
			NodeName string
			Memory   struct{ WorkingSetBytes int64 }
		}
		Pods []struct {
			PodRef struct{ Name, Namespace, UID string }
		}
	}
	if err := json.Unmarshal([]byte(summary), &told); err != nil || told.Node.NodeName != "kith-bob" || told.Node.Memory.WorkingSetBytes == 0 {
		t.Errorf("summary: %v\n%s", err, summary)
	}
	seen := false
	for _, p := range told.Pods {
		seen = seen || p.PodRef.Name == "store-0"
		if p.PodRef.Namespace != "shop" || p.PodRef.UID != a.get(t, "pod", p.PodRef.Name, "{.metadata.uid}") {
			t.Errorf("the summary tells of %+v", p.PodRef)
		}
	}
	if !seen {
		t.Errorf("the summary does not tell of store-0:\n%s", summary)
	}

	podLists(t, a)

	// By a token, as a metrics-server asks.
	kubectl(t, a.alice, "-n", "shop", "create", "serviceaccount", "collector")
	kubectl(t, a.alice, "create", "clusterrole", "collector", "--verb=get", "--resource=nodes/metrics")
	kubectl(t, a.alice, "create", "clusterrolebinding", "collector", "--clusterrole=collector", "--serviceaccount=shop:collector")
	token := strings.TrimSpace(kubectl(t, a.alice, "-n", "shop", "create", "token", "collector"))
	stranger := strings.TrimSpace(kubectl(t, a.alice, "-n", "shop", "create", "token", "default"))
	node := kubectl(t, a.alice, "get", "node", "kith-bob", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}:{.status.daemonEndpoints.kubeletEndpoint.Port}`)
	for path, codes := range map[string]map[string]string{
		"/metrics/resource":                  {token: "200", stranger: "403", "": "401", "made-up": "401"},
		"/containerLogs/shop/store-0/main":   {token: "401", "": "401"},
		"/exec/shop/store-0/main?command=id": {token: "401", "": "401"},
		"/pods":                              {token: "401", stranger: "401", "": "401", "made-up": "401"},
		"/runningpods/":                      {token: "401", "": "401"},
	} {
		for bearer, want := range codes {
			out, _, _ := a.alice.Exec(t.Context(), "curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: Bearer "+bearer, "https://"+node+path)
			if out != want {
				t.Errorf("%s with token %.10q: %s, want %s", path, bearer, out, want)
			}
		}
	}
	kubectl(t, a.alice, "delete", "clusterrole,clusterrolebinding", "collector")
}

// podLists asks the node's kubelet which pods it has, as a collector does: /pods as home has them, /runningpods/ those that run.
func podLists(t *testing.T, a *abroadIn) {
	for _, path := range []string{"pods", "runningpods/"} {
		var list struct {
			Kind, APIVersion string
			Items            []struct {
				Metadata struct{ Namespace, Name, UID string }
				Spec     struct{ NodeName string }
			}
		}
		text := kubectl(t, a.alice, "get", "--raw", "/api/v1/nodes/kith-bob/proxy/"+path)
		if err := json.Unmarshal([]byte(text), &list); err != nil || list.Kind != "PodList" || list.APIVersion != "v1" {
			t.Errorf("%s: %v\n%s", path, err, text)
			continue
		}
		seen := false
		for _, p := range list.Items {
			if p.Spec.NodeName != "kith-bob" {
				t.Errorf("%s tells of pod %s/%s of node %s", path, p.Metadata.Namespace, p.Metadata.Name, p.Spec.NodeName)
			}
			seen = seen || p.Metadata.Namespace == "shop" && p.Metadata.Name == "store-0" && p.Metadata.UID == a.get(t, "pod", "store-0", "{.metadata.uid}")
		}
		if !seen || strings.Contains(text, a.twin) {
			t.Errorf("%s does not tell of store-0, or tells of bob's namespace:\n%s", path, text)
		}
	}
}
