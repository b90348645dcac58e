//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// brokered is alice, who has a contract with bob, who offers on what others grant him.
type brokered struct {
	alice, bob *lab.Laptop
	providers  []*lab.Laptop
	client     string // the address of a pod of alice's at home
	app        string // of her Deployment in shop
	replicas   int    // that it has
}

// TestABroker: a Deployment of alice's lands at bob, and goes on to carol, whom alice does not know.
func TestABroker(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3, Config: map[string]any{"catalogue": true}})
	b := &brokered{alice: l.Laptop("alice"), bob: l.Laptop("bob"), providers: []*lab.Laptop{l.Laptop("carol")}}
	b.settle(t)
	t.Run("pods go on, and are alice's", b.goOn)
	t.Run("each reaches each, and nobody else", b.reach)
	t.Run("a provider is gone", b.gone)
	t.Run("each provider is a node", b.each)
	t.Run("nothing is left", b.unpeer)
	t.Run("a catalogue introduces", b.introduce)
}

// introduce has alice find carol in bob's catalogue.
func (b *brokered) introduce(t *testing.T) {
	carol := b.providers[0]
	kith(t, carol, "share", "--list-at", "bob")
	var listed []struct {
		Name, ID, At string
		Resources    map[string]string
	}
	eventually(t, 30*time.Second, "bob lists carol", func() string {
		out, err := asking(t, b.alice, "catalogue", "-o", "json")
		if err != nil {
			return err.Error()
		}
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			return err.Error()
		}
		if len(listed) != 1 || listed[0].Name != "carol" || listed[0].At != "bob" || listed[0].Resources["cpu"] == "" {
			return instead(out)
		}
		return ""
	})
	t.Log(kith(t, b.alice, "catalogue", "bob"))
	if out := kith(t, b.alice, "peer", "add", "carol", "--from", "bob"); !strings.Contains(out, listed[0].ID) {
		t.Errorf("%s is not %s", out, listed[0].ID)
	}
	for what, args := range map[string][]string{
		"nobody in the catalogue of bob is called dave": {"peer", "add", "dave", "--from", "bob"},
		"its key was not accepted here":                 {"catalogue", "carol"},
	} {
		if out, err := asking(t, b.alice, args...); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: %s, %v", args, out, err)
		}
	}
	if out := kith(t, carol, "catalogue", "bob", "-o", "json"); strings.Contains(out, listed[0].ID) {
		t.Errorf("carol is shown herself: %s", out)
	}
}

func (b *brokered) settle(t *testing.T) {
	for _, p := range b.providers {
		kith(t, p, "share", "50%", "--reoffer")
		befriend(t, b.bob, p, "--cpu", "400m", "--memory", "256Mi", "--pods", "10")
		if shown := kith(t, b.bob, "contract", "show", p.Name()); !strings.Contains(shown, "the consumer may offer it on to others") {
			fail(t, "%s", shown)
		}
	}
	if out, err := asking(t, b.bob, "share", "--reoffer", "--reoffer-from", "all"); err == nil {
		fail(t, "a broker lets what it offers on go on further: %s", out)
	}
	kith(t, b.bob, "share", "50%", "--reoffer-from", "all")
	befriend(t, b.alice, b.bob, "--cpu", "800m", "--memory", "400Mi", "--pods", "20")
	kubectl(t, b.alice, "create", "namespace", "shop")
	kith(t, b.alice, "offload", "shop", "--strategy", "remote")
	apply(t, b.alice, `
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: shop}
data: {GREETING: hello}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: kith.dev/echo:1
        imagePullPolicy: IfNotPresent
        envFrom: [{configMapRef: {name: conf}}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        resources: {requests: {cpu: 100m, memory: 16Mi}}
`)
	b.client = waitReady(t, b.alice, 1, "-n", "default")[0].Status.PodIP
	b.crowd(t)
	b.app, b.replicas = "web", 2+2*len(b.providers) // two find room at bob, and so do two at each provider
	b.scale(t, b.replicas)
}

func (b *brokered) scale(t *testing.T, replicas int) {
	t.Helper()
	kubectl(t, b.alice, "-n", "shop", "scale", "deployment/"+b.app, "--replicas", fmt.Sprint(replicas))
}

