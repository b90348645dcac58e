//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// meeting is a lab in which two pods of alice's run at home, two at bob's and two at carol's, each with a service of its own. All three
// laptops have the same ranges.
type meeting struct {
	l                 *lab.Lab
	alice, bob, carol *lab.Laptop
	twin              string   // of shop, at bob's
	all               []friend // as alice's own kubectl shows them
}

// friend is one of the six, as home's API shows it.
type friend struct {
	name, node, ip    string
	host              string // the node's address at home
	service           string // ClusterIP of the service of its own
	nodePort, nodeUDP int    // of that service, for TCP and for UDP
}

// TestAGuestLivesInItsHomesAddressSpace: whatever address a pod reads at its home's API leads where it leads at home, wherever the pod runs;
// and who is asked sees the address by which home knows the one who asks.
func TestAGuestLivesInItsHomesAddressSpace(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	m := &meeting{l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), carol: l.Laptop("carol")}
	m.settle(t)
	m.found(t)
	t.Run("a pod has one address, at home and where it runs", m.oneAddress)
	t.Run("names and addresses are home's", m.names)
	t.Run("each reaches each by everything that home shows", m.matrix)
	t.Run("5 MB from everywhere to everywhere", m.large)
	t.Run("guests of two providers meet past home", m.past)
	t.Run("pods of a namespace are spread", m.even)
	t.Run("bob's guests have each other while home is away", m.apart)
}

func (m *meeting) settle(t *testing.T) {
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "12"}
	befriend(t, m.alice, m.bob, ask...)
	befriend(t, m.alice, m.carol, ask...)
	kubectl(t, m.alice, "create", "namespace", "shop")
	kith(t, m.alice, "offload", "shop")
	manifest, err := os.ReadFile(filepath.Join("testdata", "meet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, m.alice, string(manifest))
	var services strings.Builder
	for i := range 6 {
		fmt.Fprintf(&services, `---
apiVersion: v1
kind: Service
metadata: {name: to-meet-%[1]d, namespace: shop, labels: {of: meet}}
spec:
  type: NodePort
  selector: {statefulset.kubernetes.io/pod-name: meet-%[1]d}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: udp, protocol: UDP, port: 90, targetPort: 9999}]
`, i)
	}
	apply(t, m.alice, services.String())
	waitReady(t, m.alice, 6, "-n", "shop", "-l", "app=meet")
	m.twin = twinAt(t, m.bob, "shop")
	m.all = friends(t,
		kubectl(t, m.alice, "-n", "shop", "get", "pods", "-l", "app=meet", "-o", "json"),
		kubectl(t, m.alice, "-n", "shop", "get", "services", "-l", "of=meet", "-o", "json"))
	for _, node := range []string{"alice", "kith-bob", "kith-carol"} {
		if on := m.on(node); len(on) != 2 {
			t.Fatalf("on %s are %+v, want two of %+v", node, on, m.all)
		}
	}
}

// found waits until all six know all six, and reach them by their services: kube-proxy hears of an endpoint a moment after its pod is ready.
func (m *meeting) found(t *testing.T) {
	var services strings.Builder
	for _, f := range m.all {
		fmt.Fprintf(&services, "tcp to-%s.shop.svc.cluster.local.:80 1\n", f.name)
	}
	for _, f := range m.all {
		eventually(t, time.Minute, f.name+" finds all six", func() string {
			out, err := m.exec(t, f.name, "lookup", "meet.shop.svc.cluster.local.")
			if got := strings.Fields(out); err != nil || len(got) != 6 {
				return fmt.Sprintf("%q %v", got, err)
			}
			return ""
		})
		eventually(t, time.Minute, f.name+" reaches all six by their services", func() string {
			out, err := m.alice.KubectlInput(t.Context(), strings.NewReader(services.String()), "-n", "shop", "exec", "-i", f.name, "--", "/app", "tries")
			if err != nil || strings.Count(out, `"connected":true`) != len(m.all) {
				return fmt.Sprintf("%s %v", out, err)
			}
			return ""
		})
	}
}

func (m *meeting) on(node string) (on []friend) {
	for _, f := range m.all {
		if f.node == node {
			on = append(on, f)
		}
	}
	return on
}

// heal mends the cut between alice and bob, and waits until all six are ready at home again.
func (m *meeting) heal(t *testing.T) {
	t.Helper()
	if err := m.l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "home is back", func() string {
		out, in := peerOf(t, m.alice, "bob"), peerOf(t, m.bob, "alice")
		if !out.Reachable || !in.Reachable || !out.Tunnel.Up || !in.Tunnel.Up {
			return fmt.Sprintf("%+v %+v", out, in)
		}
		return ""
	})
	waitReady(t, m.alice, 6, "-n", "shop", "-l", "app=meet")
}

