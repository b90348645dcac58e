package virtualnode

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
)

// Reasons in the status of home pods. Refusals carry the reason the peer gave.
const (
	reasonRemaking = "Remaking"      // the guest was lost abroad; the peer makes it again
	reasonRefused  = "RefusedByPeer" // refused without a reason
	reasonLost     = "LostByPeer"    // a pod that never restarts is gone abroad
	reasonEvicting = "Evicting"      // the guest is evicted abroad, and not at its end yet

	reasonForeign = "ForeignAddress" // the peer tells an address that is not for it to give

	reasonEvicted = "Evicted"                // as kubelets say it
	reasonUnknown = "ContainerStatusUnknown" // of a container, as kubelets say it
)

// conditionForeign is on a home pod as long as the peer tells such an address.
const conditionForeign corev1.PodConditionType = "kith.dev/ForeignAddress"

// view is what a home pod's status is made from.
type view struct {
	home    *corev1.Pod
	abroad  *v1alpha1.OffloadedPod // of this home pod
	guest   *corev1.Pod            // nil when the Pod is not there (yet)
	peer    string
	tunnel  string // why no packet passes to it from here; empty when they do
	nodeIP  netip.Addr
	guests  netip.Prefix // the range that the peer gives addresses from; the zero value when none was agreed on
	guests6 netip.Prefix // and that of IPv6, beside it
}

// statusOf is the status a home pod should have.
func statusOf(v view) corev1.PodStatus {
	phase := v.abroad.Status.Phase
	overAbroad := endedAbroad(v.abroad)
	switch deleted := v.home.DeletionTimestamp != nil; {
	case ended(&v.home.Status):
		return v.home.Status // an end is not taken back
	case overAbroad && v.abroad.Status.Final != nil:
		final := v.copyOf(v.abroad.Status.Final)
		if !ended(&final) {
			final.Phase = corev1.PodPhase(phase)
		}
		if final.Reason == reasonEvicted && slices.ContainsFunc(final.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil }) {
			return endOf(final, "", "") // nobody saw them end
		}
		return final
	case overAbroad && v.guest != nil:
		final := v.copyOf(&v.guest.Status)
		final.Phase = corev1.PodPhase(phase)
		return final
	case overAbroad:
		s := v.waiting(v.abroad.Status.Reason, v.abroad.Status.Message)
		s.Phase = corev1.PodPhase(phase)
		return s
	case v.guest != nil && (deleted || !passing(v.guest)):
		return v.copyOf(&v.guest.Status)
	case phase == v1alpha1.OffloadedPodRefused:
		reason := v.abroad.Status.Reason
		if reason == "" {
			reason = reasonRefused
		}
		message := v.peer + " refuses: " + v.abroad.Status.Message
		why, is := offloading.NodeDebugger(v.home)
		if !is || reason != reasonPodSecurity { // a level that lets it is the peer's to give
			return v.waiting(reason, message)
		}
		message += ": " + why
		s := v.waiting(reason, message)
		s.ContainerStatuses = nil
		for _, c := range v.home.Spec.Containers { // what kubectl debug -it shows of a pod that it waits for
			s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
		}
		return s
	case deleted:
		return v.home.Status
	case v.guest != nil && evictionOf(v.guest) != nil:
		s := v.waiting(reasonEvicting, v.peer+" evicts the pod: "+evictionOf(v.guest).Message)
		v.mergeDisruption(&s, v.guest.Status.Conditions)
		return s
	case v.guest != nil, v.home.Status.StartTime != nil:
		return v.waiting(reasonRemaking, v.peer+" makes the pod again")
	}
	return v.home.Status // asked just now
}

// passing reports that the guest at the peer ends but the pod does not: it was deleted or evicted there, and the peer will recreate it. Its
// end must not become the home pod's.
func passing(guest *corev1.Pod) bool { return guest.DeletionTimestamp != nil || ended(&guest.Status) }

// evictionOf is why the guest ends, nil when it was merely deleted: a kubelet's eviction, or the condition that the API server,
// controllers and the scheduler leave on a pod that they take away (KEP-3329). It only says what is under way: that the end is
// final the OffloadedPod tells, since of some of these a peer makes the pod again.
func evictionOf(guest *corev1.Pod) *corev1.PodCondition {
	if guest.Status.Reason == reasonEvicted {
		return &corev1.PodCondition{Reason: guest.Status.Reason, Message: guest.Status.Message}
	}
	return disruption(guest.Status.Conditions)
}

