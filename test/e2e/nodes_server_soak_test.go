//go:build lab && soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/chart"
	"kith.dev/test/lab"
)

// threeNodes is a cluster of three nodes that has Kith by its chart, and a laptop that peers with it in both directions.
type threeNodes struct {
	*server
	t     *testing.T
	l     *lab.Lab
	alice *lab.Laptop
	names []string
	nodes []*lab.Laptop // the API server is on the first

	before []string // what there was on the nodes
}

func (w *threeNodes) node(name string) *lab.Laptop { return w.l.Laptop(name) }

// guests are alice's, by node; abroad are the cluster's own pods at alice.
func (w *threeNodes) guests() (byNode map[string][]pod) {
	w.t.Helper()
	byNode = map[string][]pod{}
	for _, p := range pods(w.t, w.at, "-n", twinAt(w.t, w.at, "shop"), "-l", "app=web") {
		if p.Status.Phase == "Running" {
			byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
		}
	}
	return byNode
}

// own is the cluster's own pod on a node. It is in a namespace that is offloaded, so that its service has a name abroad.
func (w *threeNodes) own(node string) pod {
	w.t.Helper()
	list := pods(w.t, w.at, "-n", "store", "-l", "run=own-"+node)
	if len(list) != 1 {
		w.t.Fatalf("%d pods own-%s", len(list), node)
	}
	return list[0]
}

// meet has pods of all three nodes and those of the laptop reach each other.
func (w *threeNodes) meet(when string, nodes ...string) {
	w.t.Helper()
	try := func(at *lab.Laptop, namespace, pod, url string) {
		w.t.Helper()
		eventually(w.t, 90*time.Second, when+": "+pod+" of "+at.Name()+" reaches "+url, func() string { return reaches(w.t, at, namespace, pod, url) })
	}
	abroad := pods(w.t, w.at, "-n", "store", "-l", "app=web")
	for _, n := range nodes {
		own := w.own(n)
		try(w.at, "store", own.Metadata.Name, "http://"+abroad[0].Status.PodIP+":8080/")
		try(w.at, "store", own.Metadata.Name, "http://web/")
		try(w.at, "store", abroad[0].Metadata.Name, "http://"+own.Status.PodIP+":8080/")
		try(w.at, "store", abroad[0].Metadata.Name, "http://own-"+n+"/")
	}
	for _, g := range pods(w.t, w.alice, "-n", "shop", "-l", "app=web") {
		try(w.alice, "default", "own", "http://"+g.Status.PodIP+":8080/")
		try(w.alice, "shop", g.Metadata.Name, "http://web/")
	}
	try(w.alice, "default", "own", "http://web.shop/")
}

