package why

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
)

// unbound is about a pod that no node has: what is in the way for all, then what is in the way on each.
func (f *Facts) unbound() (causes []api.Cause) {
	pod := f.Pod
	if len(pod.Spec.SchedulingGates) > 0 {
		c := api.Cause{Reason: api.CauseGated, Who: api.WhoYou}
		for _, gate := range pod.Spec.SchedulingGates {
			c.Names = append(c.Names, gate.Name)
		}
		return []api.Cause{c}
	}
	if f.Tethered {
		return []api.Cause{{Reason: api.CauseTethered, Laptop: f.Here, Who: api.WhoYou}}
	}
	for _, claim := range f.Claims {
		causes = append(causes, claim.waits()...)
	}
	if len(causes) > 0 {
		return causes // before that is there, nobody takes it
	}
	fits, peers := false, 0
	var others []api.Cause // where it does not want to be: of those nobody need know first
	var kept []string      // peers to which it may not go, for one reason that is the same for all
	for i := range f.Places {
		at := &f.Places[i]
		if at.Peer {
			peers++
		}
		c := f.closed(at)
		switch {
		case c == nil:
			fits = true
		case c.Reason == api.CauseNotOffloaded:
			kept = append(kept, at.Laptop)
		case c.Reason == api.CauseNotSelected:
			others = append(others, *c)
		default:
			causes = append(causes, *c)
		}
	}
	causes = append(causes, others...)
	switch {
	case len(kept) > 0:
		causes = append(causes, api.Cause{Reason: api.CauseNotOffloaded, Who: api.WhoYou, Names: kept})
	case peers == 0 && !fits && len(causes) > 0:
		causes = append(causes, api.Cause{Reason: api.CauseNoPeer, Who: api.WhoYou, Names: f.Strangers})
	}
	if !fits && len(causes) > 0 {
		return append(causes, f.growing(causes)...)
	}
	// There is room, as far as can be told here.
	if no := podCondition(pod, corev1.PodScheduled); no != nil && no.Status == corev1.ConditionFalse {
		says := api.Cause{Reason: api.CauseScheduler, Who: api.WhoYou, Detail: no.Reason, Said: no.Message, Since: no.LastTransitionTime.Time}
		all := append([]api.Cause{says}, causes...)
		for _, claim := range f.Claims {
			if claim.Claim.Status.Phase == corev1.ClaimPending {
				all = append(all, claim.pending())
			}
		}
		return all
	}
	return []api.Cause{{Reason: api.CauseNotScheduled, Laptop: f.Here, Who: api.WhoNobody}}
}

// growing says which policies ask peers for the room that the pod lacks there.
func (f *Facts) growing(causes []api.Cause) (asked []api.Cause) {
	for _, g := range f.Growing {
		if !slices.ContainsFunc(causes, func(c api.Cause) bool {
			return c.Reason == api.CauseNoPeer || c.Reason == api.CauseNoRoom && slices.Contains(g.Peers, c.Laptop)
		}) {
			continue
		}
		c := api.Cause{Reason: api.CauseRoomAsked, Who: api.WhoNobody, Names: []string{g.Policy}, Detail: string(g.State), Said: g.Said}
		if g.State == v1alpha1.SeekingFull {
			c.Who = api.WhoYou
		}
		asked = append(asked, c)
	}
	return asked
}

// Against is what keeps the pod from a place, its gates and volumes among it; nil when it could be there, as far as what is looked at goes.
func (f *Facts) Against(at *Place) *api.Cause {
	if len(f.Pod.Spec.SchedulingGates) > 0 {
		return &api.Cause{Reason: api.CauseGated, Who: api.WhoYou}
	}
	for _, claim := range f.Claims {
		if waits := claim.waits(); len(waits) > 0 {
			return &waits[0]
		}
	}
	return f.closed(at)
}

