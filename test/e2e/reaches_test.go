//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// outpost is a provider of any engine, of one node or several, with pods of its owner's on each, and guests of alice's and of carol's.
type outpost struct {
	l            *lab.Lab
	name         string // as peers know it
	at           *lab.Laptop
	nodes        []*lab.Laptop
	alice, carol *lab.Laptop
	twin, market string
	cluster      []target            // what the owner's pods reach on whatever node they are
	link         map[string][]target // what they reach on the link of one node
	start, stop  func(t *testing.T)  // of the provider's kithd, which is killed
	ofNodes      bool                // their addresses are those on the LAN, and other than a laptop's
	befriend     func(t *testing.T, consumer *lab.Laptop, ask []string)
	ready        func(t *testing.T) string // of the provider's kithd: what it waits for
	lapses       time.Duration             // after that, until addresses that nobody knows are closed (docs/security.md); 0: guests are known by their links
}

// target is what the owner's pods reach and no guest does.
type target struct {
	what, at string
	ofKithd  bool // it answers while kithd runs
	ofHome   bool // a guest that asks there asks its own home, which may answer
	unsure   bool // not on every engine do the owner's own pods have an answer; the group beside it shows that packets to many are heard
}

// calmFor is how long, after a kithd that does not mark guests' links was killed, the kernel believes that who is not known is no guest, and a moment.
const calmFor = 42 * time.Second

// newOutpost is a provider by that name whose nodes are these; kithd is on the first.
func newOutpost(l *lab.Lab, name string, nodes ...*lab.Laptop) *outpost {
	o := &outpost{l: l, name: name, at: nodes[0], nodes: nodes, alice: l.Laptop("alice"), carol: l.Laptop("carol")}
	o.befriend = func(t *testing.T, consumer *lab.Laptop, ask []string) { befriendAs(t, consumer, o.at, o.name, ask...) }
	o.ready = func(t *testing.T) string { return engineReady(t, o.at) }
	return o
}

// onLaptop is bob's laptop, whatever its engine.
func onLaptop(l *lab.Lab) *outpost {
	bob := l.Laptop("bob")
	o := newOutpost(l, "bob", bob)
	o.start = func(t *testing.T) { must(t, bob.StartDaemon(t.Context())) }
	o.stop = func(t *testing.T) {
		if _, stderr, err := bob.Exec(t.Context(), "sh", "-c", "kill -9 $(pidof kithd)"); err != nil {
			t.Fatal(err, stderr)
		}
		must(t, bob.StopDaemon(t.Context())) // or it would be back after a second
	}
	return o
}

// laptop adds what a laptop's own cluster has at addresses that all laptops have. Where guests live in their home's address space, that is what
// answers them there.
func (o *outpost) laptop(homes bool) {
	o.cluster = append(o.cluster,
		target{what: "kubelet", at: "tcp:10.42.255.1:10250"},
		target{what: "the bridge's address", at: "tcp:10.42.0.1:22"},
		target{what: "API server", at: "tcp:10.42.255.1:6443", ofHome: homes},
		target{what: "service kubernetes", at: "tcp:10.43.0.1:443", ofHome: true})
}

// attachedToNodes is the cluster corp, with the kithd of engine kubeconfig as a process of its first node.
func attachedToNodes(l *lab.Lab) *outpost {
	one := l.Laptop("corp-1")
	o := newOutpost(l, "corp", one, l.Laptop("corp-2"))
	o.lapses, o.ofNodes = calmFor, true
	o.start = func(t *testing.T) { kithdOnNode(t, one, "") }
	o.stop = func(t *testing.T) {
		// The next one must not meet its socket.
		const kill = `kill -9 $(pidof kithd); for i in $(seq 100); do pidof kithd >/dev/null || exit 0; sleep 0.1; done; exit 1`
		if _, stderr, err := one.Exec(t.Context(), "sh", "-c", kill); err != nil {
			t.Fatal(err, stderr)
		}
	}
	return o
}

