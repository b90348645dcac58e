package guests

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// observed is one OffloadedPod and its Pod, with all that decides what becomes of them, read once.
type observed struct {
	key    types.NamespacedName
	now    time.Time
	record record

	raw       *unstructured.Unstructured // as read, or as the API server answered last; nil when it is gone
	behind    bool                       // it is older than what was written here, and not read further
	opod      *v1alpha1.OffloadedPod     // never nil
	malformed *grants.Refusal            // what of it could not be read
	pod       *corev1.Pod                // nil when there is none that Kith made
	last      *corev1.Pod                // with no pod: the last state of the one before, if that was evicted here
	ended     string                     // how the Pod ended, as the kubelet says
	terms     *grants.Terms              // nil when the namespace is no twin
	twin      grants.Twin                // its namespace
	home      string                     // the namespace at home
	fenced    bool                       // there is a node with a working fence, on which guests may run
	beyond    bool                       // guests hold more than the contract grants, since it was lowered
	beside    bool                       // the Pod is bound to a node without one
}

// verb is what a step does.
type verb string

const (
	again   verb = "again"   // look once more after a while
	count   verb = "count"   // what the Pod has is what it holds of the contract
	admit   verb = "admit"   // take a place under the contract, or refuse
	hold    verb = "hold"    // our finalizer goes on: no Pod without one
	create  verb = "create"  // make the Pod
	adjust  verb = "adjust"  // bring the Pod that runs in step with its template
	room    verb = "room"    // have guests of its home that matter less there make room for it
	lessen  verb = "lessen"  // evict it, if it is one of those that the contract grants no more
	expel   verb = "expel"   // delete a Pod that is not behind the fence, or has an address that leads nowhere
	remove  verb = "remove"  // delete the Pod
	refuse  verb = "refuse"  // say no, with the reason
	finish  verb = "finish"  // record the end
	release verb = "release" // give the place under the contract back, unless a Pod of that name runs
	unhold  verb = "unhold"  // our finalizer comes off
	forget  verb = "forget"  // nothing is left of it
)

// step is one thing to do for a guest.
type step struct {
	do      verb
	after   time.Duration   // again
	grace   *int64          // remove, in seconds; nil: the Pod's own
	pod     *corev1.Pod     // admit, create: the Pod as it is to be; finish: as it was
	remakes int             // create: how many times it was lost since it last ran long enough
	change  change          // adjust
	no      *grants.Refusal // refuse
	how     podState        // remove, finish
}

// rules are what this cluster demands of guests, whoever's they are.
type rules struct {
	security policy.Evaluator // of pods against the pod security level of the provider's policy
	resolver guestnet.Resolver
	Class    string // RuntimeClass of guests, "" for none; see setClass

	// Guests get their addresses out of the range of their home, or these are moved there.
	Addressed, Translated bool
	Pods                  netip.Prefix  // with Translated: what out of
	Closed                func() string // why no guest is let in now; "" when they are, and nil means so always
}

// Pauses.
const (
	soon        = 20 * time.Millisecond  // until the cache has what was written here
	cacheMoment = 250 * time.Millisecond // for so long after making a Pod its absence from the cache is not worth a question
)

// decide says what is to be done for a guest, in order.
func (r *rules) decide(o *observed) []step {
	switch how := stateOf(o.opod, o.pod); {
	case o.raw == nil && how == stale:
		return o.left()
	case o.raw == nil:
		return []step{{do: forget}}
	case o.behind: // else the same would be written again
		return []step{{do: again, after: soon}}
	case !o.opod.DeletionTimestamp.IsZero():
		return o.leave(how)
	case o.opod.Status.Phase == v1alpha1.OffloadedPodSucceeded, o.opod.Status.Phase == v1alpha1.OffloadedPodFailed:
		return []step{{do: release}}
	case how == ended, how == evicted:
		return []step{{do: finish, pod: o.pod, how: how}}
	case how == absent && o.last != nil:
		if how = stateOf(o.opod, o.last); how != ended {
			how = evicted
		}
		return []step{{do: finish, pod: o.last, how: how}}
	case how == leaving && o.beyond: // it holds what is granted no more, by a grace that its home chose
		return o.left()
	case how == leaving:
		return nil // the Pod's end brings us back
	case how == stale:
		return o.left()
	case how == lost:
		return []step{{do: remove, how: lost}}
	case how == foreign:
		return []step{{do: refuse, no: nameTaken(o.key)}}
	case o.malformed != nil:
		return []step{{do: refuse, no: o.malformed}}
	case how == alive && (r.outside(o.pod) || r.astray(o) || o.beside && unstarted(o.pod)):
		return []step{{do: expel}}
	case how == alive && Older(o.pod.ResourceVersion, o.record.podVersion):
		return []step{{do: again, after: soon}}
	case how == alive:
		return r.keep(o)
	}
	return r.make(o)
}