// ClaimName is the name of the claim that a volume of the pod is of; "" for other volumes.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// closed is why the pod cannot be at a place; nil when it could, as far as what is looked at goes.
func (f *Facts) closed(at *Place) *api.Cause {
	pod, node := f.Pod, at.Node
	about := func(reason api.CauseReason, who api.Who, names ...string) *api.Cause {
		return &api.Cause{Reason: reason, Laptop: at.Laptop, Who: who, Names: names}
	}
	if at.Peer {
		if c := f.forbidden(at); c != nil {
			return c
		}
		if !at.There.Reachable() {
			c := f.unreachable(at)
			return &c
		}
	}
	if !nodeReady(node) {
		c := f.nodeNotReady(at)
		return &c
	}
	for _, taint := range node.Spec.Taints {
		switch {
		case taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(pod, &taint):
		case at.Peer && taint.Key == v1alpha1.TaintPeer && len(pod.Spec.ResourceClaims) > 0: // offloading lets none of these go
			return about(api.CauseDeviceHome, api.WhoYou, pod.Spec.ResourceClaims[0].Name)
		case at.Peer && taint.Key == v1alpha1.TaintPeer && claims(pod) && !f.volumesAnywhere(): // nor of these
			return about(api.CauseVolumeHome, api.WhoYou)
		case at.Peer && taint.Key == v1alpha1.TaintPeer:
			return about(api.CauseMadeBefore, api.WhoYou)
		case at.Peer && taint.Key == v1alpha1.TaintClosed:
			c := about(api.CauseClosed, api.WhoPeer)
			c.Detail = taint.Value
			return c
		case at.Peer && taint.Key == v1alpha1.LabelNetwork:
			return about(api.CauseNoNetwork, api.WhoYou)
		case taint.Key == corev1.TaintNodeUnschedulable:
			return about(api.CauseCordoned, api.WhoYou)
		default:
			return about(api.CauseTainted, at.owner(), taint.Key)
		}
	}
	if node.Spec.Unschedulable && !tolerates(pod, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}) {
		return about(api.CauseCordoned, api.WhoYou)
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
		switch {
		case at.Avoided:
			return about(api.CauseAvoided, api.WhoPeer)
		case !at.Peer && f.Offloading != nil && f.Offloading.Spec.Strategy == v1alpha1.StrategyRemote:
			return about(api.CauseOnlyAbroad, api.WhoYou)
		}
		return about(api.CauseNotSelected, api.WhoYou, unmet(pod, node)...)
	}
	for _, claim := range f.Claims {
		if claim.classless(at) {
			c := about(api.CauseNoClass, api.WhoYou, claim.Name)
			c.Detail = claim.Class
			return c
		}
		if !claim.reaches(node) {
			c := about(api.CauseVolumeElse, api.WhoYou, claim.Name)
			c.Detail = volumes.AtPeer(claim.Volume)
			return c
		}
	}
	if lacks := short(pod, at); len(lacks) > 0 {
		c := about(api.CauseNoRoom, api.WhoYou)
		c.Short = lacks
		return c
	}
	return nil
}

// forbidden is why home lets no pod of the namespace go to the peer; nil when it does.
func (f *Facts) forbidden(at *Place) *api.Cause {
	switch {
	case at.Permit == offloading.Granted:
		return nil
	case at.Permit == offloading.Withdrawn:
		return &api.Cause{Reason: api.CauseNotOffloaded, Laptop: at.Laptop, Who: api.WhoYou}
	case at.Permit == offloading.Ending:
		return &api.Cause{Reason: api.CauseComesHome, Laptop: at.Laptop, Who: api.WhoYou}
	case f.Offloading != nil && f.Offloading.Spec.Strategy == v1alpha1.StrategyLocal:
		return &api.Cause{Reason: api.CauseStaysHome, Laptop: at.Laptop, Who: api.WhoYou}
	}
	switch offloading.ClosedBy(f.Offloading, at.Laptop) {
	case v1alpha1.ClosedSpent:
		return &api.Cause{Reason: api.CauseBudget, Laptop: at.Laptop, Who: api.WhoYou, Detail: string(api.ClosedSpent), Names: f.budget()}
	case v1alpha1.ClosedOtherCurrency:
		return &api.Cause{Reason: api.CauseBudget, Laptop: at.Laptop, Who: api.WhoYou, Detail: string(api.ClosedOtherCurrency), Names: f.budget()}
	}
	c := &api.Cause{Reason: api.CauseNotThisPeer, Laptop: at.Laptop, Who: api.WhoYou}
	if f.Offloading != nil {
		c.Names = f.Offloading.Spec.Peers
	}
	return c
}