// newThreeNodes has pods of the cluster's own on every node and at alice, six guests of hers, and a service for each.
func newThreeNodes(t *testing.T) *threeNodes {
	t.Helper()
	archive := kithImage(t)
	l := laptops(t, lab.Options{Names: []string{"alice"}, Clusters: []lab.Cluster{{Name: "corp", Nodes: 3}}, Images: []string{archive}})
	w := &threeNodes{server: &server{at: l.Laptop("corp-1")}, t: t, l: l, alice: l.Laptop("alice"), names: []string{"corp-1", "corp-2", "corp-3"}}
	for _, n := range w.names {
		w.nodes = append(w.nodes, w.node(n))
	}
	w.carry(t)
	kubectl(t, w.at, "label", "node", "corp-2", "corp-3", "gateway=yes") // the API server's node is not to be lost
	w.before = w.left(t, w.nodes...)
	w.install(t, "nodeSelector.gateway=yes")
	kubectl(t, w.at, "-n", serverNamespace, "rollout", "status", "daemonset/kith-nodes", "--timeout=3m")
	kubectl(t, w.at, "-n", serverNamespace, "rollout", "status", "deployment/kith", "--timeout=3m")
	w.pair(t, w.alice)

	eventually(t, time.Minute, "all nodes take guests", func() string {
		var closed []string
		for _, n := range w.names {
			if why := takesGuests(t, w.at, n); why != "" {
				closed = append(closed, why)
			}
		}
		return strings.Join(closed, ", ")
	})
	kubectl(t, w.alice, "create", "namespace", "shop")
	kubectl(t, w.at, "create", "namespace", "store")
	kith(t, w.alice, "offload", "shop", "--strategy", "remote")
	w.kith(t, "offload", "store", "--strategy", "remote")
	for at, one := range map[*lab.Laptop][2]any{w.alice: {"shop", 6}, w.at: {"store", 1}} {
		if _, err := at.KubectlInput(t.Context(), strings.NewReader(fmt.Sprintf(serverWeb, one[1])), "-n", one[0].(string), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, w.alice, "run", "own", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent")
	for _, n := range w.names {
		kubectl(t, w.at, "-n", "store", "run", "own-"+n, "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent", "--overrides", `{"spec":{"nodeName":"`+n+`"}}`)
		kubectl(t, w.at, "-n", "store", "expose", "pod", "own-"+n, "--port=80", "--target-port=8080")
		kubectl(t, w.at, "-n", "store", "wait", "--for=condition=Ready", "pod/own-"+n, "--timeout=3m")
	}
	kubectl(t, w.alice, "wait", "--for=condition=Ready", "pod/own", "--timeout=3m")
	waitReady(t, w.alice, 6, "-n", "shop", "-l", "app=web")
	waitReady(t, w.at, 1, "-n", "store", "-l", "app=web")
	return w
}

// TestAServerClusterOfThreeNodes: pods of every node reach a laptop's and back, guests run on every node and are fenced there; the gateway moves when its node
// is drained, and when it is lost; and uninstalled, nothing is left on any node.
func TestAServerClusterOfThreeNodes(t *testing.T) {
	w := newThreeNodes(t)
	names, id := w.names, w.id(t)
	if on := w.guests(); len(on) != 3 {
		var where []string
		for _, p := range pods(t, w.at, "-n", twinAt(t, w.at, "shop")) {
			where = append(where, p.Metadata.Name+" on "+p.Spec.NodeName)
		}
		t.Errorf("guests are on %d nodes, want 3: %v; %s", len(on), where, kubectl(t, w.at, "describe", "nodes"))
	}
	w.meet("at first", names...)
	w.fenced("at first")
	w.doctor("at first")
	w.cut(names)

	w.upgrade(names)
	w.meet("after the upgrade", names...)
	w.fenced("after the upgrade")

	// Drained: kithd gives the lease back, the other takes it.
	_, gateway := w.leader(t)
	began := time.Now()
	kubectl(t, w.at, "drain", gateway, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--grace-period=5", "--timeout=3m",
		"--pod-selector=app.kubernetes.io/component=kithd")
	eventually(t, time.Minute, "the gateway left the drained node", func() string {
		if _, now := w.leader(t); now == gateway {
			return "it is on " + now
		}
		return ""
	})
	w.meet("after the drain", names...)
	t.Logf("drained, all met again after %s", time.Since(began).Round(100*time.Millisecond))
	kubectl(t, w.at, "uncordon", gateway)
	kubectl(t, w.at, "-n", serverNamespace, "rollout", "status", "deployment/kith", "--timeout=3m")

	// Lost: the lease runs out.
	_, gateway = w.leader(t)
	gap := w.gap(func() {
		if err := w.node(gateway).Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, names[0])
	t.Logf("with a lease of 6 s, the loss of the gateway's node was felt for %s", gap.Round(100*time.Millisecond))
	if gap > 40*time.Second {
		t.Errorf("a gap of %s", gap)
	}
	w.doctor("while a node is lost", "warning nodes: "+gateway, "fail overlay: "+gateway, "warning fenced: "+gateway)
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == gateway })
	if now := w.id(t); now != id {
		t.Errorf("it is %s now, and was %s", now, id)
	}
	eventually(t, time.Minute, "the pod on "+others[1]+" reaches alice's", func() string {
		abroad := pods(t, w.at, "-n", "store", "-l", "app=web")[0]
		return reaches(t, w.at, "store", w.own(others[1]).Metadata.Name, "http://"+abroad.Status.PodIP+":8080/")
	})
	if err := w.node(gateway).Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, gateway+" is Ready again", func() string {
		if out, err := w.at.Kubectl(t.Context(), "get", "node", gateway, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); err != nil || out != "True" {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	kubectl(t, w.at, "-n", serverNamespace, "rollout", "status", "daemonset/kith-nodes", "--timeout=3m")
	kubectl(t, w.at, "-n", serverNamespace, "rollout", "status", "deployment/kith", "--timeout=3m")
	kubectl(t, w.at, "-n", "store", "wait", "--for=condition=Ready", "pod/own-"+gateway, "--timeout=3m")
	waitReady(t, w.alice, 6, "-n", "shop", "-l", "app=web")
	w.meet("after the loss", names...)
	w.fenced("after the loss")
	w.doctor("after the loss")

	t.Log(w.helm(t, "uninstall", "kith"))
	kubectl(t, w.at, "delete", "namespace", serverNamespace, "store")
	eventually(t, time.Minute, "nothing is left on any node", func() string {
		if _, come := difference(w.before, w.left(t, w.nodes...)); len(come) > 0 {
			return strings.Join(come, ", ")
		}
		return ""
	})
}

// cut has a firewall between the gateway's node and another not let the VXLAN's port through, in one direction and then in the other.
func (w *threeNodes) cut(names []string) {
	w.t.Helper()
	_, gateway := w.leader(w.t)
	other := names[slices.IndexFunc(names, func(n string) bool { return n != gateway })]
	address := func(name string) string {
		a, err := w.node(name).Address()
		if err != nil {
			w.t.Fatal(err)
		}
		return a.String()
	}
	label := func() string {
		return kubectl(w.t, w.at, "get", "node", other, "-o", `jsonpath={.metadata.labels.kith\.dev/fenced}`)
	}
	for _, to := range []string{gateway, other} {
		from := map[string]string{gateway: other, other: gateway}[to]
		way := fmt.Sprintf("UDP port 6451 from %s (%s) to %s (%s)", from, address(from), to, address(to))
		rule := func(do string) {
			if _, stderr, err := w.node(to).Exec(w.t.Context(), "iptables", do, "INPUT", "-p", "udp", "--dport", "6451", "-s", address(from), "-j", "DROP"); err != nil {
				w.t.Fatal(err, stderr)
			}
		}
		rule("-I")
		eventually(w.t, time.Minute, other+" takes no guests", func() string { return label() })
		w.doctor("while nothing comes from "+from+" to "+to, "fail overlay: "+other, "warning fenced: "+other)
		for _, command := range []string{"status", "events"} {
			if out := w.kith(w.t, command, "-o", "json"); !strings.Contains(out, way) {
				w.t.Errorf("kith %s does not name %s: %s", command, way, out)
			}
		}
		rule("-D")
		eventually(w.t, time.Minute, other+" takes guests again", func() string {
			if is := label(); is != "true" {
				return "its label is " + is
			}
			return ""
		})
	}
	w.doctor("when all comes through again")
}

// doctor asks kithd's, in its pod, until it finds these and nothing else: "STATE NAME: what it must name".
func (w *threeNodes) doctor(when string, finds ...string) {
	w.t.Helper()
	eventually(w.t, 2*time.Minute, when+" the doctor finds "+fmt.Sprint(finds), func() string {
		pod, _ := w.leader(w.t)
		out, _ := w.at.Kubectl(w.t.Context(), "-n", serverNamespace, "exec", pod, "--", "kith", "doctor", "-o", "json")
		out, _, _ = strings.Cut(out, "\ncommand terminated")
		var found []api.Finding
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			return fmt.Sprint(err, out)
		}
		found = slices.DeleteFunc(found, func(f api.Finding) bool { return f.State == api.CheckOK })
		for _, want := range finds {
			head, names, _ := strings.Cut(want, ": ")
			i := slices.IndexFunc(found, func(f api.Finding) bool {
				return fmt.Sprint(f.State, " ", f.Name) == head && strings.Contains(f.What, names)
			})
			if i < 0 {
				return fmt.Sprintf("no %q in %q", want, notOK(found))
			}
			w.t.Logf("%s: %s; %s; %s", head, found[i].What, found[i].Why, found[i].Do)
			found = slices.Delete(found, i, i+1)
		}
		return strings.Join(notOK(found), "\n")
	})
}

// fenced: a guest on each node reaches none of the cluster's own pods, no node, and not the API server.
func (w *threeNodes) fenced(when string) {
	w.t.Helper()
	twin := twinAt(w.t, w.at, "shop")
	address, err := w.nodes[1].Address()
	if err != nil {
		w.t.Fatal(err)
	}
	if why := reaches(w.t, w.at, "store", w.own("corp-1").Metadata.Name, "http://"+address.String()+":10250/"); !strings.Contains(why, "HTTPS server") {
		w.t.Errorf("%s: a pod of the cluster's own does not reach a kubelet, so that no guest does shows nothing: %s", when, why)
	}
	for node, guests := range w.guests() {
		var closed []string
		for _, n := range w.nodes {
			closed = append(closed, "http://"+w.own(n.Name()).Status.PodIP+":8080/")
			address, err := n.Address()
			if err != nil {
				w.t.Fatal(err)
			}
			closed = append(closed, "http://"+address.String()+":10250/")
		}
		for _, url := range closed {
			// A kubelet says to who speaks HTTP that it wants TLS.
			if why := reaches(w.t, w.at, twin, guests[0].Metadata.Name, url); why == "" || strings.Contains(why, "HTTPS server") {
				w.t.Errorf("%s: a guest on %s reaches %s: %s", when, node, url, why)
			}
		}
	}
}

// upgrade replaces every pod of Kith while streams go through the gateway, from each node and to each.
func (w *threeNodes) upgrade(names []string) {
	w.t.Helper()
	const lasts = time.Minute
	type stream struct {
		at              *lab.Laptop
		namespace, name string
	}
	var all []stream
	run := func(at *lab.Laptop, namespace, name, node, restart string, args ...string) {
		w.t.Helper()
		manifest := strings.NewReplacer("namespace: shop", "namespace: "+namespace,
			"nodeSelector: {kubernetes.io/hostname: "+node+"}", "nodeName: "+node).Replace(loading(name, node, restart, args...))
		apply(w.t, at, manifest)
		waitReady(w.t, at, 1, "-n", namespace, "-l", "app="+name)
	}
	apply(w.t, w.at, strings.Replace(loading("serve", "kith-alice", "Always", "serve"), "namespace: shop", "namespace: store", 1))
	there := waitReady(w.t, w.at, 1, "-n", "store", "-l", "app=serve")[0].Status.PodIP + ":7000"
	for _, n := range names {
		run(w.at, "store", "out-"+n, n, "Never", "stream", "-duration", lasts.String(), there)
		all = append(all, stream{w.at, "store", "out-" + n})
	}
	for i := range 3 { // on which node of the cluster a guest is, is for the cluster to say
		name := fmt.Sprintf("serve-%d", i)
		apply(w.t, w.alice, loading(name, "kith-corp", "Always", "serve"))
		guest := waitReady(w.t, w.alice, 1, "-n", "shop", "-l", "app="+name)[0]
		run(w.alice, "default", fmt.Sprintf("in-%d", i), "alice", "Never", "stream", "-duration", lasts.String(), guest.Status.PodIP+":7000")
		all = append(all, stream{w.alice, "default", fmt.Sprintf("in-%d", i)})
	}
	_, before := w.leader(w.t)
	began := time.Now()
	w.helm(w.t, append([]string{"upgrade"}, chart.Values("nodeSelector.gateway=yes", "config.logLevel=debug", "uninstall.patience=30s")...)...)
	for _, part := range []string{"daemonset/kith-nodes", "deployment/kith"} {
		kubectl(w.t, w.at, "-n", serverNamespace, "rollout", "status", part, "--timeout=3m")
	}
	took := time.Since(began)
	_, now := w.leader(w.t)
	w.t.Logf("helm upgrade took %s, the gateway was on %s and is on %s", took.Round(100*time.Millisecond), before, now)
	for _, s := range all {
		var r report
		eventually(w.t, lasts+30*time.Second, "the stream "+s.name+" ends", func() string {
			out, err := s.at.Kubectl(w.t.Context(), "-n", s.namespace, "logs", s.name)
			if err == nil {
				err = json.Unmarshal([]byte(out), &r)
			}
			if err != nil {
				return err.Error()
			}
			return ""
		})
		w.t.Logf("stream %s: %.0f s, %d MB, longest gap %.0f ms", s.name, r.Seconds, r.Bytes>>20, r.Gap)
		if r.Broken != "" || r.OutOfOrder > 0 || r.Seconds < lasts.Seconds()-1 {
			w.t.Errorf("the stream %s did not outlive the upgrade: %+v", s.name, r)
		}
		kubectl(w.t, s.at, "-n", s.namespace, "delete", "pod", s.name)
	}
	kubectl(w.t, w.at, "-n", "store", "delete", "pod", "serve")
	kubectl(w.t, w.alice, "-n", "shop", "delete", "pod", "serve-0", "serve-1", "serve-2")
}

// gap is how long the pod on a node gets no answer from the laptop's, from what do does on.
func (w *threeNodes) gap(do func(), node string) time.Duration {
	w.t.Helper()
	abroad := pods(w.t, w.at, "-n", "store", "-l", "app=web")[0]
	own := w.own(node)
	ask := func() string { // for five seconds at most
		ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
		defer cancel()
		if out, err := w.at.Kubectl(ctx, "-n", "store", "exec", own.Metadata.Name, "--", "/app", "dial", abroad.Status.PodIP+":8080"); err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	}
	if why := ask(); why != "" {
		w.t.Fatal(why)
	}
	began := time.Now()
	do()
	eventually(w.t, 2*time.Minute, "the gateway moved", func() string {
		if time.Since(began) < 2*time.Second { // a moment for what is on its way
			return "not yet"
		}
		return ask()
	})
	return time.Since(began)
}
