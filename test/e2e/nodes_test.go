//go:build lab

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// troubles are the steps that take minutes, in the tests that do (make soak).
var troubles []officeStep

type officeStep struct {
	name string
	do   func(*office, *testing.T)
}

func (c *office) rights(t *testing.T) {
	const authenticated = "system:authenticated"
	rights(t, c.server,
		account{"The built-in engine's DNS: user `kith:dns`", []string{"kith:dns", authenticated}, nil, nil},
		account{"A node of the built-in engine: group `system:nodes`, beside what the Node authorizer gives to its kubelet",
			[]string{"system:node:corp-2", "system:nodes", authenticated}, nil, []particular{{"kube-system", "`kube-system`"}}},
		account{"Who comes with a token to join: group `system:bootstrappers`",
			[]string{"system:bootstrap:abcdef", "system:bootstrappers", authenticated}, nil, nil},
		account{"Whoever reaches the API server, where nodes may join: user `system:anonymous`",
			[]string{"system:anonymous", authenticated}, nil, []particular{{"kube-public", "`kube-public`"}}}) // in the group of those who may ask what they may
}

type office struct {
	l      *lab.Lab
	server *lab.Laptop
}

const eachNode = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: each, namespace: shop}
spec:
  selector: {matchLabels: {app: each}}
  template:
    metadata: {labels: {app: each}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}},
         env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}],
         readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: each, namespace: shop}
spec: {type: NodePort, selector: {app: each}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
`

// each is the pod of the DaemonSet on each node.
func (c *office) each(t *testing.T) map[string]pod {
	t.Helper()
	on := map[string]pod{}
	for _, p := range pods(t, c.server, "-n", "shop", "-l", "app=each") {
		on[p.Spec.NodeName] = p
	}
	return on
}

func (c *office) get(t *testing.T, from pod, url string) (string, error) {
	return c.server.Kubectl(t.Context(), "-n", "shop", "exec", from.Metadata.Name, "--", "/app", "get", "http://"+url+"/")
}

// well waits until every node's pod reaches every other one, and the service by its name.
func (c *office) well(t *testing.T, within time.Duration) {
	t.Helper()
	eventually(t, within, "pods of all nodes reach each other", func() string {
		on := c.each(t)
		if len(on) != 3 {
			return fmt.Sprintf("%d nodes have a pod", len(on))
		}
		for _, from := range on {
			for node, to := range on {
				if out, err := c.get(t, from, to.Status.PodIP+":8080"); err != nil || !strings.Contains(out, `"node": "`+node+`"`) {
					return fmt.Sprintf("%s to %s: %v", from.Spec.NodeName, node, err)
				}
			}
			if _, err := c.get(t, from, "each.shop.svc.cluster.local"); err != nil {
				return fmt.Sprintf("%s to the service: %v", from.Spec.NodeName, err)
			}
		}
		return ""
	})
}

func (c *office) reach(t *testing.T) {
	c.well(t, time.Minute)
	on := c.each(t)
	ranges := map[string]bool{}
	for node, p := range on {
		at := kubectl(t, c.server, "get", "node", node, "-o", "jsonpath={.spec.podCIDR}")
		ranges[at] = true
		if prefix := strings.TrimSuffix(at, "0/24"); !strings.HasPrefix(p.Status.PodIP, prefix) {
			t.Errorf("the pod on %s, whose range is %s, has %s", node, at, p.Status.PodIP)
		}
		for other, to := range on { // nobody in between hides who asks
			if out, err := c.get(t, p, to.Status.PodIP+":8080"); err != nil || !strings.Contains(out, `"client": "`+p.Status.PodIP+":") {
				t.Errorf("%s is seen from %s as %s, %v", node, other, out, err)
			}
		}
		// A node port, from the LAN.
		machine, err := c.l.Laptop(node).Address()
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := c.l.Laptop("lan").Exec(t.Context(), "curl", "-sf", "-m", "60", fmt.Sprintf("http://%s:30080/", machine)); err != nil || !strings.Contains(out, `"node"`) {
			t.Errorf("node port of %s: %s, %v", node, out, err)
		}
		// The machine itself, by a service's address.
		if out, _, err := c.l.Laptop(node).Exec(t.Context(), "sh", "-c", "curl -sf -m 60 http://$(kith-k8s kubectl -n shop get service each -o jsonpath={.spec.clusterIP})/"); err != nil || !strings.Contains(out, `"node"`) {
			t.Errorf("from %s itself: %s, %v", node, out, err)
		}
	}
	if len(ranges) != 3 {
		t.Errorf("ranges of nodes: %v", ranges)
	}
}