func disruption(conditions []corev1.PodCondition) *corev1.PodCondition {
	if c := condition(conditions, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return c
	}
	return nil
}

// condition is that of a type, nil when there is none.
func condition(all []corev1.PodCondition, of corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == of }); i >= 0 {
		return &all[i]
	}
	return nil
}

// mergeDisruption copies the condition DisruptionTarget from the guest, unless home itself is evicting the pod. When it is over, the home
// cluster's own controller resets it.
func (v view) mergeDisruption(s *corev1.PodStatus, guest []corev1.PodCondition) {
	if there := disruption(guest); there != nil && disruption(s.Conditions) == nil {
		c := *there
		c.ObservedGeneration, c.LastTransitionTime = v.home.Generation, metav1.Now()
		setCondition(s, c)
	}
}

// waiting is the home status with nothing ready and a reason.
func (v view) waiting(reason, message string) corev1.PodStatus {
	s := *v.home.Status.DeepCopy()
	if s.Phase == "" {
		s.Phase = corev1.PodPending
	}
	s.Reason, s.Message = reason, message
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Ready = false
	}
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		setCondition(&s, corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message,
			LastTransitionTime: metav1.Now()})
	}
	return s
}

// copyOf is the guest's status as it looks from home.
func (v view) copyOf(guest *corev1.PodStatus) corev1.PodStatus {
	s := *guest.DeepCopy()
	foreign := v.takeAddresses(&s)
	// Decided at home, and not to be changed (the API server refuses another QoS class).
	s.QOSClass = v.home.Status.QOSClass
	s.NominatedNodeName = v.home.Status.NominatedNodeName
	s.ResourceClaimStatuses = v.home.Status.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = v.home.Status.ExtendedResourceClaimStatus
	s.EphemeralContainerStatuses = v.debuggers(guest.EphemeralContainerStatuses)
	// Generations count the writes of another object. Before a kubelet has the guest, nobody observed anything.
	s.ObservedGeneration = v.home.Generation
	if guest.HostIP == "" && guest.StartTime == nil {
		s.ObservedGeneration = v.home.Status.ObservedGeneration
	}
	s.ContainerStatuses = known(s.ContainerStatuses, v.home.Spec.Containers)
	s.InitContainerStatuses = known(s.InitContainerStatuses, v.home.Spec.InitContainers)
	v.mergeConditions(&s)
	v.notePulls(&s)
	if !foreign.IsValid() {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionForeign })
	} else {
		setCondition(&s, corev1.PodCondition{Type: conditionForeign, Status: corev1.ConditionTrue, Reason: reasonForeign, LastTransitionTime: metav1.Now(),
			Message: fmt.Sprintf("%s says that the pod has the address %s, which is not in %s, the range of this cluster's pods there; it is not shown", v.peer, foreign, v.rangeOf(foreign))})
	}
	return s
}

// takeAddresses keeps those of the guest's addresses, one of each family, that are in the range that the peer may assign: with any other the peer
// could attract traffic of other pods. It returns the first that is not in it. Addresses of a family that the two clusters do not use, such as
// IPv6 where one has IPv4 only, are just left out.
func (v view) takeAddresses(s *corev1.PodStatus) (foreign netip.Addr) {
	told := s.PodIPs
	s.PodIPs, s.PodIP = nil, ""
	if !v.guests.IsValid() { // the link is made anew: what was seen by the former one holds until then
		s.PodIP, s.PodIPs, told = v.home.Status.PodIP, v.home.Status.PodIPs, nil
	}
	var had [2]netip.Addr // of IPv4, which comes first whatever is told, and of IPv6
	for _, ip := range told {
		a, err := netip.ParseAddr(ip.IP)
		a = a.Unmap()
		of, guests := &had[0], v.rangeOf(a)
		if a.Is6() {
			of = &had[1]
		}
		switch {
		case err != nil || !guests.IsValid():
		case guests.Contains(a) && !of.IsValid():
			*of = a
		case !guests.Contains(a) && !foreign.IsValid():
			foreign = a
		}
	}
	for _, a := range had {
		if had[0].IsValid() && a.IsValid() {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a.String()})
			s.PodIP = s.PodIPs[0].IP
		}
	}
	// Not before the kubelet there wrote one: what says nothing else about the pod is not worth a write here.
	assigned := s.HostIP != ""
	s.HostIP, s.HostIPs = "", nil
	if v.nodeIP.IsValid() && assigned {
		s.HostIP, s.HostIPs = v.nodeIP.String(), []corev1.HostIP{{IP: v.nodeIP.String()}}
	}
	return foreign
}