// crowd has pods of bob's own fill his node, but for two of alice's. There are two, so that one has an address that nobody has at alice.
func (b *brokered) crowd(t *testing.T) {
	t.Helper()
	var node struct {
		Status struct{ Allocatable struct{ CPU string } }
	}
	if err := json.Unmarshal([]byte(kubectl(t, b.bob, "get", "node", "bob", "-o", "json")), &node); err != nil {
		t.Fatal(err)
	}
	cpus := 0
	if _, err := fmt.Sscanf(node.Status.Allocatable.CPU, "%d", &cpus); err != nil || cpus == 0 {
		t.Fatalf("%q: %v", node.Status.Allocatable.CPU, err)
	}
	for i, cpu := range []int{cpus*1000 - 280, 10} {
		apply(t, b.bob, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: own-%d, namespace: default, labels: {app: own}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: %dm}}}]
`, i, cpu))
	}
	waitReady(t, b.bob, 2, "-n", "default", "-l", "app=own")
}

// at gives alice's pods by the laptop where they run.
func (b *brokered) at(t *testing.T) map[string][]pod {
	t.Helper()
	all, nodes := map[string][]pod{}, map[string]string{}
	for _, p := range pods(t, b.bob, "-n", twinAt(t, b.bob, "shop"), "-l", "app="+b.app) {
		nodes[p.Metadata.Name] = strings.TrimPrefix(p.Spec.NodeName, "kith-")
	}
	for _, p := range pods(t, b.alice, "-n", "shop", "-l", "app="+b.app, "--field-selector=status.phase=Running") {
		all[nodes[p.Metadata.Name]] = append(all[nodes[p.Metadata.Name]], p)
	}
	return all
}

func (b *brokered) goOn(t *testing.T) {
	waitReady(t, b.alice, b.replicas, "-n", "shop", "-l", "app=web")
	at := b.at(t)
	for _, p := range append(slices.Clone(b.providers), b.bob) {
		if len(at[p.Name()]) != 2 {
			fail(t, "at %s are %d pods of %+v", p.Name(), len(at[p.Name()]), at)
		}
	}
	// The runtime of bob's guests, which her pods have there, is not hers to hear of.
	if events := kubectl(t, b.alice, "-n", "shop", "get", "events", "-o", "jsonpath={.items[*].reason}"); strings.Contains(events, "RuntimeClassLeftOut") {
		t.Errorf("events: %s", events)
	}
	for _, p := range b.providers {
		one := at[p.Name()][0]
		there := pods(t, p, "-A", "--field-selector=metadata.name="+one.Metadata.Name)
		if len(there) != 1 || there[0].Status.PodIP != one.Status.PodIP || one.Spec.NodeName != "kith-bob" {
			fail(t, "at home %+v, at %s %+v", one, p.Name(), there)
		}
		if out := kubectl(t, b.alice, "-n", "shop", "logs", one.Metadata.Name); !strings.Contains(out, one.Metadata.Name) {
			fail(t, "its log: %s", out)
		}
		if out := kubectl(t, b.alice, "-n", "shop", "exec", one.Metadata.Name, "--", "/app", "env"); !strings.Contains(out, "GREETING=hello") {
			fail(t, "its environment: %s", out)
		}
		var guests []struct{ Name, Consumer, For string }
		if err := json.Unmarshal([]byte(kith(t, p, "guests", "-o", "json")), &guests); err != nil || len(guests) != 2 || guests[0].Consumer != "bob" || guests[0].For != "alice" {
			fail(t, "guests of %s: %+v, %v", p.Name(), guests, err)
		}
	}
}

func (b *brokered) reach(t *testing.T) {
	at := b.at(t)
	var all []pod
	for _, some := range at {
		all = append(all, some...)
	}
	get := func(namespace, from, url, want string) {
		t.Helper()
		eventually(t, time.Minute, from+" gets "+url, func() string {
			out, err := b.alice.Kubectl(t.Context(), "-n", namespace, "exec", from, "--", "/app", "get", url)
			if err != nil || !strings.Contains(out, want) {
				return fmt.Sprintf("%s %v", out, err)
			}
			return ""
		})
	}
	for _, p := range all {
		get("default", "client", "http://"+p.Status.PodIP+":8080/", `"name": "`+p.Metadata.Name+`"`)
		get("shop", p.Metadata.Name, "http://"+b.client+":8080/", `"name": "client"`) // bob has a pod of that address, too
		get("shop", p.Metadata.Name, "http://web/", `"name": "web-`)
		get("shop", p.Metadata.Name, "http://web.shop.svc.cluster.local/", `"name": "web-`)
		for _, other := range all {
			get("shop", p.Metadata.Name, "http://"+other.Status.PodIP+":8080/", `"name": "`+other.Metadata.Name+`"`)
		}
	}
	get("default", "client", "http://web.shop/", `"name": "web-`)
	// A service that has one pod leads it to itself.
	apply(t, b.alice, `
apiVersion: v1
kind: Service
metadata: {name: alone, namespace: shop}
spec: {selector: {alone: "true"}, ports: [{port: 80, targetPort: 8080}]}
`)
	alone := at[b.providers[0].Name()][0].Metadata.Name
	kubectl(t, b.alice, "-n", "shop", "label", "pod", alone, "alone=true")
	get("shop", alone, "http://alone/", `"name": "`+alone+`"`)
	for _, own := range pods(t, b.bob, "-n", "default", "-l", "app=own") {
		if own.Status.PodIP == b.client {
			continue
		}
		for _, p := range b.providers {
			from := at[p.Name()][0].Metadata.Name
			if out, err := b.alice.Kubectl(t.Context(), "-n", "shop", "exec", from, "--", "/app", "get", "http://"+own.Status.PodIP+":8080/"); err == nil {
				fail(t, "%s at %s reaches a pod of bob's own: %s", from, p.Name(), out)
			}
		}
	}
}