// budget is that of the namespace, and until when it is for.
func (f *Facts) budget() []string {
	is := f.Offloading.Status.Budget
	return []string{offloading.PerPeriod(is.NamespaceBudget), is.Until.UTC().Format(time.RFC3339)}
}

// volumesAnywhere reports whether pods of the namespace may go where their volumes are.
func (f *Facts) volumesAnywhere() bool {
	return f.Offloading != nil && f.Offloading.Spec.Volumes == v1alpha1.VolumesAnywhere
}

// claims reports whether the pod has a volume of a claim.
func claims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	_, not := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), []corev1.Taint{*taint}, pod.Spec.Tolerations, nil, false)
	return !not
}

// unmet are the labels of the pod's node selector that the node lacks; "affinity" when it is not that.
func unmet(pod *corev1.Pod, node *corev1.Node) (names []string) {
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			names = append(names, key+"="+value)
		}
	}
	slices.Sort(names)
	return names
}

// Requests are what a pod asks for, one of "pods" too.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: pod.Spec.NodeName != ""})
	list[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return list
}

// short is what a place has too little of, by name.
func short(pod *corev1.Pod, at *Place) (lacks []api.Short) {
	for name, asked := range Requests(pod) {
		of := at.Node.Status.Allocatable[name]
		free := of.DeepCopy()
		free.Sub(at.Used[name])
		if free.Sign() < 0 {
			free = resource.Quantity{Format: of.Format}
		}
		if !asked.IsZero() && asked.Cmp(free) > 0 {
			lacks = append(lacks, api.Short{Resource: string(name), Asked: asked.String(), Free: free.String(), Of: of.String()})
		}
	}
	slices.SortFunc(lacks, func(a, b api.Short) int {
		if a.Resource < b.Resource {
			return -1
		}
		return 1
	})
	return lacks
}

// waits is why a claim keeps the pod from every node.
func (c Claim) waits() []api.Cause {
	switch {
	case c.Claim == nil:
		return []api.Cause{{Reason: api.CauseClaimMissing, Who: api.WhoYou, Names: []string{c.Name}}}
	case c.moves() != nil:
		return []api.Cause{{Reason: api.CauseVolumeMoves, Who: api.WhoNobody, Names: []string{c.Name}, Detail: strings.TrimPrefix(c.moves().To, v1alpha1.VirtualNodePrefix), Since: c.moves().Since.Time}}
	case c.Claim.Status.Phase == corev1.ClaimLost, c.Claim.Status.Phase == corev1.ClaimPending && c.Claim.Spec.VolumeName == "" && c.Claim.Spec.StorageClassName == nil:
		return []api.Cause{c.pending()}
	}
	return nil // one that waits for its first consumer is bound with the pod
}

// moves is the move that keeps pods from a claim; nil when none does.
func (c Claim) moves() *volumes.Move {
	if m := volumes.MoveOf(c.Claim); m != nil && m.Phase == volumes.Stopped {
		return m
	}
	return nil
}

func (c Claim) pending() api.Cause {
	return api.Cause{Reason: api.CauseClaimPending, Who: api.WhoYou, Names: []string{c.Name}, Detail: string(c.Claim.Status.Phase)}
}

// classless reports whether a place has no storage of the class that the volume of a claim is to be of.
func (c Claim) classless(at *Place) bool {
	if c.Claim == nil || c.Claim.Spec.VolumeName != "" || !c.Movable {
		return false
	}
	granted := at.Grants[corev1.ResourceName(api.StorageOf(c.Class))]
	return at.Peer && granted.Sign() <= 0 || !at.Peer && !c.Home
}

// reaches reports whether the volume of a claim can be had on the node.
func (c Claim) reaches(node *corev1.Node) bool {
	if c.Volume == nil || c.Volume.Spec.NodeAffinity == nil || c.Volume.Spec.NodeAffinity.Required == nil {
		return true
	}
	match, err := corev1helpers.MatchNodeSelectorTerms(node, c.Volume.Spec.NodeAffinity.Required)
	return err == nil && match
}