// rangeOf is the range of guests that has addresses of a's family.
func (v view) rangeOf(a netip.Addr) netip.Prefix {
	if a.Is6() {
		return v.guests6
	}
	return v.guests
}

// known keeps the statuses of home's containers, since the peer may have added others, and of their resources what home names: the peer
// bounds the scratch space of each guest, and whoever compares, as on a resize, would find what nobody asked for.
func known(statuses []corev1.ContainerStatus, containers []corev1.Container) (list []corev1.ContainerStatus) {
	for _, s := range statuses {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
		if i < 0 {
			continue
		}
		own := containers[i].Resources
		named(s.AllocatedResources, own.Requests)
		if s.Resources != nil {
			named(s.Resources.Requests, own.Requests)
			named(s.Resources.Limits, own.Limits)
		}
		list = append(list, s)
	}
	return list
}

// named leaves the scratch space out of a list when home's does not have it.
func named(list, home corev1.ResourceList) {
	if _, has := home[corev1.ResourceEphemeralStorage]; !has {
		delete(list, corev1.ResourceEphemeralStorage)
	}
}

// guestConditions are those a kubelet sets; every other one belongs to home.
var guestConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// passingConditions are those a kubelet takes away again.
var passingConditions = []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress}

// mergeConditions keeps the conditions of home and takes the kubelet's from the guest.
func (v view) mergeConditions(s *corev1.PodStatus) {
	guest := s.Conditions
	s.Conditions = slices.DeleteFunc(slices.Clone(v.home.Status.Conditions), func(c corev1.PodCondition) bool {
		return slices.Contains(passingConditions, c.Type) && condition(guest, c.Type) == nil
	})
	if no := v.refusal(v1alpha1.ConditionResizePending); no != nil {
		guest = append(slices.Clone(guest), corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
			Reason: no.Reason, Message: v.peer + ": " + no.Message, LastTransitionTime: no.LastTransitionTime})
	}
	v.mergeDisruption(s, guest)
	for _, c := range guest {
		switch {
		case slices.Contains(guestConditions, c.Type):
			c.ObservedGeneration = v.home.Generation
			if now := metav1.Now(); now.Before(&c.LastTransitionTime) {
				// The peer's clock is ahead; controllers here would wait for that time to come.
				c.LastTransitionTime = now
			}
			if c.Type == corev1.PodReady {
				c = v.reached(v.gated(c))
			}
			setCondition(s, c)
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && s.Reason == "":
			// Bound at home, but the peer finds no node for it: the columns of kubectl should say so.
			s.Reason, s.Message = c.Reason, v.peer+": "+c.Message
		}
	}
}

// refusal is the condition of the OffloadedPod by which the peer refuses a change of the pod that runs; nil when it does not.
func (v view) refusal(kind string) *metav1.Condition {
	if v.abroad == nil {
		return nil
	}
	return meta.FindStatusCondition(v.abroad.Status.Conditions, kind)
}

// debuggers are the states of the ephemeral containers of the home pod. Of those that the guest does not have, made anew
// or refused, the end that was seen stays, and a refusal is what they wait for.
func (v view) debuggers(guest []corev1.ContainerStatus) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for i := range v.home.Spec.EphemeralContainers {
		named := func(s corev1.ContainerStatus) bool { return s.Name == v.home.Spec.EphemeralContainers[i].Name }
		if at := slices.IndexFunc(guest, named); at >= 0 {
			all = append(all, guest[at])
			continue
		}
		if at := slices.IndexFunc(v.home.Status.EphemeralContainerStatuses, named); at >= 0 && v.home.Status.EphemeralContainerStatuses[at].State.Terminated != nil {
			all = append(all, v.home.Status.EphemeralContainerStatuses[at])
			continue
		}
		if no := v.refusal(v1alpha1.ConditionEphemeralContainersRefused); no != nil {
			c := &v.home.Spec.EphemeralContainers[i]
			all = append(all, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: no.Reason, Message: v.peer + " refuses: " + no.Message},
			}})
		}
	}
	return all
}

