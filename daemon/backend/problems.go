package backend

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/virtualnode"
	"kith.dev/core/find/directory"
	"kith.dev/core/net/gateway"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/doctor"
)

// unpulledPatience is how long a peer may fail to get an image before it is worth a word: it tries a second time after ten seconds.
const unpulledPatience = 15 * time.Second

// clockTrouble is the difference of two clocks that is worth a word; from ten minutes on contracts are refused.
const clockTrouble = time.Minute

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
			list = append(list, peerProblems(k, tunnel, has, now)...)
			if left, must := tunnelLeft(k, now); must && left > 0 && !tunnel.Up {
				time.AfterFunc(left, b.News.Notify) // then it is a problem; of several all are for that moment
			}
		}
	}
	list = append(list, clockProblems(peers)...)
	list = append(list, b.nameProblems()...)
	if c := b.Cluster(); c != nil {
		list = append(list, b.unfenced(ctx)...)
		list = append(list, leftovers(peers, c.Fleet.Left, now)...)
		list = append(list, unpulled(peers, c.Fleet.PodsAt, now)...)
		list = append(list, stuck(c.Host.Leaving(), now)...)
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
		list = append(list, api.Problem{Severity: api.SeverityInfo, What: t.Name + " could not be looked up", Why: t.Why.Error(), Do: lookAtServers})
	}
	return list
}

// peerProblems tells what is wrong with a peer: somebody else answers, nobody does, or not through the tunnel.
func peerProblems(k directory.Known, tunnel gateway.Stats, hasTunnel bool, now time.Time) []api.Problem {
	look := "`kith doctor " + k.Name + "` tells where it fails"
	left, must := tunnelLeft(k, now)
	bound := k.Peer.Status.Outgoing.Contract != "" || k.Peer.Status.Incoming.Contract != ""
	switch {
	case k.Contact.Cause == presence.OtherKey:
		return []api.Problem{{
			Severity: api.SeverityError, What: k.Name + " was refused: another key answers where it was", Why: k.Contact.Why,
			Do: "ask its owner: with a new laptop, or a new installation, `kith forget " + k.Name + "` and ask anew; else somebody is between the two",
		}}
	case !bound:
		return nil
	case !k.Contact.Reachable():
		why := k.Contact.Why
		if !k.Contact.Since.IsZero() {
			why += ", for " + howLong(now.Sub(k.Contact.Since))
		}
		return []api.Problem{{Severity: api.SeverityWarning, What: k.Name + " cannot be reached", Why: why, Do: look}}
	case k.Contact.Cause == presence.Older:
		return []api.Problem{{Severity: api.SeverityWarning, What: "no pods can run at " + k.Name, Why: k.Contact.Why, Do: "update Kith on the one of the two that is older"}}
	case k.Contact.Cause == presence.Ailing:
		return []api.Problem{{Severity: api.SeverityWarning, What: k.Name + " answers, and cannot do its work", Why: k.Contact.Why, Do: "`kith doctor` there looks closer"}}
	case tunnel.Up || !must || left > 0:
		return overlapping(k)
	}
	why := "it was not set up yet"
	switch link := k.Peer.Status.Outgoing.Why; {
	case hasTunnel:
		why = tunnel.Why(now) + "; is UDP let through on both sides?"
	case link != "": // the two do not agree on one, and it says why
		why = link
	}
	return []api.Problem{{Severity: api.SeverityWarning, What: "the tunnel to " + k.Name + " is down", Why: why, Do: look}}
}

// overlapping tells that guests have addresses which the network around this laptop has, too.
func overlapping(k directory.Known) []api.Problem {
	c := meta.FindStatusCondition(k.Peer.Status.Conditions, v1alpha1.ConditionAddressesFree)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return []api.Problem{{
		Severity: api.SeverityInfo, What: "guests of or at " + k.Name + " have addresses of the network around this laptop", Why: c.Message,
		Do: "nothing, unless this laptop must reach such a pod itself: then start the pods anew, or use another network",
	}}
}

// tunnelLeft is how long the tunnel to a peer that is there may still take; false when there need be none.
func tunnelLeft(k directory.Known, now time.Time) (left time.Duration, must bool) {
	there := k.Contact.Presence
	var since time.Time
	for _, d := range []v1alpha1.DirectionStatus{k.Peer.Status.Outgoing, k.Peer.Status.Incoming} {
		switch d.State {
		case v1alpha1.StateContracted, v1alpha1.StateConnected, v1alpha1.StateUnreachable:
			if d.Since != nil && (!must || d.Since.Time.Before(since)) {
				since, must = d.Since.Time, true
			}
		}
	}
	if since.After(there.Since) {
		there.Since = since
	}
	left, met := presence.Tunnel.Left(there, now)
	return left, must && met
}