func (c *office) kubelets(t *testing.T) {
	for node, p := range c.each(t) {
		name := p.Metadata.Name
		if out := kubectl(t, c.server, "-n", "shop", "logs", name); !strings.Contains(out, node) {
			t.Errorf("logs on %s: %s", node, out)
		}
		forwarded, _, err := c.server.Exec(t.Context(), "sh", "-c", "kith-k8s kubectl -n shop port-forward pod/"+name+
			" 18080:8080 >/tmp/pf.log 2>&1 & p=$!; i=0; while [ $i -lt 600 ]; do curl -sf http://127.0.0.1:18080/ && break; i=$((i+1)); sleep 0.1; done; kill $p")
		if err != nil || !strings.Contains(forwarded, `"node": "`+node+`"`) {
			t.Errorf("port-forward to %s: %q, %v", node, forwarded, err)
		}
		eventually(t, time.Minute, "top of "+node, func() string {
			for _, what := range [][]string{{"top", "node", node}, {"-n", "shop", "top", "pod", name}} {
				if out, err := c.server.Kubectl(t.Context(), what...); err != nil {
					return fmt.Sprint(out, err)
				}
			}
			return ""
		})
	}
}

func (c *office) volumes(t *testing.T) {
	apply(t, c.server, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper, namespace: shop, labels: {app: keeper}}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: corp-2}
  securityContext: {runAsUser: 1000}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers:
  - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}], resources: {requests: {cpu: 10m, memory: 16Mi}}}
