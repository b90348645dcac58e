package why

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
)

// Facts are what is known of a pod, read once.
type Facts struct {
	Now  time.Time
	Here string // the name of this laptop
	Pod  *corev1.Pod
	// Guest says that the pod is a guest here: what is in its containers is its home's alone.
	Guest bool

	// Tethered says that a company's cluster decides, or is about to: nothing does here.
	Tethered   bool
	Offloading *v1alpha1.NamespaceOffloading // of its namespace; nil without one
	Places     []Place                       // every node
	Strangers  []string                      // peers that are reachable, without a contract
	Growing    []Growing                     // PeeringPolicies that see that pods wait for room
	Claims     []Claim                       // of volumes that it has, as far as they may be read
	Events     []corev1.Event                // about it, in any order; those of its guest too

	// Of one that is bound to a peer's node.
	Abroad      *v1alpha1.OffloadedPod // nil: the peer does not have it, or does not say
	TwinRefused *metav1.Condition      // why the peer makes no namespace for it
	Transfer    *api.ImageTransfer     // of its image, from here; nil: none goes on
}

// Place is a node on which the pod could be.
type Place struct {
	Laptop  string // whose it is: a peer's name, or that of a node of this cluster
	Peer    bool
	Node    *corev1.Node
	Used    corev1.ResourceList  // what the pods on it request
	There   presence.Presence    // of a peer
	Tunnel  bool                 // of a peer: packets pass
	Permit  offloading.Permit    // of a peer
	Avoided bool                 // of a peer: it refused one of the same controller lately
	Grants  corev1.ResourceList  // of a peer: what its contract does
	Wake    *v1alpha1.WakeStatus // of a peer: how far waking it is, where that is a term
}

// Growing is a PeeringPolicy that sees that pods wait for room at peers.
type Growing struct {
	Policy string
	State  v1alpha1.SeekingState
	Said   string
	Peers  []string // that it selects
}

// GrowingOf is what a policy says of that; ok is false when it says nothing.
func GrowingOf(policy *v1alpha1.PeeringPolicy) (g Growing, ok bool) {
	is := &policy.Status
	if is.State != v1alpha1.SeekingGrowing && is.State != v1alpha1.SeekingFull {
		return g, false
	}
	g = Growing{Policy: policy.Name, State: is.State, Said: is.Message}
	for _, p := range is.Peers {
		g.Peers = append(g.Peers, p.Peer)
	}
	return g, true
}

// Claim is a PersistentVolumeClaim of the pod; nil ones are missing.
type Claim struct {
	Name   string
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume // that it is bound to
	// Movable says that its volume may be made at peers; of their storage class Class then, "" for the default one. Home says that home has such a class.
	Movable bool
	Class   string
	Home    bool
}

// Of gives the state of the pod and the causes, the nearest first. There is at least one.
func Of(f *Facts) (api.PodState, []api.Cause) {
	state, causes := f.of()
	for i := range causes {
		causes[i].Peer = slices.ContainsFunc(f.Places, func(p Place) bool { return p.Peer && p.Laptop == causes[i].Laptop })
		if c := &causes[i]; f.Guest && c.Who == api.WhoYou && (c.Container != "" || c.Reason == api.CauseVolume) {
			c.Who = api.WhoHome
			if c.ExitCode != nil || c.Reason == api.CauseProbe {
				c.Said = "" // the container's own words
			}
		}
	}
	return state, causes
}

func (f *Facts) of() (api.PodState, []api.Cause) {
	pod := f.Pod
	at := f.place()
	switch phase := pod.Status.Phase; {
	case phase == corev1.PodSucceeded:
		return api.PodDone, []api.Cause{{Reason: api.CauseDone, Laptop: f.Laptop(), Who: api.WhoNobody, Since: ended(pod)}}
	case phase == corev1.PodFailed:
		return api.PodFailed, f.failed(at)
	case pod.DeletionTimestamp != nil:
		return api.PodEnding, f.leaving(at)
	case pod.Spec.NodeName == "":
		return api.PodWaiting, f.unbound()
	case at != nil && at.Peer:
		return f.abroad(at)
	}
	if at != nil && !nodeReady(at.Node) {
		return api.PodUnknown, append([]api.Cause{f.nodeNotReady(at)}, second(f.inside())...)
	}
	return f.inside()
}

// second leaves of what is known of the inside what is worth a word beside a cause that is nearer: what was wrong with a container.
func second(_ api.PodState, causes []api.Cause) []api.Cause {
	return slices.DeleteFunc(causes, func(c api.Cause) bool { return c.Container == "" || c.Reason == api.CauseStarts })
}