// gated adds the readiness gates of the home pod, which were not asked of the guest.
func (v view) gated(ready corev1.PodCondition) corev1.PodCondition {
	for _, gate := range v.home.Spec.ReadinessGates {
		if ready.Status != corev1.ConditionTrue {
			break
		}
		if c := condition(v.home.Status.Conditions, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			ready.Status, ready.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
			ready.Message = "the readiness gate " + string(gate.ConditionType) + " is not true"
		}
	}
	return ready
}

// reached is the guest's readiness as it is at home, where it means that requests may be sent.
func (v view) reached(ready corev1.PodCondition) corev1.PodCondition {
	if ready.Status == corev1.ConditionTrue && v.tunnel != "" {
		ready.Status, ready.Reason, ready.LastTransitionTime = corev1.ConditionFalse, reasonTunnel, metav1.Now()
		ready.Message = v.tunnel + "; the pod runs on at " + v.peer
	}
	return ready
}

// setCondition replaces the condition of that type, keeping the time of its last change unless it changes.
func setCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	old := condition(s.Conditions, c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

// unreachable is the status of a pod on a node that counts as NotReady: its pods are set to not Ready, so that services send them no requests.
// The node lifecycle controller does so only for nodes without a heartbeat, and this one has one.
func unreachable(s corev1.PodStatus, peer string, there presence.Presence) corev1.PodStatus {
	s.Conditions = slices.Clone(s.Conditions)
	c := condition(s.Conditions, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return s
	}
	c.Status, c.Reason, c.Message = corev1.ConditionFalse, absence(there), peer+" cannot be reached; the pod may run on there"
	if c.Reason == reasonSuspended {
		c.Message = peer + " went to sleep; the pod goes on when it is awake again"
	}
	c.LastTransitionTime = metav1.Now()
	return s
}

// endOf is the last status of a pod whose guest is gone, as a kubelet leaves it (TerminatePod in k8s.io/kubernetes/pkg/kubelet/status):
// every container has ended, but those that still waited for init containers wait for ever.
func endOf(s corev1.PodStatus, reason, message string) corev1.PodStatus {
	s = *s.DeepCopy()
	failed := len(s.ContainerStatuses) == 0
	started := s.ContainerStatuses
	if !initialized(&s) {
		started, failed = nil, true
	}
	for _, statuses := range [][]corev1.ContainerStatus{tried(s.InitContainerStatuses), started} {
		for i := range statuses {
			c := &statuses[i]
			if c.State.Terminated == nil {
				gone := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reasonUnknown, Message: "the container is gone; how it ended was not seen"}
				if c.State.Running != nil { // else it has no times
					gone.StartedAt, gone.FinishedAt = c.State.Running.StartedAt, metav1.Now()
				}
				c.State = corev1.ContainerState{Terminated: gone}
			}
			failed = failed || c.State.Terminated.ExitCode != 0
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range statuses {
			statuses[i].Ready, statuses[i].Started = false, new(bool)
		}
	}
	if !ended(&s) {
		s.Phase, s.Reason, s.Message = corev1.PodSucceeded, reason, message
		if failed {
			s.Phase = corev1.PodFailed
		}
	}
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		setCondition(&s, corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: metav1.Now()})
	}
	return s
}

// initialized reports whether the init containers have done their part.
func initialized(s *corev1.PodStatus) bool {
	if len(s.InitContainerStatuses) == 0 || slices.ContainsFunc(s.ContainerStatuses, wasTried) {
		return true
	}
	last := &s.InitContainerStatuses[len(s.InitContainerStatuses)-1]
	sidecar := last.State.Running != nil && last.Started != nil && *last.Started
	return sidecar || last.State.Terminated != nil && last.State.Terminated.ExitCode == 0
}

// tried are the init containers up to the last that was started, the first at least.
func tried(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	n := len(all)
	for n > 1 && !wasTried(all[n-1]) {
		n--
	}
	return all[:n]
}

func wasTried(c corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
}

// begun is the status of a pod with its containers as a kubelet shows them first, if none has shown any.
func begun(pod *corev1.Pod, s corev1.PodStatus) corev1.PodStatus {
	if len(s.ContainerStatuses)+len(s.InitContainerStatuses) > 0 {
		return s
	}
	reason := "ContainerCreating"
	if len(pod.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	waiting := func(containers []corev1.Container) (all []corev1.ContainerStatus) {
		for _, c := range containers {
			all = append(all, corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(bool),
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}})
		}
		return all
	}
	s.InitContainerStatuses, s.ContainerStatuses = waiting(pod.Spec.InitContainers), waiting(pod.Spec.Containers)
	return s
}