func nameTaken(key types.NamespacedName) *grants.Refusal {
	return grants.Refused(grants.ReasonNameTaken, "a Pod %s that Kith did not make is in namespace %s", key.Name, key.Namespace)
}

// outside reports whether the fence does not hold a Pod that hosting made: it lacks the class, or the label by which it is
// known for a guest.
func (r *rules) outside(pod *corev1.Pod) bool {
	class := ptr.Deref(pod.Spec.RuntimeClassName, "")
	return r.Class != "" && (class != r.Class && class != guestnet.DeviceRuntime || pod.Labels[v1alpha1.LabelConsumer] == "")
}

// unstarted reports whether nothing of a Pod has run yet. One that runs stays where it is when the fence's process there ends: the table that
// holds it is the kernel's, and knows it. It would not learn of another.
func unstarted(pod *corev1.Pod) bool {
	started := func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	}
	return (pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending) && pod.Status.PodIP == "" &&
		!slices.ContainsFunc(pod.Status.InitContainerStatuses, started) && !slices.ContainsFunc(pod.Status.ContainerStatuses, started)
}

// astray reports whether a guest can be reached by nobody because of its address: it is of a range that is no longer agreed on (which changes
// only while no guest exists, but this one was just being created), or outside this cluster's configured pod range.
func (r *rules) astray(o *observed) bool {
	has, unknown := netip.ParseAddr(o.pod.Status.PodIP)
	if r.Translated && unknown == nil && has.Is4() && r.Pods.IsValid() && !r.Pods.Contains(has) {
		return true
	}
	if !r.Addressed || o.terms == nil {
		return false
	}
	guests, none := netip.ParsePrefix(o.terms.Guests)
	if part, err := netip.ParsePrefix(o.terms.Part); err == nil && o.twin.Origin != "" {
		guests = part // others of the range are elsewhere
	}
	for _, to := range o.terms.Onward {
		part, err := netip.ParsePrefix(to.Guests)
		if err == nil && part.Contains(has) && !strings.HasPrefix(o.pod.Spec.NodeName, v1alpha1.VirtualNodePrefix) {
			return true // it leads to who is there
		}
	}
	if none != nil { // what its home had by way of its consumer is somebody else's by now; of a consumer itself another range is being agreed on
		return unknown == nil && o.twin.Origin != ""
	}
	return unknown == nil && !guests.Contains(has)
}

// forAnother says why a guest that its consumer has for another cluster may not be here, nil when it may.
func (r *rules) forAnother(o *observed) *grants.Refusal {
	chain := o.opod.Spec.Chain
	if no := grants.ForAnother(o.terms, chain); no != nil {
		return no
	}
	origin := ""
	if len(chain) > 0 {
		if id, err := identity.ParseID(chain[0].Cluster); err == nil {
			origin = id.Compact()
		}
	}
	switch {
	case origin != o.twin.Origin:
		return grants.Refused(grants.ReasonNotReoffered, "spec.chain: namespace %s is for another cluster than the pod", o.key.Namespace)
	case origin == "":
		return nil
	case !r.Addressed:
		return grants.Refused(grants.ReasonNotSupported, "this cluster's network plugin gives addresses, and pods that came by another cluster need those of their home")
	}
	if volume := claimOf(&o.opod.Spec.Template.Spec); volume != "" {
		return grants.Refused(grants.ReasonNotSupported, "volume %s: what a claim stands for does not come by another cluster", volume)
	}
	return nil
}