func (b *brokered) gone(t *testing.T) {
	kubectl(t, b.bob, "-n", "default", "delete", "pods", "-l", "app=own", "--now")
	lost := b.providers[0]
	if err := lost.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 80*time.Second, "the pods are elsewhere", func() string {
		ready := 0
		for name, some := range b.at(t) {
			for _, p := range some {
				if name != lost.Name() && p.ready() {
					ready++
				}
			}
		}
		if ready != b.replicas {
			return fmt.Sprintf("%d of %d are ready", ready, b.replicas)
		}
		return ""
	})
	if err := lost.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "those that were given up are gone there", func() string {
		if out, err := lost.Kubectl(t.Context(), "get", "pods", "-A", "-o", "name"); err != nil || out != "" {
			return fmt.Sprintf("%s %v", out, err)
		}
		return ""
	})
}

func (b *brokered) unpeer(t *testing.T) {
	b.scale(t, 0)
	waitReady(t, b.alice, 0, "-n", "shop", "-l", "app=web", "--field-selector=status.phase=Running")
	b.crowd(t)
	b.scale(t, b.replicas)
	eventually(t, 90*time.Second, "pods go on again", func() string {
		if at := b.at(t); len(at[b.providers[0].Name()]) != 2 || !at[b.providers[0].Name()][0].ready() {
			return fmt.Sprintf("%+v", at)
		}
		return ""
	})
	kith(t, b.alice, "unpeer", "bob", "--yes")
	b.are(t, map[string]string{})
	for _, p := range append(slices.Clone(b.providers), b.bob) {
		eventually(t, time.Minute, "nothing is left at "+p.Name(), func() string {
			left := ""
			for _, what := range [][]string{
				{"get", "namespaces", "-l", "kith.dev/consumer", "-o", "name"}, {"get", "offloadedpods", "-A", "-o", "name"}, {"get", "namespaceoffloadings", "-A", "-o", "name"},
				{"get", "peers", "-o", "jsonpath={.items[*].status.network.relayed}{.items[*].status.network.onward}"},
			} {
				out, err := p.Kubectl(t.Context(), what...)
				if err != nil {
					return err.Error()
				}
				left += out
			}
			return strings.TrimSpace(left)
		})
	}
}