// clockProblems compares this machine's clock with those of all who answer. When most of several agree against it, the
// fault is here.
func clockProblems(all []directory.Known) []api.Problem {
	var ahead, behind, answer int
	var list []api.Problem
	for _, k := range all {
		if !k.Contact.Reachable() {
			continue
		}
		answer++
		if k.Contact.Clock.Abs() < clockTrouble {
			continue
		}
		way := "ahead of"
		if k.Contact.Clock > 0 {
			ahead++
		} else {
			behind++
			way = "behind"
		}
		if k.Peer != nil {
			list = append(list, api.Problem{
				Severity: api.SeverityWarning, What: fmt.Sprintf("the clock of %s is %s %s this one", k.Name, howLong(k.Contact.Clock.Abs()), way),
				Why: "from 10 minutes on, contracts are refused", Do: "have both set their clocks by the network: timedatectl set-ntp true",
			})
		}
	}
	if most := max(ahead, behind); most >= 2 && 2*most > answer {
		way := "ahead of"
		if ahead > behind {
			way = "behind"
		}
		return []api.Problem{{
			Kind: api.ProblemClock, Severity: api.SeverityWarning, What: fmt.Sprintf("this machine's clock is %s those of %d of the %d machines that answer", way, most, answer),
			Why: "from 10 minutes on, contracts are refused", Do: "set it by the network: timedatectl set-ntp true",
		}}
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
		why := "it lapses in " + howLong(time.Until(r.Spec.Expires.Time))
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
			why += "; it lapses in " + howLong(time.Until(asked.Expires))
		}
		list = append(list, api.Problem{Severity: api.SeverityInfo, What: what, Why: why, Do: "kith confirm " + k.Name})
	}
	return list
}

const (
	// leftPatience is how long a namespace that a peer need not keep any more may take until it is worth a word.
	leftPatience = 20 * time.Second
	// stuckPatience is how long a guest's namespace may take to go.
	stuckPatience = 2 * time.Minute
)

// leftovers tells which peers keep namespaces that nothing here needs.
func leftovers(peers []directory.Known, left func(peer string) []virtualnode.Left, now time.Time) (list []api.Problem) {
	for _, k := range peers {
		if k.Peer == nil {
			continue
		}
		all := leftAt(left(k.Peer.Name), now)
		if len(all) == 0 {
			continue
		}
		var names []string
		since, why := now, ""
		for _, l := range all {
			names = append(names, l.Home)
			if l.Since.Before(since) {
				since = l.Since
			}
			why = cmp.Or(why, l.Why)
		}
		if more := len(names) - 3; more > 0 {
			names = append(names[:3], fmt.Sprintf("%d more", more))
		}
		said := strings.Join(names, ", ") + "; for " + howLong(now.Sub(since))
		if why != "" {
			said += "; " + why
		}
		list = append(list, api.Problem{
			Severity: api.SeverityWarning, What: fmt.Sprintf("%s still keeps namespaces that are not offloaded here any more: %d", k.Name, len(all)),
			Why: said, Do: "nothing: " + k.Name + " is asked again until they are gone, also after a restart",
		})
	}
	return list
}

// leftAt are those that have been left for longer than it takes.
func leftAt(all []virtualnode.Left, now time.Time) []virtualnode.Left {
	return slices.DeleteFunc(all, func(l virtualnode.Left) bool {
		patience := leftPatience
		if l.Leaving { // the peer is about it
			patience = stuckPatience
		}
		return now.Sub(l.Since) < patience
	})
}

// unpulled tells which images peers cannot get, for pods of this cluster that wait for them.
func unpulled(peers []directory.Known, podsAt func(peer string) []*corev1.Pod, now time.Time) (list []api.Problem) {
	for _, k := range peers {
		if k.Peer == nil {
			continue
		}
		pods, at := map[string]int{}, map[string]int{} // by image: how many wait, and where in the list it stands
		for _, pod := range podsAt(k.Peer.Name) {
			image, since, why := virtualnode.Unpulled(pod)
			if image == "" || now.Sub(since) < unpulledPatience {
				continue
			}
			if pods[image]++; pods[image] > 1 {
				list[at[image]].What = fmt.Sprintf("%s cannot get the image %s, for which %d pods wait", k.Name, image, pods[image])
				continue
			}
			at[image] = len(list)
			list = append(list, api.Problem{
				Severity: api.SeverityWarning, What: fmt.Sprintf("%s cannot get the image %s, for which pod %s/%s waits", k.Name, image, pod.Namespace, pod.Name), Why: why,
				Do: "an image that this laptop has is given to peers: `docker save IMAGE | kith image load` brings it here",
			})
		}
	}
	return list
}

// stuck tells which namespaces of guests do not go.
func stuck(all []grants.Leaving, now time.Time) (list []api.Problem) {
	for _, l := range all {
		if long := now.Sub(l.Since); long >= stuckPatience {
			list = append(list, api.Problem{
				Severity: api.SeverityWarning, What: fmt.Sprintf("namespace %s of %s is being cleared away for %s", l.Namespace, l.Consumer, howLong(long)),
				Why: "something in it holds it back", Do: "kubectl describe namespace " + l.Namespace,
			})
		}
	}
	return list[:min(len(list), 3)]
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

// howLong writes a duration with one unit.
func howLong(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
