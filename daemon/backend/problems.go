package backend

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/core/local/cluster"
	"kith.dev/core/provide/fenced"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend/location"
	"kith.dev/daemon/backend/trouble"
	"kith.dev/daemon/doctor"
)

// problems is all that is wrong now, the worst first.
func (b *Backend) problems(ctx context.Context, engine api.Engine, peers []directory.Known) []api.Problem {
	list := b.Failing()
	if engine.State != api.EngineReady && engine.State != api.EngineAsleep && engine.Kind != api.EngineNone {
		list = append(list, api.Problem{
			Kind: api.ProblemEngine, Severity: api.SeverityWarning, What: "the local Kubernetes is " + string(engine.State), Why: engine.Why, Do: "`kith doctor` looks closer",
		})
	}
	tunnels := b.tunnels()
	now := time.Now()
	for _, k := range peers {
		if k.Peer != nil {
			tunnel, has := tunnels[k.ID.String()]
			list = append(list, trouble.OfPeer(k, tunnel, has, now)...)
			if left, must := trouble.TunnelLeft(k, now); must && left > 0 && !tunnel.Up {
				time.AfterFunc(left, b.News.Notify) // then it is a problem; of several all are for that moment
			}
		}
	}
	list = append(list, trouble.OfClocks(peers)...)
	list = append(list, b.nameProblems()...)
	if c := b.Cluster(); c != nil {
		list = append(list, b.unfenced(ctx)...)
		list = append(list, trouble.Leftovers(peers, c.Fleet.Left, now)...)
		list = append(list, trouble.Unpulled(peers, c.Fleet.PodsAt, now)...)
		list = append(list, trouble.Stuck(c.Host.Leaving(), now)...)
	}
	rank := map[api.Severity]int{api.SeverityError: 0, api.SeverityWarning: 1, api.SeverityInfo: 2}
	slices.SortStableFunc(list, func(a, b api.Problem) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return list
}

// nameProblems tells which names of clusters cannot be looked up. Without a network that is nothing to worry about.
func (b *Backend) nameProblems() (list []api.Problem) {
	if b.Names == nil {
		return nil
	}
	for _, t := range b.Names.Troubles() {
		list = append(list, api.Problem{Severity: api.SeverityInfo, What: t.Name + " could not be looked up", Why: t.Why.Error(), Do: location.LookAtServers})
	}
	return list
}

// waiting is what only the owner can answer: requests of others first, then what others say of his.
func (c *Cluster) waiting(ctx context.Context, peers []directory.Known) []api.Problem {
	var list []api.Problem
	for _, r := range c.Client.Now().Requests {
		if !provider.Pending(r) {
			continue
		}
		gets, would := "to use this laptop", ", and would get " // what it would get is not known, when even that cannot be read
		if r.Spec.Tether {
			gets, would = "to be run by this cluster", ": "
		}
		if grant, err := c.Provider.Grant(ctx, r); err == nil {
			gets += would + grant.Summary
		}
		why := "it lapses in " + trouble.HowLong(time.Until(r.Spec.Expires.Time))
		if r.Spec.Code != "" {
			why = "its owner must see the code " + identity.Spaced(r.Spec.Code) + " too; " + why
		}
		list = append(list, api.Problem{
			Severity: api.SeverityInfo, What: r.Spec.PeerName + " asks " + gets, Why: why,
			Do: "kith accept " + r.Name + ", or kith decline " + r.Name,
		})
	}
	for _, k := range peers {
		if k.Peer == nil {
			continue
		}
		asked := confirmation(k.Peer.Status.Outgoing)
		if asked == nil || answered(asking.Word(k.Peer), *asked) {
			continue
		}
		what, why := k.Name+" accepted, and you have to agree to its terms", strings.Join(asked.Terms, ", ")
		if asked.Code != "" {
			what, why = k.Name+" accepted, and you have to compare the code", "its owner must see the code "+identity.Spaced(asked.Code)+" too"
		}
		if !asked.Expires.IsZero() {
			why += "; it lapses in " + trouble.HowLong(time.Until(asked.Expires))
		}
		list = append(list, api.Problem{Severity: api.SeverityInfo, What: what, Why: why, Do: "kith confirm " + k.Name})
	}
	return list
}

// degraded tells why an engine that answers is not well: its node, or the disk.
func (b *Backend) degraded(ctx context.Context) string {
	var why []string
	if room, trouble := b.disk(); trouble != "" {
		why = append(why, room+"; "+trouble)
	}
	if c := b.Cluster(); c != nil {
		var node corev1.Node
		if err := c.Client.Get(ctx, client.ObjectKey{Name: b.Engine.Facts().NodeName}, &node); err == nil {
			n := nodeOf(&node)
			switch left := nodeSettles - notReadyFor(&node); {
			case n.Why == "":
			case !n.Ready && left > 0:
				time.AfterFunc(left, b.News.Notify) // then it is
			default:
				why = append(why, "node "+n.Name+": "+n.Why)
			}
		}
	}
	return strings.Join(why, "; ")
}

// disk tells how much room there is and why that is too little; nothing when there is enough.
func (b *Backend) disk() (room, trouble string) {
	space, err := doctor.SpaceAt(b.Settings.DataDir)
	if err != nil {
		return "", ""
	}
	if state, why := space.Trouble(); state != api.CheckOK {
		return space.String(), why
	}
	return "", ""
}

// nodeSettles is how long a node may be NotReady until that is worth a word: each one is for a second or two after its engine was started, which
// may be because somebody woke it.
const nodeSettles = 15 * time.Second

// notReadyFor is for how long a node has said so; very long for one that says nothing.
func notReadyFor(node *corev1.Node) time.Duration {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return time.Since(c.LastTransitionTime.Time)
		}
	}
	return nodeSettles
}

