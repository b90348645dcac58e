package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"kith.dev/core/api"
)

// Cluster is what is looked at beyond this machine's node.
type Cluster struct {
	Others []Node       // machines of the cluster; peers' nodes are none
	Pods   []netip.Addr // of this machine's node: those that run, but for those on its network
	Unled  []string     // nodes whose pods are not led to the gateway, for lack of a `kithd node` that is ready; for clusters that have those

	Fencing Fencing
}

// way is how the kernel would send a packet to a pod.
type way struct {
	device  string // "": there is no route
	general bool   // by a default route: whoever is there, it is for others to know
}

func (w way) String() string {
	if w.device == "" {
		return "there is no route to it"
	}
	return "a default route takes it, by " + w.device
}

// others tells of the machines of the cluster that are not Ready.
func (c Cluster) others(in about, report func(api.Finding)) {
	if len(c.Others) == 0 {
		return
	}
	ready := 0
	for _, n := range c.Others {
		if n.Ready {
			ready++
			continue
		}
		report(in.warn("nodes", "node "+n.Name+" of this cluster is not Ready: no pod starts there", n.Why, "look at its kubelet and container runtime, and whether the machine is on and reached"))
	}
	if ready == len(c.Others) {
		report(in.ok("nodes", "other nodes of this cluster, all Ready: %d", ready))
	}
}

// led tells of nodes whose pods do not reach peers.
func (c Cluster) led(in about, report func(api.Finding)) {
	if len(c.Unled) > 0 {
		report(in.fail("overlay", "pods on "+strings.Join(c.Unled, ", ")+" may not reach peers, and no guest is started there",
			"no pod of Kith's DaemonSet for nodes is ready there", "look at its pods in Kith's namespace, with the label app.kubernetes.io/component=nodes: kubectl describe, kubectl logs"))
	}
	for _, n := range c.Fencing.Out {
		if n.Cut {
			report(in.fail("overlay", "pods on "+n.Node+" do not reach peers, and no guest is started there", n.Why,
				"have the firewalls of both nodes, and of the network between them, let that UDP port through in both directions (docs/server.md)"))
		}
	}
}

// secondLook is how long after the first one missing routes are looked for again: pods end while they are looked at.
const secondLook = time.Second

// pods looks for the routes to pods: to those of this node, and to the ranges of others where this machine has such routes. A cloud may carry
// those behind a default route, of which nobody here can know whether it is right.
func (e Engine) pods(ctx context.Context, in about, c Cluster, report func(api.Finding)) {
	if !hasAddress(e.NodeIP) { // the cluster is elsewhere
		return
	}
	astray := func(a netip.Addr) bool { w := wayTo(a); return w.device == "" || w.general }
	lost := slices.DeleteFunc(slices.Clone(c.Pods), func(a netip.Addr) bool { return !astray(a) })
	if len(lost) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(secondLook):
		}
		now, err := bounded(ctx, e.Cluster)
		lost = slices.DeleteFunc(lost, func(a netip.Addr) bool { return err == nil && !slices.Contains(now.Pods, a) || !astray(a) })
	}
	if len(lost) > 0 {
		do := "restart the network plugin's pod on this node: it makes its routes when it starts"
		if e.Bridge != "" {
			do = fmt.Sprintf("ip link set %[1]s down; ip link set %[1]s up: the kernel makes the route again", e.Bridge)
		}
		report(in.fail("pod-routes", fmt.Sprintf("%d of %d pods on this node are not reached, %s among them", len(lost), len(c.Pods), lost[0]), wayTo(lost[0]).String(), do))
		return
	}
	var beyond []Node
	led := 0
	for _, n := range c.Others {
		switch {
		case !n.Pods.IsValid() || !n.Ready:
		case astray(n.Pods.Addr().Next()):
			beyond = append(beyond, n)
		default:
			led++
		}
	}
	if len(beyond) > 0 && (led > 0 || e.Routed) {
		for _, n := range beyond {
			report(in.fail("pod-routes", "pods on node "+n.Name+" are not reached from here", fmt.Sprintf("%s: %s", n.Pods, wayTo(n.Pods.Addr().Next())),
				"restart what makes the routes between nodes: the network plugin on this node, or the engine; and look whether "+n.Name+" is reached"))
		}
		return
	}
	if len(c.Pods)+led == 0 {
		return
	}
	beyondHere := ""
	if led > 0 {
		beyondHere = fmt.Sprintf(", and to those of other nodes: %d", led)
	}
	report(in.ok("pod-routes", "routes lead to the pods on this node: %d%s", len(c.Pods), beyondHere))
}