// Laptop is where the pod is; "" while nobody has it.
func (f *Facts) Laptop() string {
	if at := f.place(); at != nil {
		return at.Laptop
	}
	return f.Pod.Spec.NodeName
}

// place is the node that the pod is bound to; nil when it is gone, or there is none.
func (f *Facts) place() *Place {
	for i := range f.Places {
		if f.Places[i].Node.Name == f.Pod.Spec.NodeName {
			return &f.Places[i]
		}
	}
	return nil
}

// owner is who can change something on a place.
func (p *Place) owner() api.Who {
	if p != nil && p.Peer {
		return api.WhoPeer
	}
	return api.WhoYou
}

// Reasons in the status of a home pod, as core/consume/virtualnode and kubelets write them.
const (
	reasonNotOffloaded = "NotOffloaded"
	reasonRemaking     = "Remaking"
	reasonEvicting     = "Evicting"
	reasonEvicted      = "Evicted"
	reasonLost         = "LostByPeer"
)

// abroad is about a pod on the node of a peer.
func (f *Facts) abroad(at *Place) (api.PodState, []api.Cause) {
	pod, status := f.Pod, &f.Pod.Status
	var causes []api.Cause
	about := func(reason api.CauseReason, who api.Who) api.Cause {
		return api.Cause{Reason: reason, Laptop: at.Laptop, Who: who}
	}
	refused := f.Abroad != nil && f.Abroad.Spec.HomeUID == pod.UID && f.Abroad.Status.Phase == v1alpha1.OffloadedPodRefused
	switch {
	case !at.There.Reachable() && refused:
		return api.PodRefused, []api.Cause{f.refused(at, f.Abroad.Status.Reason, f.Abroad.Status.Message), f.unreachable(at)}
	case !at.There.Reachable():
		return api.PodUnknown, append([]api.Cause{f.unreachable(at)}, second(f.inside())...)
	case at.There.Cause != "": // it is there, and cannot do its work
		c := about(api.CauseUnreachable, api.WhoPeer)
		c.Detail, c.Said, c.Since = string(at.There.Cause), at.There.Why, at.There.Since
		causes = append(causes, c)
	case !at.Tunnel:
		causes = append(causes, about(api.CauseTunnelDown, api.WhoYou))
	}
	switch reason := status.Reason; {
	case refused:
		return api.PodRefused, append(causes, f.refused(at, f.Abroad.Status.Reason, f.Abroad.Status.Message))
	case reason == reasonNotOffloaded:
		c := about(api.CauseNotOffloaded, api.WhoYou)
		return api.PodRefused, append(causes, c)
	case reason == corev1.PodReasonUnschedulable:
		c := about(api.CauseUnschedulable, api.WhoPeer)
		c.Said = status.Message
		return api.PodRefused, append(causes, c)
	case reason == reasonEvicting:
		c := about(api.CauseEvicted, api.WhoNobody)
		c.Said = status.Message
		return api.PodFailing, append(causes, c)
	case reason == reasonRemaking:
		return api.PodStarting, append(causes, about(api.CauseRemaking, api.WhoNobody))
	case reason != "" && status.StartTime == nil && len(status.ContainerStatuses) == 0: // what the peer said, which does not tell more now
		return api.PodRefused, append(causes, f.refused(at, reason, status.Message))
	case f.Abroad == nil && status.StartTime == nil:
		return f.notThere(at, causes)
	}
	state, inside := f.inside()
	if len(causes) > 0 {
		inside = second(state, inside)
		if state == api.PodReady {
			state = api.PodNotReady
		}
	}
	return state, append(causes, inside...)
}

// notThere is about one that the peer was given, and does not have.
func (f *Facts) notThere(at *Place, causes []api.Cause) (api.PodState, []api.Cause) {
	if no := f.TwinRefused; no != nil {
		return api.PodRefused, append(causes, api.Cause{Reason: api.CauseTwinRefused, Laptop: at.Laptop, Who: api.WhoYou, Detail: no.Reason, Said: no.Message, Since: no.LastTransitionTime.Time})
	}
	if e := f.latest("OffloadFailed"); e != nil {
		return api.PodFailing, append(causes, api.Cause{Reason: api.CauseNotSent, Laptop: at.Laptop, Who: api.WhoYou, Said: e.Message, Since: lastTime(e)})
	}
	return api.PodStarting, append(causes, api.Cause{Reason: api.CauseAsking, Laptop: at.Laptop, Who: api.WhoNobody})
}

func (f *Facts) refused(at *Place, reason, message string) api.Cause {
	c := api.Cause{Reason: api.CauseRefused, Laptop: at.Laptop, Who: refusedWho(reason), Detail: reason, Said: message}
	if reason == RefusedContract {
		c.Short = short(f.Pod, at)
	}
	return c
}