// notVia says why a guest cannot be run by whom it says; nil when it can, or says nobody. The consumer knows the parts of its contract, and no other
// provider of this cluster.
func notVia(opod *v1alpha1.OffloadedPod, t *grants.Terms) *grants.Refusal {
	if opod.Spec.Via == "" {
		return nil
	}
	part := t.PartOf(opod.Spec.Via)
	switch {
	case via(opod) == t.Provider: // whether the contract is divided any more or not
		return nil
	case part == nil:
		return grants.Refused(grants.ReasonNotBehind, "spec.via: contract %s has no part at %.128s", t.Contract, opod.Spec.Via)
	case len(opod.Spec.Chain) > 0:
		return grants.Refused(grants.ReasonNotReoffered, "spec.via: it came by another cluster, and goes no further than this one")
	}
	if volume := claimOf(&opod.Spec.Template.Spec); volume != "" {
		return grants.Refused(grants.ReasonNotBehind, "volume %s: what a claim stands for is at this cluster, and not at %s", volume, part.Peer)
	}
	return nil
}

// left: a Pod that no OffloadedPod stands for, or that ends while guests hold more than is granted, ends in endGrace at most. It keeps its place under the contract until it is gone:
// a consumer that takes the finalizer off and leaves a Pod with a long grace period behind has one more otherwise.
func (o *observed) left() []step {
	most := int64(EndGrace / time.Second)
	if o.pod.DeletionTimestamp != nil && ptr.Deref(o.pod.DeletionGracePeriodSeconds, 0) <= most {
		return nil
	}
	return []step{{do: remove, grace: endsIn(o.pod)}}
}

// endsIn is the grace period of a Pod that no contract protects: its own, endGrace at most.
func endsIn(pod *corev1.Pod) *int64 {
	most := int64(EndGrace / time.Second)
	return ptr.To(min(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, most), most))
}

// leave ends the Pod of an OffloadedPod that is being deleted, and lets go of it once the Pod is gone. A Pod that is no
// longer its own, or that the consumer took our finalizer from, keeps its place under the contract until it is gone.
func (o *observed) leave(how podState) (steps []step) {
	off := []step{{do: unhold}}
	if !held(o.opod) {
		off = nil
	}
	switch how {
	case stale:
		return append(o.left(), off...)
	case absent, foreign:
		return append(off, step{do: forget})
	}
	// The grace period is what the consumer asked for, asked again when it wants a shorter one, and within endGrace when no
	// contract protects the Pod any more, or guests hold more than is granted.
	grace := graceAsked(o.opod)
	if most := int64(EndGrace / time.Second); (o.beyond || !o.terms.InForce(o.now)) && ptr.Deref(grace, ptr.Deref(o.pod.Spec.TerminationGracePeriodSeconds, 0)) > most {
		grace = &most
	}
	running := o.pod.DeletionGracePeriodSeconds
	if o.pod.DeletionTimestamp != nil && (grace == nil || running == nil || *running <= *grace) {
		return nil
	}
	return []step{{do: remove, grace: grace}}
}

// keep holds a living Pod in step with its template.
func (r *rules) keep(o *observed) []step {
	steps, status := []step{{do: count}}, &o.opod.Status
	if o.beyond {
		steps = append(steps, step{do: lessen})
	}
	if unplaced(o.pod) && ptr.Deref(o.opod.Spec.Template.Spec.PreemptionPolicy, "") != corev1.PreemptNever {
		if wait := seekEvery - o.now.Sub(o.record.sought); wait > 0 {
			steps = append(steps, step{do: again, after: wait})
		} else {
			steps = append(steps, step{do: room})
		}
	}
	inStep := o.record.uid == o.pod.UID && o.record.synced == o.opod.Generation && status.PodUID == o.pod.UID && status.Phase == v1alpha1.OffloadedPodAccepted
	if inStep || o.terms == nil {
		return steps
	}
	if !held(o.opod) {
		steps = append(steps, step{do: hold})
	}
	return append(steps, step{do: adjust, change: r.changeOf(o)})
}