// nodes are those of alice's cluster that stand for others, with why those that are not ready are not.
func (b *brokered) nodes(t *testing.T) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status, Reason string }
			}
		}
	}
	if err := json.Unmarshal([]byte(kubectl(t, b.alice, "get", "nodes", "-l", "kith.dev/peer", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				all[n.Metadata.Name] = ""
			} else if c.Type == "Ready" {
				all[n.Metadata.Name] = c.Reason
			}
		}
	}
	return all
}

// are waits until alice's nodes of others are these, ready or with that reason.
func (b *brokered) are(t *testing.T, want map[string]string) {
	t.Helper()
	eventually(t, 3*time.Minute, fmt.Sprintf("her nodes of others are %v", want), func() string {
		if got := b.nodes(t); !maps.Equal(got, want) {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// each has bob tell of each provider: alice's own rules say by whom a pod is run.
func (b *brokered) each(t *testing.T) {
	kith(t, b.bob, "share", "--each")
	all := map[string]string{"kith-bob": ""}
	for _, p := range b.providers {
		all["kith-bob."+p.Name()] = ""
	}
	b.are(t, all)
	var nodes struct {
		Items []struct {
			Status struct{ Allocatable struct{ Pods string } }
		}
	}
	if err := json.Unmarshal([]byte(kubectl(t, b.alice, "get", "nodes", "-l", "kith.dev/peer=bob", "-o", "json")), &nodes); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range nodes.Items {
		var pods int
		if _, err := fmt.Sscan(n.Status.Allocatable.Pods, &pods); err != nil || pods == 0 {
			t.Errorf("a node has %q pods: %v", n.Status.Allocatable.Pods, err)
		}
		sum += pods
	}
	if sum != 20 { // what the contract grants
		t.Errorf("her nodes of bob have %d pods together", sum)
	}
	t.Log(kubectl(t, b.alice, "get", "nodes", "-L", "kith.dev/broker,kith.dev/behind"))
	b.scale(t, 0)
	manifest := `
apiVersion: v1
kind: Service
metadata: {name: chosen, namespace: shop}
spec: {selector: {app: chosen}, ports: [{port: 80, targetPort: 8080}]}
`
	where := map[string]string{"at-bob": "kith-bob"}
	for _, p := range b.providers {
		where["at-"+p.Name()] = "kith-bob." + p.Name()
	}
	for name, node := range where {
		manifest += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: chosen}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: %s}
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 100m, memory: 16Mi}}}]
`, name, node)
	}
	apply(t, b.alice, manifest)
	for _, pod := range waitReady(t, b.alice, len(where), "-n", "shop", "-l", "app=chosen") {
		name := pod.Metadata.Name
		if pod.Spec.NodeName != where[name] {
			fail(t, "%s is on %s", name, pod.Spec.NodeName)
		}
		at := b.bob
		for _, p := range b.providers {
			if name == "at-"+p.Name() {
				at = p
			}
		}
		there := pods(t, at, "-A", "--field-selector=metadata.name="+name)
		if len(there) != 1 || there[0].Status.PodIP != pod.Status.PodIP || strings.HasPrefix(there[0].Spec.NodeName, "kith-") {
			fail(t, "at home %+v, at %s %+v", pod, at.Name(), there)
		}
		if out := kubectl(t, b.alice, "-n", "shop", "logs", name); !strings.Contains(out, name) {
			fail(t, "its log: %s", out)
		}
		if out := kubectl(t, b.alice, "-n", "shop", "exec", name, "--", "/app", "get", "http://"+b.client+":8080/"); !strings.Contains(out, `"name": "client"`) {
			fail(t, "%s gets from home: %s", name, out)
		}
		eventually(t, 30*time.Second, "the service has "+name, func() string {
			out, err := b.alice.Kubectl(t.Context(), "-n", "default", "exec", "client", "--", "/app", "get", "http://chosen.shop/")
			if err != nil || !strings.Contains(out, `"name": "`+name+`"`) {
				return fmt.Sprintf("%s %v", out, err)
			}
			return ""
		})
	}
	kith(t, b.bob, "share", "--each=false") // those there leave their nodes, which go
	b.are(t, map[string]string{"kith-bob": ""})
	kubectl(t, b.alice, "-n", "shop", "delete", "pods", "-l", "app=chosen", "--now")
	kith(t, b.bob, "share", "--each")
	b.are(t, all)
}