// RefusedContract is the provider's word for a contract that would be exceeded.
const RefusedContract = "ContractExceeded"

// refusedWho is who can change what a provider refuses with that reason (core/provide/hosting/grants).
func refusedWho(reason string) api.Who {
	switch reason {
	case RefusedContract, "NotSupported", "Invalid", "PodOSNotSupported", "NotOffloaded", "NoContract":
		return api.WhoYou
	}
	return api.WhoPeer
}

func (f *Facts) unreachable(at *Place) api.Cause {
	if is := at.Wake; is != nil && is.State != "" && is.State != v1alpha1.WakeWoken && len(is.Document) > 0 && f.Pod.Spec.NodeName == "" {
		c := api.Cause{Reason: api.CauseWakes, Laptop: at.Laptop, Who: api.WhoPeer, Detail: string(is.State), Said: is.Message}
		if is.Since != nil {
			c.Since = is.Since.Time
		}
		if is.State == v1alpha1.WakeSent {
			c.Who = api.WhoNobody
		}
		return c
	}
	return api.Cause{Reason: api.CauseUnreachable, Laptop: at.Laptop, Who: api.WhoPeer, Since: at.There.Since, Said: at.There.Why, Detail: string(at.There.Cause)}
}

func (f *Facts) nodeNotReady(at *Place) api.Cause {
	c := api.Cause{Reason: api.CauseNodeNotReady, Laptop: at.Laptop, Who: at.owner()}
	if at.Peer {
		c.Reason = api.CauseUnreachable
	}
	if is := nodeCondition(at.Node); is != nil {
		c.Detail, c.Said, c.Since = is.Reason, is.Message, is.LastTransitionTime.Time
	}
	return c
}

// failed is about a pod that has ended badly.
func (f *Facts) failed(at *Place) []api.Cause {
	status := &f.Pod.Status
	c := api.Cause{Laptop: f.Laptop(), Who: at.owner(), Detail: status.Reason, Said: status.Message, Since: ended(f.Pod)}
	crashed := f.crashed()
	switch reason := status.Reason; {
	case reason == reasonEvicted:
		c.Reason = api.CauseEvicted
	case reason == reasonLost:
		c.Reason = api.CauseLost
	case reason == reasonNotOffloaded:
		c.Reason, c.Who = api.CauseNotOffloaded, api.WhoYou
	case at != nil && at.Peer && reason != "" && len(status.ContainerStatuses) == 0:
		c.Reason, c.Who = api.CauseRefused, refusedWho(reason)
	case reason == "" && len(crashed) > 0:
		return crashed
	case reason == "": // nothing more is known
		c.Reason, c.Who = api.CauseOther, api.WhoYou
	default:
		c.Reason = api.CauseRejected
	}
	return append([]api.Cause{c}, crashed...)
}

// leaving is about one that was deleted.
func (f *Facts) leaving(at *Place) []api.Cause {
	c := api.Cause{Reason: api.CauseDeleted, Laptop: f.Laptop(), Who: api.WhoNobody, Since: f.Pod.DeletionTimestamp.Time, Names: f.Pod.Finalizers}
	if len(f.Pod.Finalizers) > 0 {
		c.Who = api.WhoYou
	}
	if at != nil && at.Peer && !at.There.Reachable() {
		return []api.Cause{c, f.unreachable(at)}
	}
	return []api.Cause{c}
}

// latest is the youngest event with one of these reasons; nil without one.
func (f *Facts) latest(reasons ...string) (last *corev1.Event) {
	for i := range f.Events {
		e := &f.Events[i]
		if slices.Contains(reasons, e.Reason) && (last == nil || lastTime(e).After(lastTime(last))) {
			last = e
		}
	}
	return last
}

func lastTime(e *corev1.Event) time.Time {
	last := slices.MaxFunc([]time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time}, time.Time.Compare)
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		return e.Series.LastObservedTime.Time
	}
	return last
}

// ended is when the last container did.
func ended(pod *corev1.Pod) (at time.Time) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	return at
}

func nodeCondition(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

func nodeReady(n *corev1.Node) bool {
	is := nodeCondition(n)
	return is != nil && is.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Since is since when the pod is as it is, as far as that is known.
func Since(pod *corev1.Pod, state api.PodState, causes []api.Cause) time.Time {
	switch state {
	case api.PodUnknown:
		return causes[0].Since
	case api.PodDone, api.PodFailed:
		return ended(pod)
	case api.PodEnding:
		return pod.DeletionTimestamp.Time
	case api.PodReady, api.PodNotReady:
		if c := podCondition(pod, corev1.PodReady); c != nil {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}