// kithdOnNode starts a kithd that attaches to the cluster that the node is of. Nobody starts it again.
func kithdOnNode(t *testing.T, p *lab.Laptop, more string) {
	t.Helper()
	config := fmt.Sprintf("name: corp\nengine: kubeconfig\nkubeconfig: %s\nnodeName: %s\nguestImages: [kith.dev/*]\n%s", lab.Kubeconfig, p.Name(), more)
	script := `mkdir -p /var/log/kith; cat > /etc/kith/config.yaml; setsid nohup kithd --config /etc/kith/config.yaml >> /var/log/kith/kithd.log 2>&1 < /dev/null &`
	if _, stderr, err := p.ExecInput(t.Context(), strings.NewReader(config), "sh", "-ec", script); err != nil {
		t.Fatal(err, stderr)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// takesGuests says what a node's label says in place of that guests may run there; a moment after kithd began nothing does.
func takesGuests(t *testing.T, at *lab.Laptop, node string) string {
	t.Helper()
	if is := kubectl(t, at, "get", "node", node, "-o", `jsonpath={.metadata.labels.kith\.dev/fenced}`); is != "true" {
		return node + " is fenced: " + is
	}
	return ""
}

// settle makes the owner's pods and the contracts, and lists the targets that there are on every engine.
func (o *outpost) settle(t *testing.T) {
	for _, home := range []*lab.Laptop{o.alice, o.carol} {
		addressesFrom(t, home, "10.42.0.150") // such as no pod of the owner's has: to a guest an address is its home's
	}
	kubectl(t, o.at, "create", "namespace", "den")
	for _, n := range o.nodes {
		apply(t, o.at, place("mine-"+n.Name(), "den", n.Name())+place("probe-"+n.Name(), "den", n.Name()))
		answering(t, n)
	}
	eventually(t, time.Minute, o.nodes[0].Name()+" takes guests", func() string { return takesGuests(t, o.at, o.nodes[0].Name()) })
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "10"}
	for consumer, namespace := range map[*lab.Laptop]string{o.alice: "shop", o.carol: "market"} {
		o.befriend(t, consumer, ask)
		kubectl(t, consumer, "create", "namespace", namespace)
		kith(t, consumer, "offload", namespace)
	}
	apply(t, o.alice, place("desk", "shop", "alice"))
	kubectl(t, o.alice, "-n", "shop", "create", "service", "clusterip", "desk", "--tcp=80:8080")
	waitReady(t, o.at, 2*len(o.nodes), "-n", "den")
	o.link = map[string][]target{}
	add := func(what, at string) { o.cluster = append(o.cluster, target{what: what, at: at}) }
	for _, n := range o.nodes {
		mine, lan := "mine-"+n.Name(), address(t, n)
		ip := kubectl(t, o.at, "-n", "den", "get", "pod", mine, "-o", "jsonpath={.status.podIP}")
		kubectl(t, o.at, "-n", "den", "expose", "pod", mine, "--type=NodePort", "--port=80", "--target-port=8080")
		add("the owner's pod on "+n.Name(), "tcp:"+ip+":8080")
		add("the owner's pod on "+n.Name()+" by UDP", "udp:"+ip+":9999")
		add("the owner's service on "+n.Name(), "tcp:"+kubectl(t, o.at, "-n", "den", "get", "service", mine, "-o", "jsonpath={.spec.clusterIP}")+":80")
		add(n.Name(), "tcp:"+lan+":22")
		add(n.Name()+" by UDP", "udp:"+lan+":9999")
		if o.ofNodes {
			add("kubelet of "+n.Name(), "tcp:"+lan+":10250")
			add("NodePort at "+n.Name(), "tcp:"+lan+":"+kubectl(t, o.at, "-n", "den", "get", "service", mine, "-o", "jsonpath={.spec.ports[0].nodePort}"))
		}
		o.link[n.Name()] = linkLocal(t, o.at, n, mine)
	}
	if o.ofNodes {
		add("API server", "tcp:"+address(t, o.at)+":6443")
		o.cluster = append(o.cluster, target{what: "service kubernetes", at: "tcp:10.43.0.1:443", ofHome: true})
	}
	o.cluster = append(o.cluster, target{what: "peer API", at: "tcp:" + address(t, o.at) + ":6450", ofKithd: true})
	add("a neighbour on the LAN", "tcp:"+address(t, o.carol)+":6450")
	add("cloud metadata", "tcp:"+o.metadata(t))
}

// befriendAs is befriend where the provider is known by another name than its machine's.
func befriendAs(t *testing.T, consumer, provider *lab.Laptop, name string, ask ...string) {
	t.Helper()
	if name == provider.Name() {
		befriend(t, consumer, provider, ask...)
		return
	}
	for _, p := range []*lab.Laptop{consumer, provider} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	awaitGuests(t, provider)
	eventually(t, 30*time.Second, consumer.Name()+" sees "+name, func() string {
		if p := peerOf(t, consumer, name); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	kith(t, consumer, append([]string{"peer", name, "--wait=false"}, ask...)...)
	var code string
	eventually(t, 20*time.Second, "the request arrives", func() string {
		for _, r := range requests(t, provider) {
			if r.Peer == consumer.Name() && r.Direction == "incoming" {
				code = r.Code
				return ""
			}
		}
		return "no request"
	})
	kith(t, provider, "accept", consumer.Name(), "--yes")
	eventually(t, 30*time.Second, consumer.Name()+" confirms the code of "+name, func() string {
		if out, err := consumer.Kith(t.Context(), "confirm", name, "--code", code); err != nil && peerOf(t, consumer, name).Outgoing != "connected" {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
	eventually(t, 30*time.Second, "connected", func() string {
		if out := peerOf(t, consumer, name); out.Outgoing != "connected" || !out.Tunnel.Up {
			return fmt.Sprintf("%+v", out)
		}
		return ""
	})
}

func address(t *testing.T, p *lab.Laptop) string {
	t.Helper()
	a, err := p.Address()
	must(t, err)
	return a.String()
}

// answering has a program of the machine's own, listening on all its addresses, answer TCP (:22) and packets (:9999).
func answering(t *testing.T, p *lab.Laptop) {
	t.Helper()
	var l net.Listener
	var c net.PacketConn
	must(t, p.InNetwork(func() (err error) {
		if l, err = net.Listen("tcp", ":22"); err == nil {
			c, err = net.ListenPacket("udp", ":9999")
		}
		return err
	}))
	t.Cleanup(func() { l.Close(); c.Close() })
	go func() {
		for {
			one, err := l.Accept()
			if err != nil {
				return
			}
			one.Close()
		}
	}()
	go answerPackets(p, c)
}

// metadata puts the address at which clouds tell machines their secrets on the LAN, with a route of every node's to it.
func (o *outpost) metadata(t *testing.T) string {
	t.Helper()
	const at = "169.254.169.254"
	lan := o.l.Laptop("lan")
	if _, stderr, err := lan.Exec(t.Context(), "ip", "address", "add", at+"/32", "dev", "lo"); err != nil {
		t.Fatal(err, stderr)
	}
	for _, n := range o.nodes {
		if _, stderr, err := n.Exec(t.Context(), "ip", "route", "add", at, "dev", "eth0"); err != nil {
			t.Fatal(err, stderr)
		}
	}
	return (&fenced{t: t}).listen(lan, at+":80")
}

// heard has a program of the machine's own listen to a group on the link of its pods.
func heard(t *testing.T, p *lab.Laptop) string {
	t.Helper()
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 77), Port: 9997}
	var c *net.UDPConn
	must(t, p.InNetwork(func() error {
		link, err := net.InterfaceByName("cni0")
		if err == nil {
			c, err = net.ListenMulticastUDP("udp4", link, group)
		}
		return err
	}))
	t.Cleanup(func() { c.Close() })
	go answerPackets(p, c)
	return group.String()
}

func answerPackets(p *lab.Laptop, c net.PacketConn) {
	for buf := make([]byte, 2000); ; {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(fmt.Appendf(nil, `{"name":"machine %s"}`, p.Name()), from)
	}
}

var linkLocals = regexp.MustCompile(`fe80::[0-9a-f:]+`)

// linkLocal are the targets that have no address beyond the link of a node's pods.
func linkLocal(t *testing.T, at, node *lab.Laptop, mine string) (list []target) {
	t.Helper()
	list = append(list, target{what: "whoever hears a broadcast on " + node.Name(), at: "cast:255.255.255.255:9999", unsure: true},
		target{what: "whoever hears multicast on " + node.Name(), at: "cast:" + heard(t, node)})
	out := kubectl(t, at, "-n", "den", "exec", mine, "--", "/app", "addresses")
	pod := linkLocals.FindString(out)
	if pod == "" {
		t.Logf("pods on %s have no IPv6: %s", node.Name(), out)
		return list
	}
	out, stderr, err := node.Exec(t.Context(), "ip", "-6", "-o", "address", "show", "dev", "cni0", "scope", "link")
	if err != nil {
		t.Fatal(err, stderr)
	}
	list = append(list, target{what: "the owner's pod on the same link, by IPv6", at: "tcp:[" + pod + "%eth0]:8080"},
		target{what: "whoever hears IPv6's multicast on " + node.Name(), at: "cast:[ff02::1%eth0]:9999"})
	if machine := linkLocals.FindString(out); machine != "" {
		list = append(list, target{what: node.Name() + " on the link, by IPv6", at: "tcp:[" + machine + "%eth0]:22"})
	}
	return list
}

// swept is what `/app sweep` says of one target.
type swept struct {
	Target          string
	Tries, Answered int
	First           float64
	By, Error       string
}

func readSweep(out string) map[string]swept {
	all := map[string]swept{}
	for line := range strings.Lines(out) {
		var s swept
		if json.Unmarshal([]byte(line), &s) == nil && s.Target != "" {
			all[s.Target] = s
		}
	}
	return all
}

// sweep has a pod try the targets for three seconds.
func (o *outpost) sweep(t *testing.T, namespace, pod string, list ...string) map[string]swept {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := o.at.Kubectl(ctx, append([]string{"-n", namespace, "exec", pod, "--", "/app", "sweep", "-for", "3s"}, list...)...)
	if err != nil {
		t.Fatalf("%s/%s did not try: %v: %s", namespace, pod, err, out)
	}
	return readSweep(out)
}

func ats(list []target) (all []string) {
	for _, one := range list {
		all = append(all, one.at)
	}
	return all
}

// on are all targets of a pod on that node.
func (o *outpost) on(node string) []target { return slices.Concat(o.cluster, o.link[node]) }

// shut fails for each target that answered a guest, and for each that was not tried.
func shut(t *testing.T, who string, list []target, got map[string]swept) {
	t.Helper()
	for _, one := range list {
		switch s, tried := got[one.at]; {
		case !tried || s.Tries == 0:
			t.Errorf("ROW %s -> %s (%s): was not tried", who, one.what, one.at)
		case one.ofHome:
		case s.Answered > 0:
			t.Errorf("ROW %s -> %s (%s): OPEN, want closed: %d of %d tries, the first after %.0f ms; %s", who, one.what, one.at, s.Answered, s.Tries, s.First, s.By)
		}
	}
}

// open fails for each target that did not answer.
func open(t *testing.T, who string, list []target, got map[string]swept, kithd bool) {
	t.Helper()
	for _, one := range list {
		if s := got[one.at]; s.Answered == 0 && (kithd || !one.ofKithd) && !one.unsure {
			t.Errorf("ROW %s -> %s (%s): CLOSED, want open: %d tries, %s", who, one.what, one.at, s.Tries, s.Error)
		}
	}
}

// sweeper is a guest that tries the targets from its first moment on, for eight seconds, and is a server then.
func sweeper(name, namespace, node string, list []target) string {
	command, _ := json.Marshal(append([]string{"/app", "sweep", "-for", "8s", "-serve"}, ats(list)...))
	return strings.Replace(place(name, namespace, node), "image:", "command: "+string(command)+", image:", 1)
}

// table is the whole of it: first moments, then at rest, then without kithd.
func (o *outpost) table(t *testing.T) {
	cordon := func(verb string, nodes ...*lab.Laptop) {
		for _, n := range nodes {
			kubectl(t, o.at, verb, n.Name())
		}
	}
	node := "kith-" + o.name
	first := o.nodes[0].Name()
	cordon("cordon", o.nodes[1:]...)
	apply(t, o.alice, sweeper("guest", "shop", node, o.on(first))+place("next", "shop", node))
	apply(t, o.carol, place("stall", "market", node))
	o.twin, o.market = twinAt(t, o.at, "shop"), twinAt(t, o.at, "market")
	waitReady(t, o.at, 2, "-n", o.twin)
	waitReady(t, o.at, 1, "-n", o.market)
	for _, one := range [][2]string{{o.twin, "next"}, {o.market, "stall"}} {
		ip := kubectl(t, o.at, "-n", one[0], "get", "pod", one[1], "-o", "jsonpath={.status.podIP}")
		if one[1] == "stall" {
			o.cluster = append(o.cluster, target{what: "a guest of carol's", at: "tcp:" + ip + ":8080"})
		}
	}
	guests := map[string]string{"guest": first}
	if len(o.nodes) > 1 {
		cordon("uncordon", o.nodes[1:]...)
		cordon("cordon", o.nodes[0])
		apply(t, o.alice, sweeper("far", "shop", node, o.on(o.nodes[1].Name())))
		// It runs there behind a fence, or not at all.
		for began := time.Now(); time.Since(began) < 30*time.Second && guests["far"] == ""; time.Sleep(time.Second) {
			for _, p := range pods(t, o.at, "-n", o.twin, "-l", "app=far") {
				if p.ready() {
					guests["far"] = p.Spec.NodeName
				}
			}
		}
		cordon("uncordon", o.nodes[0])
		waitReady(t, o.at, 3, "-n", o.twin)
		guests["far"] = pods(t, o.at, "-n", o.twin, "-l", "app=far")[0].Spec.NodeName
		t.Logf("guests are on %v", guests)
	}
	t.Run("in its first moments", func(t *testing.T) {
		for guest, on := range guests {
			out := kubectl(t, o.at, "-n", o.twin, "logs", guest)
			if tried := readSweep(out); len(tried) == 0 {
				t.Errorf("%s says nothing: %s", guest, out)
			} else {
				list := o.on(on)
				shut(t, "a new guest on "+on, slices.DeleteFunc(list, func(x target) bool { _, ok := tried[x.at]; return !ok }), tried)
			}
		}
	})
	t.Run("at rest", func(t *testing.T) { o.rest(t, guests, true) })
	t.Run("without kithd", func(t *testing.T) {
		o.stop(t)
		killed := time.Now()
		o.rest(t, guests, false)
		time.Sleep(time.Until(killed.Add(o.lapses)))
		o.reborn(t, guests["guest"])
		o.start(t)
		eventually(t, time.Minute, "kithd of "+o.at.Name()+" is ready", func() string { return o.ready(t) })
		waitReady(t, o.at, 1, "-n", o.twin, "-l", "app=guest")
	})
}

// reborn ends the sandbox of a guest, as a node does that was off: the kubelet makes another, with another address, which nobody is there to see.
// Until kithd is back it may stay without a network, but not be let out.
func (o *outpost) reborn(t *testing.T, on string) {
	guest := func() (ready bool, container string) {
		p := pods(t, o.at, "-n", o.twin, "-l", "app=guest")[0]
		return p.ready(), p.Status.ContainerStatuses[0].ContainerID
	}
	_, was := guest()
	uid := kubectl(t, o.at, "-n", o.twin, "get", "pod", "guest", "-o", "jsonpath={.metadata.uid}")
	script := `n=0; for p in $(pgrep -x pause); do if grep -q "pod` + uid + `" /proc/$p/cgroup; then kill -9 $p; n=1; fi; done; [ $n = 1 ]`
	if _, stderr, err := o.l.Laptop(on).Exec(t.Context(), "sh", "-c", script); err != nil {
		t.Fatal("the sandbox of the guest was not found: ", err, stderr)
	}
	for began := time.Now(); time.Since(began) < 45*time.Second; time.Sleep(time.Second) {
		if ready, is := guest(); ready && is != was {
			tried := readSweep(kubectl(t, o.at, "-n", o.twin, "logs", "guest"))
			if len(tried) == 0 {
				t.Error("ROW the guest that came again says nothing")
			}
			list := slices.DeleteFunc(o.on(on), func(x target) bool { _, ok := tried[x.at]; return !ok })
			shut(t, "a guest that came again on "+on+", without kithd", list, tried)
			return
		}
	}
	t.Log("the guest does not come again without kithd")
}

// rest has the owner's pods and the guests of every node try all targets, and the guests what is theirs.
func (o *outpost) rest(t *testing.T, guests map[string]string, kithd bool) {
	for _, n := range o.nodes {
		list := slices.DeleteFunc(o.on(n.Name()), func(x target) bool { return x.what == "a guest of carol's" && !kithd })
		open(t, "the owner's pod on "+n.Name(), list, o.sweep(t, "den", "probe-"+n.Name(), ats(list)...), kithd)
	}
	theirs := []target{
		{what: "a guest of its own home", at: "tcp:" + kubectl(t, o.at, "-n", o.twin, "get", "pod", "next", "-o", "jsonpath={.status.podIP}") + ":8080"},
		{what: "the same, by the address that home shows", at: "tcp:" + kubectl(t, o.alice, "-n", "shop", "get", "pod", "next", "-o", "jsonpath={.status.podIP}") + ":8080"},
	}
	if kithd {
		theirs = append(theirs, target{what: "its home", at: "tcp:desk:80"},
			target{what: "its home, by the ClusterIP there", at: "tcp:" + kubectl(t, o.alice, "-n", "shop", "get", "service", "desk", "-o", "jsonpath={.spec.clusterIP}") + ":80"},
			target{what: "its home, by the name with the namespace", at: "tcp:desk.shop:80"},
			target{what: "its home, by the whole name", at: "tcp:desk.shop.svc.cluster.local:80"},
			target{what: "its home's API server, by the number", at: "tcp:" + kubectl(t, o.alice, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}") + ":443"})
	}
	for guest, on := range guests {
		got := o.sweep(t, o.twin, guest, ats(slices.Concat(o.on(on), theirs))...)
		shut(t, "a guest on "+on, o.on(on), got)
		open(t, "a guest on "+on, theirs, got, kithd)
	}
}

// wrongRange starts kithd with a podRange that no pod has an address of. Either it refuses to, or the guests that are there are closed off or removed.
func (o *outpost) wrongRange(t *testing.T) {
	o.stop(t)
	kithdOnNode(t, o.at, "podRange: 10.99.0.0/16\n")
	why := ""
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(time.Second) {
		if why = engineReady(t, o.at); why == "" {
			break
		}
	}
	time.Sleep(5 * time.Second)                   // so long it may take to see what it would do with them
	doctor, _ := o.at.Kith(t.Context(), "doctor") // it fails where it finds something
	if status, _ := o.at.Kith(t.Context(), "status"); !strings.Contains(why+status+doctor, "podRange") {
		t.Errorf("ROW the owner -> podRange: is not told that it is wrong\n%s\n%s", status, doctor)
	}
	left := pods(t, o.at, "-n", o.twin, "-l", "app=guest")
	if len(left) == 0 || !left[0].ready() {
		t.Log("the guest is not let in any more")
		return
	}
	on := left[0].Spec.NodeName
	shut(t, "a guest on "+on, o.on(on), o.sweep(t, o.twin, "guest", ats(o.on(on))...))
}
