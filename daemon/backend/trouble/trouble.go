// Package trouble says what is wrong with peers and what they keep: what the rooms know of them goes in, problems in words come out. `kith status`,
// the tray and `kith doctor` show them.
//
// It must never ask anybody, wait, or decide what is done about it.
package trouble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/virtualnode"
	"kith.dev/core/find/directory"
	"kith.dev/core/net/gateway"
	"kith.dev/core/provide/hosting/grants"
)

const (
	// unpulledPatience is how long a peer may fail to get an image: it tries a second time after ten seconds.
	unpulledPatience = 15 * time.Second
	// clockTrouble is the difference of two clocks that is too much; from ten minutes on contracts are refused.
	clockTrouble = time.Minute
	// leftPatience is how long a namespace that a peer need not keep any more may take to go.
	leftPatience = 20 * time.Second
	// stuckPatience is how long a guest's namespace may take to go.
	stuckPatience = 2 * time.Minute
)

// OfPeer tells what is wrong with a peer: somebody else answers, nobody does, or not through the tunnel.
func OfPeer(k directory.Known, tunnel gateway.Stats, hasTunnel bool, now time.Time) []api.Problem {
	look := "`kith doctor " + k.Name + "` tells where it fails"
	left, must := TunnelLeft(k, now)
	bound := k.Peer.Status.Outgoing.Contract != "" || k.Peer.Status.Incoming.Contract != ""
	switch {
	case k.Contact.Cause == presence.OtherKey:
		return []api.Problem{{
			Severity: api.SeverityError, What: k.Name + " was refused: another key answers where it was", Why: k.Contact.Why,
			Do: "ask its owner: with a new laptop, or a new installation, `kith forget " + k.Name + "` and ask anew; else somebody is between the two",
		}}
	case !bound:
		return nil
	case k.Contact.State == presence.Suspended:
		return []api.Problem{{
			Severity: api.SeverityInfo, What: k.Name + " cannot be reached: its laptop went to sleep", Why: "it said so " + HowLong(now.Sub(k.Contact.Since)) + " ago", Do: "nothing: it is back when somebody wakes it up",
		}}
	case !k.Contact.Reachable():
		why := k.Contact.Why
		if !k.Contact.Since.IsZero() {
			why += ", for " + HowLong(now.Sub(k.Contact.Since))
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

// TunnelLeft is how long the tunnel to a peer that is there may still take; false when there need be none.
func TunnelLeft(k directory.Known, now time.Time) (left time.Duration, must bool) {
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

// OfClocks compares this machine's clock with those of all who answer. When most of several agree against it, the
// fault is here.
func OfClocks(all []directory.Known) []api.Problem {
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
				Severity: api.SeverityWarning, What: fmt.Sprintf("the clock of %s is %s %s this one", k.Name, HowLong(k.Contact.Clock.Abs()), way),
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

// Leftovers tells which peers keep namespaces that nothing here needs.
func Leftovers(peers []directory.Known, left func(peer string) []virtualnode.Left, now time.Time) (list []api.Problem) {
	for _, k := range peers {
		if k.Peer == nil {
			continue
		}
		all := Left(left(k.Peer.Name), now)
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
		said := strings.Join(names, ", ") + "; for " + HowLong(now.Sub(since))
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

// Left are those that have been left for longer than it takes.
func Left(all []virtualnode.Left, now time.Time) []virtualnode.Left {
	return slices.DeleteFunc(all, func(l virtualnode.Left) bool {
		patience := leftPatience
		if l.Leaving { // the peer is about it
			patience = stuckPatience
		}
		return now.Sub(l.Since) < patience
	})
}

// Unpulled tells which images peers cannot get, for pods of this cluster that wait for them.
func Unpulled(peers []directory.Known, podsAt func(peer string) []*corev1.Pod, now time.Time) (list []api.Problem) {
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

// Stuck tells which namespaces of guests do not go.
func Stuck(all []grants.Leaving, now time.Time) (list []api.Problem) {
	for _, l := range all {
		if long := now.Sub(l.Since); long >= stuckPatience {
			list = append(list, api.Problem{
				Severity: api.SeverityWarning, What: fmt.Sprintf("namespace %s of %s is being cleared away for %s", l.Namespace, l.Consumer, HowLong(long)),
				Why: "something in it holds it back", Do: "kubectl describe namespace " + l.Namespace,
			})
		}
	}
	return list[:min(len(list), 3)]
}

// HowLong writes a duration with one unit.
func HowLong(d time.Duration) string {
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