`)
	waitReady(t, c.server, 1, "-n", "shop", "-l", "app=keeper")
	at := kubectl(t, c.server, "get", "pv", "-o", "jsonpath={.items[0].spec.local.path}")
	folder := func() bool {
		_, err := os.Stat(c.l.Laptop("corp-2").Path(at))
		return err == nil
	}
	if !folder() || filepath.Dir(at) != "/var/lib/kith/k8s/storage" {
		t.Errorf("no folder %s on corp-2", at)
	}
	kubectl(t, c.server, "-n", "shop", "delete", "pod/keeper", "pvc/data", "--wait=true")
	eventually(t, time.Minute, "the volume and its folder go", func() string {
		if out := kubectl(t, c.server, "get", "pv", "-o", "name"); strings.TrimSpace(out) != "" {
			return instead(out)
		}
		if folder() {
			return "the folder is there"
		}
		return ""
	})
}

func (c *office) policies(t *testing.T) {
	on := c.each(t)
	desk := solo("desk", "corp-2")
	apply(t, c.server, desk+"---"+solo("lamp", "corp-3")+"---"+solo("guest", "corp-1"))
	waitReady(t, c.server, 3, "-n", "shop", "-l", "app in (desk,lamp,guest)")
	to := kubectl(t, c.server, "-n", "shop", "get", "pod", "desk", "-o", "jsonpath={.status.podIP}") + ":8080"
	open := func(when string, want map[string]bool) {
		t.Helper()
		eventually(t, 20*time.Second, when, func() string {
			for from, open := range want {
				if err := dial(t, c.server, "shop", from, to); (err == nil) != open {
					return fmt.Sprintf("%s to desk: open is %t (%v)", from, err == nil, err)
				}
			}
			return ""
		})
	}
	each := on["corp-3"].Metadata.Name
	open("without policies", map[string]bool{"lamp": true, "guest": true, each: true})
	apply(t, c.server, policy("desk", "desk", "Ingress", `ingress: [{from: [{podSelector: {matchLabels: {app: lamp}}}]}]`))
	open("desk gets what lamp sends", map[string]bool{"lamp": true, "guest": false, each: false})
	apply(t, c.server, policy("lamp", "lamp", "Egress", `egress: []`))
	open("lamp sends nothing", map[string]bool{"lamp": false, "guest": false})
	kubectl(t, c.server, "-n", "shop", "delete", "networkpolicies", "--all")
	open("with the policies deleted", map[string]bool{"lamp": true, "guest": true})
	kubectl(t, c.server, "-n", "shop", "delete", "pod", "desk", "lamp", "guest")
}

// join runs an agent on the machine beside its own, in folders of its own, and gives what it says in the end.
func (c *office) join(t *testing.T, p *lab.Laptop, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, said, err := p.Exec(ctx, append([]string{"timeout", "50", "kith-k8s", "agent", "--data-dir=/tmp/other", "--run-dir=/tmp/other-run", "--server=https://192.0.2.2:6443"}, args...)...)
	if err == nil {
		t.Errorf("it joined: %s", out)
	}
	return said
}

// strangers: on the LAN, with and without half of what it takes to join.
func (c *office) strangers(t *testing.T) {
	hash := ""
	words := strings.Fields(c.command(t))
	for i, w := range words {
		if w == "--ca-cert-hash" {
			hash = words[i+1]
		}
	}
	token := words[indexOf(words, "--token")+1]
	lan, two := c.l.Laptop("lan"), c.l.Laptop("corp-2")
	for name, try := range map[string]struct{ said, want string }{
		"no token":              {c.join(t, two, "--node-name=x", "--ca-cert-hash="+hash), "token is missing"},
		"a guess":               {c.join(t, two, "--node-name=x", "--ca-cert-hash="+hash, "--token=abcdef.0123456789abcdef"), "the server knows no token abcdef"},
		"another hash":          {c.join(t, two, "--node-name=x", "--token="+token, "--ca-cert-hash=sha256:"+strings.Repeat("0", 64)), "not what ca-cert-hash says"},
		"no hash":               {c.join(t, two, "--node-name=x", "--token="+token), "ca-cert-hash is missing"},
		"another's name":        {c.join(t, two, "--node-name=corp-1", "--token="+token, "--ca-cert-hash="+hash), "there is a node corp-1, and its name belongs to its key"},
		"the API server's name": {c.join(t, two, "--node-name=kubernetes.default.svc", "--token="+token, "--ca-cert-hash="+hash), "what others call the API server"},
		"a peer's name":         {c.join(t, two, "--node-name=kith-carol", "--token="+token, "--ca-cert-hash="+hash), "what others call the API server"},
	} {
		if !strings.Contains(try.said, try.want) {
			t.Errorf("%s: %s, want %q", name, try.said, try.want)
		}
	}
	pod := c.each(t)["corp-2"].Status.PodIP
	sh := func(script string) string {
		out, said, err := lan.Exec(t.Context(), "sh", "-c", script)
		return fmt.Sprint(out, said, err)
	}
	of := netip.PrefixFrom(netip.MustParseAddr(pod), 24).Masked().String() // which of the nodes' ranges corp-2 has
	_ = sh("ip route add " + of + " via 192.0.2.3; ip route add 10.43.0.0/16 via 192.0.2.3")
	for script, want := range map[string]string{
		"curl -s -m 3 http://" + pod + ":8080/":                                                            "exit status 28",
		"curl -sk -m 3 https://10.43.0.1/version":                                                          "exit status 28",
		"curl -sk -m 60 https://192.0.2.2:6443/api/v1/nodes":                                               "cannot list resource",
		"curl -sk -m 60 https://192.0.2.2:6443/api/v1/namespaces/kube-system/secrets":                      "cannot list resource",
		"curl -sk -m 60 -H 'Authorization: Bearer abcdef.0123456789abcdef' https://192.0.2.2:6443/version": "Unauthorized",
		"curl -sk -m 60 -H 'Authorization: Bearer " + token + "' https://192.0.2.2:6443/api/v1/pods":       "cannot list resource",
		"curl -sk -m 60 -H 'Authorization: Bearer " + token + "' https://192.0.2.2:6443/api/v1/nodes":      "cannot list resource",
		"curl -sk -m 60 https://192.0.2.3:10250/pods":                                                      "Unauthorized",
		"curl -s -m 3 http://192.0.2.2:10053/":                                                             "exit status 28",
	} {
		if out := sh(script); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", script, out, want)
		}
	}
	_ = sh("ip route del " + of + "; ip route del 10.43.0.0/16")
}

func indexOf(words []string, word string) int {
	for i, w := range words {
		if w == word {
			return i
		}
	}
	return -1
}

func (c *office) command(t *testing.T) string {
	t.Helper()
	out, _, err := c.server.Exec(t.Context(), "kith-k8s", "token", "create", "--print-join-command")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lives tells each container of the DaemonSet apart.
func (c *office) lives(t *testing.T) string {
	t.Helper()
	return kubectl(t, c.server, "-n", "shop", "get", "pods", "-l", "app=each", "--sort-by=.spec.nodeName", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
}

func (c *office) restarts(t *testing.T) {
	before := c.lives(t)
	for _, list := range []func(*lab.Laptop) error{
		func(p *lab.Laptop) error { return p.RestartDaemon(t.Context()) },
		func(p *lab.Laptop) error { return p.KillDaemon(t.Context()) },
	} {
		for _, node := range []string{"corp-2", "corp-3", "corp-1"} {
			if err := list(c.l.Laptop(node)); err != nil {
				t.Fatal(err)
			}
		}
		c.ready(t, time.Minute)
		c.well(t, time.Minute)
	}
	if after := c.lives(t); after != before {
		t.Errorf("containers were\n%s and are\n%s", before, after)
	}
}

// ready waits until all nodes are.
func (c *office) ready(t *testing.T, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := c.l.WaitReady(ctx, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, within, "three nodes Ready", func() string {
		out, err := c.server.Kubectl(t.Context(), "get", "nodes", "--no-headers")
		if err != nil || strings.Count(out, " Ready ") != 3 {
			return fmt.Sprint(out, err)
		}
		return ""
	})
}

func (c *office) power(t *testing.T) {
	p := c.l.Laptop("corp-3")
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 2*time.Minute, "corp-3 is seen to be gone", func() string {
		if out := kubectl(t, c.server, "get", "node", "corp-3", "--no-headers"); !strings.Contains(out, "NotReady") {
			return instead(out)
		}
		return ""
	})
	t.Logf("seen to be gone after %s", took.Round(time.Second))
	if err := p.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ready(t, 2*time.Minute)
	c.well(t, 2*time.Minute)
}

// serverPower: the nodes' pods run on without it, and reach each other.
func (c *office) serverPower(t *testing.T) {
	before := c.each(t)
	two, three := before["corp-2"], before["corp-3"]
	if err := c.server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func() (string, error) {
		out, _, err := c.l.Laptop("corp-2").Exec(t.Context(), "sh", "-c", "ctr -a "+lab.ContainerdSocket+" -n k8s.io task exec --exec-id t$$ "+
			strings.TrimPrefix(kubeID(two), "containerd://")+" /app get http://"+three.Status.PodIP+":8080/")
		return out, err
	}
	if out, err := ask(); err != nil || !strings.Contains(out, three.Metadata.Name) {
		t.Errorf("without the server: %s, %v", out, err)
	}
	if err := c.l.Laptop("corp-2").RestartDaemon(t.Context()); err != nil { // a node that starts without it waits
		t.Fatal(err)
	}
	if out, err := ask(); err != nil || !strings.Contains(out, three.Metadata.Name) {
		t.Errorf("without the server, after a restart: %s, %v", out, err)
	}
	if err := c.server.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ready(t, 2*time.Minute)
	c.well(t, 2*time.Minute)
	after := c.each(t)
	for _, node := range []string{"corp-2", "corp-3"} {
		if kubeID(before[node]) != kubeID(after[node]) {
			t.Errorf("the container on %s ended", node)
		}
	}
}

func kubeID(p pod) string {
	if len(p.Status.ContainerStatuses) == 0 {
		return ""
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

func (c *office) drain(t *testing.T) {
	kubectl(t, c.server, "drain", "corp-2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
	for _, p := range waitReady(t, c.server, 2, "-n", "shop", "-l", "app=web") {
		if p.Spec.NodeName == "corp-2" {
			t.Errorf("%s is on the node that was drained", p.Metadata.Name)
		}
	}
	kubectl(t, c.server, "uncordon", "corp-2")
}

func (c *office) deleted(t *testing.T) {
	p := c.l.Laptop("corp-3")
	kubectl(t, c.server, "delete", "node", "corp-3")
	if err := p.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c.server, "delete", "node", "corp-3", "--ignore-not-found") // its kubelet may have been faster
	eventually(t, 30*time.Second, "the others have no route to it", func() string {
		out, _, err := c.l.Laptop("corp-2").Exec(t.Context(), "ip", "route", "show", "proto", "108")
		if err != nil || strings.Contains(out, "192.0.2.4") || !strings.Contains(out, "192.0.2.2") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	if _, _, err := p.Exec(t.Context(), "kith-k8s", "agent", "reset"); err != nil {
		t.Fatal(err)
	}
	if out, _, err := p.Exec(t.Context(), "ip", "route", "show", "proto", "108"); err != nil || out != "" {
		t.Errorf("routes are left: %s, %v", out, err)
	}
	words := strings.Fields(c.command(t))
	token := words[indexOf(words, "--token")+1]
	if _, _, err := p.Exec(t.Context(), "sh", "-c", "echo "+token+" >/var/lib/kith/join-token"); err != nil {
		t.Fatal(err)
	}
	if err := p.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ready(t, 2*time.Minute)
	c.well(t, 2*time.Minute)
	// The token is taken back; who joined stays, also over a restart.
	if _, _, err := c.server.Exec(t.Context(), "kith-k8s", "token", "delete", token[:6]); err != nil {
		t.Fatal(err)
	}
	if out, _, err := c.server.Exec(t.Context(), "kith-k8s", "token", "list"); err != nil || strings.Contains(out, token[:6]) {
		t.Errorf("token list: %s, %v", out, err)
	}
	if err := p.RestartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ready(t, time.Minute)
}

// TestANodeJoinsALaptop: a laptop with kithd lets a second machine join its cluster, goes on as before, and goes back to one node.
func TestANodeJoinsALaptop(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 1})
	alice := l.Laptop("alice")
	apply(t, alice, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---"+solo("desk", "alice"))
	waitReady(t, alice, 1, "-n", "shop")
	desk := pods(t, alice, "-n", "shop")[0]
	set := func(flags string) {
		t.Helper()
		if _, _, err := alice.Exec(t.Context(), "sh", "-c", "sed -i '/^engineFlags/d' /etc/kith/config.yaml; echo 'engineFlags: ["+flags+"]' >>/etc/kith/config.yaml"); err != nil {
			t.Fatal(err)
		}
		if err := alice.RestartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "alice's API server is the new one", func() string {
			out, _, err := alice.Exec(t.Context(), "sh", "-c", "tr '\\0' ' ' </proc/$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/kith/k8s/engine.pid)/cmdline")
			if err != nil || strings.Contains(out, "--agents") != strings.Contains(flags, "--agents") {
				return fmt.Sprint(out, err)
			}
			return engineReady(t, alice)
		})
	}
	closed := func(when string) {
		t.Helper()
		_, _, _ = l.Laptop("lan").Exec(t.Context(), "ip", "route", "replace", "10.42.255.1/32", "via", "192.0.2.11")
		for _, to := range []string{"https://10.42.255.1:6443/version", "https://10.42.255.1:10250/pods", "http://10.42.255.1:10053/"} {
			if out, said, err := l.Laptop("lan").Exec(t.Context(), "curl", "-sk", "-m", "3", to); err == nil || !strings.Contains(err.Error(), "exit status 28") {
				t.Errorf("%s, from the LAN %s: %s %s %v", when, to, out, said, err)
			}
		}
	}
	closed("a laptop")
	if out, said, err := l.Laptop("lan").Exec(t.Context(), "curl", "-sk", "-m", "3", "https://192.0.2.11:6443/version"); err == nil {
		t.Errorf("a laptop's API server on the LAN: %s %s", out, said)
	}
	set("--agents, --lan-ip=192.0.2.11")
	if out := kubectl(t, alice, "get", "node", "alice", "-o", "jsonpath={.spec.podCIDR}"); out != "10.42.0.0/24" {
		t.Errorf("alice's range is %s now", out)
	}

	words := strings.Fields(func() string {
		out, _, err := alice.Exec(t.Context(), "kith-k8s", "token", "create", "--print-join-command")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}())
	if _, err := lab.Up(t.Context(), lab.Options{Name: l.Name(), Names: []string{"bob"}, NoEngine: true, Daemon: []string{"/bin/sleep", "infinity"}, Images: imagesOf(t)}); err != nil {
		t.Fatal(err)
	}
	bob := l.Laptop("bob")
	if _, _, err := bob.Exec(t.Context(), "sh", "-c", "setsid "+strings.Join(words, " ")+" >/var/log/agent.log 2>&1 &"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "bob is Ready", func() string {
		out, err := alice.Kubectl(t.Context(), "get", "nodes", "--no-headers")
		if err != nil || strings.Count(out, " Ready ") != 2 {
			log, _, _ := bob.Exec(t.Context(), "tail", "-n", "3", "/var/log/agent.log")
			return fmt.Sprint(out, err, log)
		}
		return ""
	})
	apply(t, alice, solo("lamp", "bob")+"---\napiVersion: v1\nkind: Service\nmetadata: {name: desk, namespace: shop}\nspec: {selector: {app: desk}, ports: [{port: 80, targetPort: 8080}]}\n")
	lamp := waitReady(t, alice, 1, "-n", "shop", "-l", "app=lamp")[0]
	for from, urls := range map[string][]string{"lamp": {desk.Status.PodIP + ":8080", "desk.shop.svc.cluster.local"}, "desk": {lamp.Status.PodIP + ":8080"}} {
		for _, url := range urls {
			eventually(t, 20*time.Second, from+" reaches "+url, func() string {
				if out, err := alice.Kubectl(t.Context(), "-n", "shop", "exec", from, "--", "/app", "get", "http://"+url+"/"); err != nil || !strings.Contains(out, `"name"`) {
					return fmt.Sprint(out, err)
				}
				return ""
			})
		}
	}
	if out := kubectl(t, alice, "-n", "shop", "logs", "lamp"); out == "" {
		t.Error("no logs of the pod on bob")
	}
	eventually(t, 20*time.Second, "guests stay on alice", func() string {
		if out := kubectl(t, alice, "get", "nodes", "-l", "kith.dev/fenced=true", "-o", "name"); strings.TrimSpace(out) != "node/alice" {
			return instead(out)
		}
		return ""
	})
	closed("with a node that joined")
	if now := pods(t, alice, "-n", "shop", "-l", "app=desk")[0]; now.Status.PodIP != desk.Status.PodIP || kubeID(now) != kubeID(desk) {
		t.Errorf("the pod on alice is another one now: %+v", now)
	}

	kubectl(t, alice, "delete", "node", "bob")
	set("--log-level=info")
	if out, _, err := alice.Exec(t.Context(), "ip", "route", "show", "proto", "108"); err != nil || out != "" {
		t.Errorf("routes are left: %s, %v", out, err)
	}
	if out, said, err := l.Laptop("lan").Exec(t.Context(), "curl", "-sk", "-m", "3", "https://192.0.2.11:6443/version"); err == nil {
		t.Errorf("the API server is on the LAN still: %s %s", out, said)
	}
	if out, err := alice.Kubectl(t.Context(), "-n", "kube-public", "get", "configmap", "cluster-info"); err == nil {
		t.Errorf("strangers are told still: %s", out)
	}
	closed("a laptop again")
}

func imagesOf(t *testing.T) []string {
	t.Helper()
	archives, err := images.Build(t.Context(), filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return archives
}