// nodeOf is what a node says of itself: what keeps it from being ready, else what it lacks.
func nodeOf(node *corev1.Node) doctor.Node {
	n := doctor.Node{Name: node.Name, Why: "it has not said yet", Users: node.Annotations[v1alpha1.AnnotationUserNamespaces]}
	n.Pods, _ = netip.ParsePrefix(node.Spec.PodCIDR) // the zero value of none
	var lacks []string
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
			n.Ready, n.Why = true, ""
		case c.Type == corev1.NodeReady:
			n.Why = cmp.Or(c.Message, c.Reason, "it is not Ready")
		case c.Status == corev1.ConditionTrue:
			lacks = append(lacks, cmp.Or(c.Message, string(c.Type)))
		}
	}
	if n.Ready {
		n.Why = strings.Join(lacks, ", ")
	}
	return n
}

// WhyLeftOut says why guests may not run on a node.
func WhyLeftOut(v fenced.Verdict) string {
	switch v.Why {
	case fenced.NoFence:
		return "nothing of Kith's keeps a fence there"
	case fenced.NotReady:
		return "the pod of Kith's DaemonSet there is not ready: it keeps no fence, or not the way to the gateway's node"
	case fenced.Cut:
		return "nothing comes through from node to node: " + v.More
	case fenced.Elsewhere:
		return "kithd works for that node and runs on another machine, where its fence holds nobody"
	case fenced.Starting:
		return "its fence has not begun to work yet"
	}
	return "its fence is not as it must be: " + v.More
}

// BringFences is what brings a fence to every node of a cluster.
const BringFences = "to have guests on every node, install Kith with its Helm chart in place of this kithd (docs/server.md)"

// fencing tells which nodes are left out. Of the built-in engine those that joined are, always.
func (b *Backend) fencing(ctx context.Context) (f doctor.Fencing) {
	c := b.Cluster()
	if c == nil || c.Fenced == nil || b.Engine == nil {
		return f
	}
	all, err := c.Fenced.Verdicts(ctx)
	if err != nil {
		f.Why = err.Error()
		return f
	}
	f.Known, f.Usual, f.Do = true, b.Engine.Facts().Ours, BringFences
	if b.Settings.Lease != "" {
		f.Do = "look at its pods in Kith's namespace, with the label " + fenced.AgentLabel + "=" + fenced.AgentValue + ": kubectl describe, kubectl logs"
	}
	for _, v := range all {
		if v.Why == fenced.Alive || v.Why == fenced.Starting {
			f.Takes = append(f.Takes, v.Node)
			continue
		}
		if v.Why == fenced.Elsewhere {
			f.Do = "run kithd on the machine that this node is, or set nodeName to the node that this machine is; " + BringFences
		}
		if v.Why == fenced.Down {
			f.Usual = false
		}
		f.Out = append(f.Out, doctor.LeftOut{Node: v.Node, Why: WhyLeftOut(v), Cut: v.Why == fenced.Cut})
	}
	f.Usual = f.Usual && len(f.Takes) > 0
	return f
}

// unfenced tells the owner of nodes that take no guests.
func (b *Backend) unfenced(ctx context.Context) []api.Problem {
	f := b.fencing(ctx)
	if len(f.Out) == 0 || f.Usual || b.Engine.State().Phase != cluster.Ready {
		return nil
	}
	var why []string
	for _, out := range f.Out {
		why = append(why, out.Node+": "+out.Why)
	}
	severity := api.SeverityInfo
	if len(f.Takes) == 0 {
		severity = api.SeverityWarning
	}
	return []api.Problem{{Severity: severity, What: f.What(), Why: strings.Join(why, "; "), Do: f.Do}}
}