// make creates the Pod, for the first time or after a loss, if the contract and the pod security level permit.
func (r *rules) make(o *observed) []step {
	t := o.terms
	switch {
	case t == nil:
		return []step{{do: refuse, no: grants.Refused(grants.ReasonNoContract, "no contract covers namespace %s", o.key.Namespace)}}
	case !t.InForce(o.now):
		return []step{{do: refuse, no: grants.Refused(grants.ReasonNoContract, "contract %s is not in force: %s", t.Contract, t.Why)}}
	}
	if no := r.forAnother(o); no != nil {
		return []step{{do: refuse, no: no}}
	}
	if no := notVia(o.opod, t); no != nil {
		return []step{{do: refuse, no: no}}
	}
	switch {
	case (r.Addressed || r.Translated) && t.Guests == "": // it is tried again when there is one
		return []step{{do: refuse, no: grants.Refused(grants.ReasonNoNetwork, "the clusters have not agreed on addresses for guests yet")}}
	}
	if r.Closed != nil {
		if why := r.Closed(); why != "" {
			return []step{{do: refuse, no: grants.Refused(grants.ReasonNoNetwork, "%s", why)}}
		}
	}
	if !o.fenced {
		return []step{{do: refuse, no: grants.Refused(grants.ReasonNotFenced, "on no node here a fence of Kith's is alive: its owner's `kith doctor` tells why")}}
	}
	remakes := 0
	if o.opod.Status.PodUID != "" || o.record.remakes > 0 {
		since := o.now.Sub(o.record.made)
		if since <= forgiven {
			remakes = o.record.remakes
		}
		if wait := max(remakeDelay(remakes), cacheMoment) - since; wait > 0 {
			return []step{{do: again, after: wait}}
		}
		remakes++
	}
	pod := podFor(o.opod, t)
	r.resolver.Resolve(&pod.Spec, o.home)
	no := r.check(pod, t.Level)
	if no == nil {
		no = checkImages(&pod.Spec, t.Images)
	}
	if no == nil {
		no = checkClaims(&pod.Spec, t.Limit)
	}
	if no != nil {
		return []step{{do: refuse, no: no}}
	}
	if no = r.setClass(&pod.Spec, t.DeviceClass); no != nil {
		return []step{{do: refuse, no: no}}
	}
	if r.Addressed {
		linkServices(&pod.Spec)
	}
	steps := []step{{do: admit, pod: pod}}
	if !held(o.opod) {
		steps = append(steps, step{do: hold})
	}
	return append(steps, step{do: create, pod: pod, remakes: remakes})
}

// endOf is the status of an OffloadedPod whose pod ended for good. Its Pod may be cleared away from then on. One that was evicted
// has failed, however its containers ended, as a pod has that a kubelet evicts.
func (o *observed) endOf(pod *corev1.Pod, how podState) v1alpha1.OffloadedPodStatus {
	status, final := o.opod.Status, pod.Status.DeepCopy()
	if o.terms != nil {
		ToHome(final, o.terms.Translation())
	}
	switch {
	case how == evicted:
		final.Phase, final.Reason, final.Message = corev1.PodFailed, reasonEvicted, grants.Cut(evictionOf(pod).Message, 1024)
	case unsaid(pod):
		final.Phase, final.Reason, final.Message = corev1.PodFailed, reasonEvicted, grants.Cut(o.ended, 1024)
	}
	status.Phase = v1alpha1.OffloadedPodSucceeded
	if final.Phase == corev1.PodFailed {
		status.Phase = v1alpha1.OffloadedPodFailed
	}
	status.Reason, status.Message, status.Final = final.Reason, final.Message, final
	if how == evicted && evictionOf(pod) != nil && evictionOf(pod).Reason == grants.ReasonNoLonger {
		status.Reason = grants.ReasonNoLonger
	}
	countPod(&status, pod.UID)
	return status
}

// Older says whether version a is before b; nothing is before "".
func Older(a, b string) bool {
	if b == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
