package backend

import (
	"context"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/local/cluster"
	"kith.dev/core/provide/fenced"
	"kith.dev/daemon/doctor"
)

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