// exec runs a tool in one of the six, by way of home.
func (m *meeting) exec(t *testing.T, name string, args ...string) (string, error) {
	out, err := m.alice.Kubectl(t.Context(), append([]string{"-n", "shop", "exec", name, "--", "/app"}, args...)...)
	return strings.TrimSpace(out), err
}

// friends reads them out of two lists of the API, of pods and of services.
func friends(t *testing.T, pods, services string) (all []friend) {
	t.Helper()
	var p struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
			Status   struct{ PodIP, HostIP string }
		}
	}
	var s struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				ClusterIP string
				Ports     []struct{ NodePort int }
			}
		}
	}
	if err := json.Unmarshal([]byte(pods), &p); err != nil {
		t.Fatalf("%v: %s", err, pods)
	}
	if err := json.Unmarshal([]byte(services), &s); err != nil {
		t.Fatalf("%v: %s", err, services)
	}
	for _, one := range p.Items {
		f := friend{name: one.Metadata.Name, node: one.Spec.NodeName, ip: one.Status.PodIP, host: one.Status.HostIP}
		for _, service := range s.Items {
			if service.Metadata.Name == "to-"+f.name && len(service.Spec.Ports) == 2 {
				f.service, f.nodePort, f.nodeUDP = service.Spec.ClusterIP, service.Spec.Ports[0].NodePort, service.Spec.Ports[1].NodePort
			}
		}
		if f.ip == "" || f.service == "" || f.nodePort == 0 || f.nodeUDP == 0 {
			t.Fatalf("home shows %+v", f)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b friend) int { return strings.Compare(a.name, b.name) })
	return all
}

// read has one of the six ask home's API who the six are. It is asked by its ClusterIP, and by its name.
func (m *meeting) read(t *testing.T, from string) []friend {
	t.Helper()
	pods, err := m.exec(t, from, "api", "/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dmeet")
	if err != nil {
		t.Fatalf("%s asks home's API: %v %.300s", from, err, pods)
	}
	services, err := m.exec(t, from, "api", "/api/v1/namespaces/{namespace}/services?labelSelector=of%3Dmeet", "kubernetes.default:443")
	if err != nil {
		t.Fatalf("%s asks kubernetes.default:443: %v %.300s", from, err, services)
	}
	return friends(t, pods, services)
}

func (m *meeting) oneAddress(t *testing.T) {
	api := kubectl(t, m.alice, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	there := map[string]string{}
	for _, p := range []*lab.Laptop{m.bob, m.carol} {
		twin := twinAt(t, p, "shop")
		for _, one := range pods(t, p, "-n", twin, "-l", "app=meet") {
			there[one.Metadata.Name] = one.Status.PodIP
		}
	}
	for _, f := range m.all {
		out, err := m.exec(t, f.name, "env")
		env := strings.Split(out, "\n")
		for _, want := range []string{"POD_IP=" + f.ip, "KUBERNETES_SERVICE_HOST=" + api, "KUBERNETES_SERVICE_PORT=443"} {
			if err != nil || !slices.Contains(env, want) {
				t.Errorf("%s on %s has no %s in its environment (%v):\n%s", f.name, f.node, want, err, out)
			}
		}
		if ip, abroad := there[f.name]; abroad != (f.node != "alice") || abroad && ip != f.ip {
			t.Errorf("%s has %s at home, %q where it runs, %s", f.name, f.ip, ip, f.node)
		}
	}
	seen := map[string]string{}
	for _, f := range m.all {
		if other := seen[f.ip]; other != "" {
			t.Errorf("%s and %s both have %s", f.name, other, f.ip)
		}
		seen[f.ip] = f.name
	}
}

func (m *meeting) names(t *testing.T) {
	var every []string
	for _, f := range m.all {
		every = append(every, f.ip)
	}
	slices.Sort(every)
	sorted := func(out string) []string {
		list := strings.Fields(out)
		slices.Sort(list)
		return list
	}
	for _, from := range []friend{m.on("alice")[0], m.on("kith-bob")[0], m.on("kith-carol")[0]} {
		if out, err := m.exec(t, from.name, "lookup", "meet.shop.svc.cluster.local."); err != nil || !slices.Equal(sorted(out), every) {
			t.Errorf("%s on %s: meet is %q (%v), want %v", from.name, from.node, out, err, every)
		}
		for _, f := range m.all {
			for name, want := range map[string]string{f.name + ".meet": f.ip, "to-" + f.name: f.service} {
				if out, err := m.exec(t, from.name, "lookup", name); err != nil || out != want {
					t.Errorf("%s on %s: %s is %q (%v), want %s", from.name, from.node, name, out, err, want)
				}
			}
			for addr, want := range map[string]string{f.ip: f.name + ".meet.shop.svc.cluster.local.", f.service: "to-" + f.name + ".shop.svc.cluster.local."} {
				if addr == from.ip { // which is in /etc/hosts, as the kubelet there wrote it
					continue
				}
				if out, err := m.exec(t, from.name, "reverse", addr); err != nil || !slices.Contains(strings.Fields(out), want) {
					t.Errorf("%s on %s: %s is called %q (%v), want %s", from.name, from.node, addr, out, err, want)
				}
			}
		}
	}
}

// attempt is one line for `tries`, and what must come of it.
type attempt struct {
	line string
	name string // who answers; empty: nobody does
	ip   string // what that knows as its own address; empty: not asked
	from string // whom it sees; empty: that is for kube-proxy to say, which masquerades
}

// tried is what `tries` says of a line.
type tried struct {
	Line      string
	Connected bool
	Name      string
	PodIP     string
	Client    string
	Lost      int
	MS        float64
	Error     string
}

// attempts are all ways from one of the six to another, or to itself: by the addresses that it read at home's API.
func attempts(from, to friend, tcp []int, udp []int, nodePorts bool) (list []attempt) {
	own := to.name == from.name
	for way, at := range map[string][2]string{
		"pod IP":        {to.ip + ":8080", to.ip + ":9999"},
		"ClusterIP":     {to.service + ":80", to.service + ":90"},
		"headless name": {to.name + ".meet:8080", to.name + ".meet:9999"},
		"service name":  {"to-" + to.name + ".shop.svc.cluster.local.:80", "to-" + to.name + ".shop.svc.cluster.local.:90"},
		"NodePort":      {fmt.Sprint(to.host, ":", to.nodePort), fmt.Sprint(to.host, ":", to.nodeUDP)},
	} {
		a := attempt{name: to.name, ip: to.ip, from: from.ip}
		switch {
		case way == "NodePort" && !nodePorts:
			continue
		case way == "NodePort", own && (way == "ClusterIP" || way == "service name"):
			a.from = "" // as at home
		}
		for i, sizes := range [][]int{tcp, udp} {
			for _, size := range sizes {
				a.line = fmt.Sprintf("%s %s %d", []string{"tcp", "udp"}[i], at[i], size)
				list = append(list, a)
			}
		}
	}
	return list
}

// dials are attempts to connect to each address, where nobody is to answer.
func dials(list ...string) (all []attempt) {
	for _, to := range list {
		all = append(all, attempt{line: "dial " + to})
	}
	return all
}

// tries has a pod try all lines at once, and gives what came of each, in their order.
func tries(t *testing.T, at *lab.Laptop, namespace, pod string, lines []string) []tried {
	t.Helper()
	ask := func() (string, error) {
		return at.KubectlInput(t.Context(), strings.NewReader(strings.Join(lines, "\n")), "-n", namespace, "exec", "-i", pod, "--", "/app", "tries")
	}
	out, err := ask()
	// A kubelet that was just started anew does not know its pods yet.
	for began := time.Now(); err != nil && strings.Contains(err.Error(), "pod does not exist") && time.Since(began) < time.Minute; out, err = ask() {
		time.Sleep(time.Second)
	}
	if err != nil {
		t.Errorf("%s/%s did not try: %v: %.500s", namespace, pod, err, out)
		return nil
	}
	all := make([]tried, len(lines))
	results := json.NewDecoder(strings.NewReader(out))
	for i, line := range lines {
		if err := results.Decode(&all[i]); err != nil || all[i].Line != line {
			t.Errorf("%s/%s: %s: what came of it is %+v, %v", namespace, pod, line, all[i], err)
			return all[:i]
		}
	}
	return all
}

// try is tries, and gives how many went as they must.
func try(t *testing.T, what string, at *lab.Laptop, namespace, pod string, list []attempt) (well int) {
	t.Helper()
	lines := make([]string, len(list))
	for i, a := range list {
		if lines[i] = a.line; a.name == "" {
			lines[i] = "closed " + a.line
		}
	}
	for i, got := range tries(t, at, namespace, pod, lines) {
		switch a := list[i]; {
		case a.name == "":
			if got.Connected {
				t.Errorf("%s: %s: answered, by %q", what, a.line, got.Name)
				continue
			}
		case got.Error != "":
			t.Errorf("%s: %s: %s", what, a.line, got.Error)
			continue
		case got.Name != a.name && !strings.HasPrefix(got.Name, a.name+"-"):
			t.Errorf("%s: %s: %s answered, want %s", what, a.line, got.Name, a.name)
			continue
		case a.ip != "" && got.PodIP != a.ip:
			t.Errorf("%s: %s: %s says its address is %s, want %s", what, a.line, got.Name, got.PodIP, a.ip)
			continue
		case a.from != "" && got.Client != a.from:
			t.Errorf("%s: %s: %s was seen, want %s", what, a.line, got.Client, a.from)
			continue
		case got.Lost > 0:
			t.Logf("%s: %s: the first %d packets had no answer", what, a.line, got.Lost)
		}
		well++
	}
	return well
}

// matrix: every one asks every one, and itself, by what it read; all at once.
func (m *meeting) matrix(t *testing.T) {
	var each sync.WaitGroup
	var mu sync.Mutex
	well, asked := 0, 0
	began := time.Now()
	for _, me := range m.all {
		seen := m.read(t, me.name)
		if !slices.Equal(seen, m.all) {
			t.Errorf("%s on %s reads %+v, want %+v", me.name, me.node, seen, m.all)
		}
		each.Go(func() {
			var list []attempt
			for _, to := range seen {
				list = append(list, attempts(me, to, []int{1}, []int{1, 4000}, true)...)
			}
			n := try(t, me.name+" on "+me.node, m.alice, "shop", me.name, list)
			mu.Lock()
			defer mu.Unlock()
			well, asked = well+n, asked+len(list)
		})
	}
	each.Wait()
	t.Logf("%d of %d, in %s", well, asked, time.Since(began).Round(100*time.Millisecond))
}

// large sends from one on each laptop to another one on each.
func (m *meeting) large(t *testing.T) {
	began := time.Now()
	well, asked := 0, 0
	for _, from := range []string{"alice", "kith-bob", "kith-carol"} {
		me := m.on(from)[0]
		var list []attempt
		for _, to := range []string{"alice", "kith-bob", "kith-carol"} {
			list = append(list, attempts(me, m.on(to)[1], []int{5_000_000}, nil, true)...)
		}
		well, asked = well+try(t, me.name+" on "+from, m.alice, "shop", me.name, list), asked+len(list)
	}
	t.Logf("%d of %d, in %s", well, asked, time.Since(began).Round(100*time.Millisecond))
}

// apart cuts bob off from home, with streams under way between guests of his.
func (m *meeting) apart(t *testing.T) {
	apply(t, m.alice, loading("serve", "kith-bob", "Always", "serve"))
	kubectl(t, m.alice, "-n", "shop", "create", "service", "clusterip", "serve", "--tcp=7000:7000")
	server := waitReady(t, m.alice, 1, "-n", "shop", "-l", "app=serve")[0].Status.PodIP
	service := kubectl(t, m.alice, "-n", "shop", "get", "service", "serve", "-o", "jsonpath={.spec.clusterIP}")
	streams := map[string]string{"by-address": server, "by-service": service, "by-name": "serve.shop.svc.cluster.local."}
	// A stream connects once, when it starts: by then DNS and kube-proxy at bob must know the service.
	from := m.on("kith-bob")[0].name
	eventually(t, 30*time.Second, "the service is known at bob", func() string {
		why := tries(t, m.alice, "shop", from, []string{"tcp serve.shop.svc.cluster.local.:7000 1"})[0].Error
		if strings.Contains(why, "lookup") || strings.Contains(why, "refused") {
			return why
		}
		return ""
	})
	for name, to := range streams {
		apply(t, m.alice, loading(name, "kith-bob", "Never", "stream", "-duration", "1h", net.JoinHostPort(to, "7000")))
	}
	for name := range streams {
		waitReady(t, m.alice, 1, "-n", "shop", "-l", "app="+name)
	}
	begun := time.Now()

	each := func(when string) {
		t.Helper()
		there := m.on("kith-bob")
		for _, me := range there {
			var list []attempt
			for _, to := range there {
				list = append(list, attempts(me, to, []int{1, 1_000_000}, []int{1, 4000}, false)...)
			}
			t.Logf("%s, %s: %d of %d", when, me.name, try(t, when+": "+me.name, m.bob, m.twin, me.name, list), len(list))
		}
	}
	each("before")
	cut := time.Now()
	if err := m.l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	each("right after the cut")
	eventually(t, 30*time.Second, "bob knows that alice is away", func() string {
		if p := peerOf(t, m.bob, "alice"); p.Name == "" || p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	each("while home is away")
	time.Sleep(10 * time.Second)
	each("later")
	away := time.Since(cut)
	m.heal(t)
	each("home is back")
	for _, f := range m.all {
		eventually(t, 30*time.Second, f.name+" finds all six again", func() string {
			out, err := m.exec(t, f.name, "lookup", "meet.shop.svc.cluster.local.")
			if got := strings.Fields(out); err != nil || len(got) != 6 {
				return fmt.Sprintf("%q %v", got, err)
			}
			return ""
		})
	}
	// DNS may know of an endpoint before kube-proxy has written it down.
	for _, node := range []string{"alice", "kith-bob", "kith-carol"} {
		from := m.on(node)[0].name
		for _, f := range m.all {
			eventually(t, 30*time.Second, f.name+"'s service answers "+from+" again", func() string {
				return tries(t, m.alice, "shop", from, []string{"tcp " + f.service + ":80 1"})[0].Error
			})
		}
	}
	m.matrix(t)

	lasted := time.Since(begun)
	if _, stderr, err := m.bob.Exec(t.Context(), "sh", "-c", "kill -TERM $(pgrep -f '^/app stream')"); err != nil {
		t.Fatal(err, stderr)
	}
	for name := range streams {
		var r report
		eventually(t, 30*time.Second, "the stream "+name+" ends", func() string {
			out, err := m.alice.Kubectl(t.Context(), "-n", "shop", "logs", name)
			if err == nil {
				err = json.Unmarshal([]byte(out), &r)
			}
			if err != nil {
				return err.Error()
			}
			return ""
		})
		t.Logf("%s: %+v", name, r)
		if r.Broken != "" || r.OutOfOrder > 0 || r.Gap > float64(away.Milliseconds())/2 || r.Seconds < lasted.Seconds() {
			t.Errorf("the stream %s between two guests of bob's did not go on: %+v", name, r)
		}
	}
}
