package why

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutesAgo int) metav1.Time {
	return metav1.NewTime(now.Add(-time.Duration(minutesAgo) * time.Minute))
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func node(name, cpu string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = amounts(cpu, "4Gi")
	n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("10")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

var peerTaint = corev1.Taint{Key: v1alpha1.TaintPeer, Value: "bob", Effect: corev1.TaintEffectNoSchedule}

// world is alice, connected with bob, and a pod of hers in an offloaded namespace that nobody has yet.
func world() *Facts {
	bob := node("kith-bob", "1")
	bob.Labels[v1alpha1.LabelPeer], bob.Spec.Taints = "bob", []corev1.Taint{peerTaint}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", CreationTimestamp: at(5)}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: amounts("500m", "64Mi")}}}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}
	pod.Status.Phase = corev1.PodPending
	return &Facts{
		Now: now, Here: "alice", Pod: pod,
		Offloading: &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote}},
		Places: []Place{
			{Laptop: "alice", Node: node("alice", "4"), Used: amounts("1", "1Gi")},
			{Laptop: "bob", Peer: true, Node: bob, There: presence.Presence{State: presence.Reachable}, Tunnel: true, Permit: offloading.Granted},
		},
	}
}

func (f *Facts) full() {
	for i := range f.Places {
		f.Places[i].Used = amounts("3600m", "1Gi")
	}
}

func (f *Facts) bound(node string) *corev1.PodStatus {
	f.Pod.Spec.NodeName = node
	f.Pod.Status.StartTime = &metav1.Time{Time: at(4).Time}
	return &f.Pod.Status
}

// runs has the pod run on a node, with its one container in a state.
func (f *Facts) runs(node string, s corev1.ContainerStatus) *corev1.PodStatus {
	status := f.bound(node)
	s.Name, s.Image = "main", "web:1"
	status.Phase = corev1.PodRunning
	ready := corev1.ConditionFalse
	if s.Ready {
		ready = corev1.ConditionTrue
	}
	status.ContainerStatuses = []corev1.ContainerStatus{s}
	status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: at(3)})
	return status
}

func waits(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func lastWords(code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: "the last words", FinishedAt: at(1)}
}

func running(ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(3)}}}
}

func (f *Facts) event(reason string, minutesAgo int) {
	f.Events = append(f.Events, corev1.Event{Reason: reason, Message: "words of " + reason, LastTimestamp: at(minutesAgo)})
}

func (f *Facts) answered(reason string) {
	f.Abroad = &v1alpha1.OffloadedPod{Spec: v1alpha1.OffloadedPodSpec{HomeUID: f.Pod.UID}}
	f.Abroad.Status.Phase, f.Abroad.Status.Reason, f.Abroad.Status.Message = v1alpha1.OffloadedPodRefused, reason, "words of the peer"
}

// words writes causes shortly: "NoRoom@alice(you) cpu 500m of 400m/4".
func words(state api.PodState, causes []api.Cause) string {
	parts := []string{string(state)}
	for _, c := range causes {
		text := string(c.Reason)
		if c.Laptop != "" {
			text += "@" + c.Laptop
		}
		text += "(" + string(c.Who) + ")"
		for _, word := range append([]string{c.Container, c.Detail}, c.Names...) {
			if word != "" {
				text += " " + word
			}
		}
		for _, s := range c.Short {
			text += " " + s.Resource + " " + s.Asked + " of " + s.Free + "/" + s.Of
		}
		if c.Said != "" {
			text += " “" + c.Said + "”"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func TestWhyAPodIsWhereItIs(t *testing.T) {
	for what, c := range map[string]struct {
		given func(f *Facts)
		want  string
	}{
		// Nobody has it.
		"just made": {func(f *Facts) {}, "waiting; NotScheduledYet@alice(nobody)"},
		"no room anywhere": {func(f *Facts) { f.full(); f.Places[1].Used = amounts("800m", "0") },
			"waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoRoom@bob(you) cpu 500m of 200m/1"},
		"no room, and more is used than there is": {func(f *Facts) { f.full() }, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoRoom@bob(you) cpu 500m of 0/1"},
		"no room anywhere, and more is asked for": {func(f *Facts) {
			f.full()
			f.Growing = []Growing{{Policy: "family", State: v1alpha1.SeekingGrowing, Said: "bob is asked for it", Peers: []string{"bob"}}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoRoom@bob(you) cpu 500m of 0/1; RoomAsked(nobody) Growing family “bob is asked for it”"},
		"no room anywhere, and no more is asked for": {func(f *Facts) {
			f.full()
			f.Growing = []Growing{{Policy: "family", State: v1alpha1.SeekingFull, Said: "not before noon", Peers: []string{"bob"}}, {Policy: "others", State: v1alpha1.SeekingGrowing, Peers: []string{"carol"}}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoRoom@bob(you) cpu 500m of 0/1; RoomAsked(you) Full family “not before noon”"},
		"may not go where more is asked for": {func(f *Facts) {
			f.full()
			f.Places[1].Permit, f.Offloading.Spec.Peers = offloading.Refused, []string{"carol"}
			f.Growing = []Growing{{Policy: "family", State: v1alpha1.SeekingGrowing, Peers: []string{"bob"}}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NotThisPeer@bob(you) carol"},
		"no room for so many pods": {func(f *Facts) {
			f.full()
			f.Places[1].Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoRoom@bob(you) pods 1 of 0/10"},
		"no room at home, not offloaded": {func(f *Facts) { f.full(); f.Offloading = nil; f.Places[1].Permit = offloading.Withdrawn },
			"waiting; NoRoom@alice(you) cpu 500m of 400m/4; NotOffloaded(you) bob"},
		"no room at home, kept there": {func(f *Facts) {
			f.full()
			f.Places[1].Permit, f.Offloading.Spec.Strategy = offloading.Refused, v1alpha1.StrategyLocal
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; StaysHome@bob(you)"},
		"no room at home, and for another peer": {func(f *Facts) {
			f.full()
			f.Places[1].Permit, f.Offloading.Spec.Peers = offloading.Refused, []string{"carol"}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NotThisPeer@bob(you) carol"},
		"no room at home, and nothing left to spend": {func(f *Facts) {
			f.full()
			f.Places[1].Permit, f.Offloading.Spec.Budget = offloading.Refused, &v1alpha1.NamespaceBudget{Amount: "5 EUR", Period: v1alpha1.BudgetDay}
			f.Offloading.Status.Budget = &v1alpha1.BudgetStatus{
				NamespaceBudget: *f.Offloading.Spec.Budget, Until: metav1.NewTime(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)),
				Closed: []v1alpha1.ClosedPeer{{Peer: "bob", Reason: v1alpha1.ClosedSpent}},
			}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; Budget@bob(you) spent 5 EUR/day 2026-12-01T00:00:00Z"},
		"no room at home, and a peer priced in another currency": {func(f *Facts) {
			f.full()
			f.Places[1].Permit, f.Offloading.Spec.Budget = offloading.Refused, &v1alpha1.NamespaceBudget{Amount: "5 EUR", Period: v1alpha1.BudgetDay}
			f.Offloading.Status.Budget = &v1alpha1.BudgetStatus{NamespaceBudget: *f.Offloading.Spec.Budget, Closed: []v1alpha1.ClosedPeer{{Peer: "bob", Reason: v1alpha1.ClosedOtherCurrency}}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; Budget@bob(you) otherCurrency 5 EUR/day 0001-01-01T00:00:00Z"},
		"no room at home, and coming home": {func(f *Facts) { f.full(); f.Places[1].Permit = offloading.Ending },
			"waiting; NoRoom@alice(you) cpu 500m of 400m/4; ComesHome@bob(you)"},
		"no room at home, no peer": {func(f *Facts) { f.full(); f.Places = f.Places[:1]; f.Strangers = []string{"carol"} },
			"waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoPeer(you) carol"},
		"no room at home, older than the offloading": {func(f *Facts) { f.full(); f.Pod.Spec.Tolerations = nil },
			"waiting; NoRoom@alice(you) cpu 500m of 400m/4; MadeBefore@bob(you)"},
		"only abroad, with a volume": {func(f *Facts) {
			f.Offloading.Spec.Strategy, f.Pod.Spec.Tolerations, f.Pod.Spec.NodeSelector = v1alpha1.StrategyRemote, nil, map[string]string{v1alpha1.LabelPeer: "bob"}
			f.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, "waiting; OnlyAbroad@alice(you); VolumeAtHome@bob(you)"},
		"only abroad, with a device": {func(f *Facts) {
			f.Offloading.Spec.Strategy, f.Pod.Spec.Tolerations, f.Pod.Spec.NodeSelector = v1alpha1.StrategyRemote, nil, map[string]string{v1alpha1.LabelPeer: "bob"}
			f.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}, "waiting; OnlyAbroad@alice(you); DeviceAtHome@bob(you) gpu"},
		"no room at home, with a device and a volume that may be anywhere": {func(f *Facts) {
			f.full()
			f.Pod.Spec.Tolerations, f.Offloading.Spec.Volumes = nil, v1alpha1.VolumesAnywhere
			f.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			f.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; DeviceAtHome@bob(you) gpu"},
		"no room at home, the peer asleep": {func(f *Facts) {
			f.full()
			f.Places[1].There = presence.Presence{State: presence.Unreachable, Why: "went to sleep"}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; PeerUnreachable@bob(peer) “went to sleep”"},
		"no room at home, the peer cordoned": {func(f *Facts) {
			f.full()
			f.Places[1].Node.Spec.Taints = append(f.Places[1].Node.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintClosed, Value: "cordoned", Effect: corev1.TaintEffectNoSchedule})
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; Closed@bob(peer) cordoned"},
		"no network to the peer": {func(f *Facts) {
			f.full()
			f.Places[1].Node.Spec.Taints = append(f.Places[1].Node.Spec.Taints, corev1.Taint{Key: v1alpha1.LabelNetwork, Value: v1alpha1.WithoutNetwork, Effect: corev1.TaintEffectNoSchedule})
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; NoNetwork@bob(you)"},
		"cordoned, and tainted": {func(f *Facts) {
			f.Places[0].Node.Spec.Unschedulable = true
			f.Places[1].Node.Spec.Taints = append(f.Places[1].Node.Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
		}, "waiting; Cordoned@alice(you); Tainted@bob(peer) gpu"},
		"a taint that is a wish": {func(f *Facts) {
			f.Places[0].Node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, "waiting; NotScheduledYet@alice(nobody)"},
		"wants another node": {func(f *Facts) { f.Pod.Spec.NodeSelector = map[string]string{"disk": "fast"} },
			"waiting; NotSelected@alice(you) disk=fast; NotSelected@bob(you) disk=fast"},
		"only abroad, no room there": {func(f *Facts) {
			f.Offloading.Spec.Strategy = v1alpha1.StrategyRemote
			f.Pod.Spec.NodeSelector, f.Places[1].Used = map[string]string{v1alpha1.LabelPeer: "bob"}, amounts("900m", "0")
		}, "waiting; OnlyAbroad@alice(you); NoRoom@bob(you) cpu 500m of 100m/1"},
		"avoids who refused one like it": {func(f *Facts) {
			f.Pod.Spec.NodeSelector, f.Places[1].Avoided = map[string]string{corev1.LabelHostname: "alice"}, true
			f.Places[0].Used = amounts("4", "0")
		}, "waiting; NoRoom@alice(you) cpu 500m of 0/4; Avoided@bob(peer)"},
		"home not ready": {func(f *Facts) {
			f.Places = f.Places[:1]
			f.Places[0].Node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no network"}
		}, "waiting; NodeNotReady@alice(you) KubeletNotReady “no network”; NoPeer(you)"},
		"gated":    {func(f *Facts) { f.full(); f.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }, "waiting; SchedulingGated(you) quota"},
		"tethered": {func(f *Facts) { f.full(); f.Tethered = true }, "waiting; Tethered@alice(you)"},
		"a claim that is not there, and one that waits for the pod": {func(f *Facts) {
			f.Claims = []Claim{{Name: "data"}, {Name: "logs", Claim: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new(string)}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}}}
			f.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no claim"}}
		}, "waiting; ClaimMissing(you) data"},
		"a claim whose volume is being moved": {func(f *Facts) {
			moves := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}}
			moves.Annotations = map[string]string{v1alpha1.AnnotationMove: `{"phase":"Stopped","to":"kith-bob"}`}
			f.Claims = []Claim{{Name: "data", Claim: moves}}
		}, "waiting; VolumeMoves(nobody) bob data"},
		"a claim that no volume is made for": {func(f *Facts) {
			f.Claims = []Claim{{Name: "logs", Claim: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}}}
			f.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "unbound"}}
		}, "waiting; Scheduler(you) Unschedulable “unbound”; ClaimPending(you) Pending logs"},
		"a volume at home, where there is no room": {func(f *Facts) {
			f.full()
			v := &corev1.PersistentVolume{}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"alice"}}}}}}}
			f.Claims = []Claim{{Name: "data", Claim: &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}, Volume: v}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; VolumeElsewhere@bob(you) data"},
		"a class of storage that neither home has nor bob shares": {func(f *Facts) {
			f.Places[1].Grants = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
			f.Claims = []Claim{{Name: "data", Claim: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("kith-fast")}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}, Movable: true, Class: "fast"}}
		}, "waiting; VolumeClass@alice(you) fast data; VolumeClass@bob(you) fast data"},
		"storage that bob does not share, and no room at home": {func(f *Facts) {
			f.full()
			f.Claims = []Claim{{Name: "data", Claim: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("kith-fast")}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}, Movable: true, Home: true}}
		}, "waiting; NoRoom@alice(you) cpu 500m of 400m/4; VolumeClass@bob(you) data"},
		"a volume at another peer": {func(f *Facts) {
			v := &corev1.PersistentVolume{}
			v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.StorageProvisioner, VolumeAttributes: map[string]string{"peer": "carol"}}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpIn, Values: []string{"carol"}}}}}}}
			f.Claims = []Claim{{Name: "data", Claim: &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}, Volume: v}}
		}, "waiting; VolumeElsewhere@alice(you) carol data; VolumeElsewhere@bob(you) carol data"},
		"something that only the scheduler knows": {func(f *Facts) {
			f.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes"}}
		}, "waiting; Scheduler(you) Unschedulable “0/2 nodes”"},

		// A peer has it.
		"on its way": {func(f *Facts) { f.bound("kith-bob").StartTime = nil }, "starting; Asking@bob(nobody)"},
		"a Secret that it needs is missing": {func(f *Facts) { f.bound("kith-bob").StartTime = nil; f.event("OffloadFailed", 1) },
			"failing; NotSent@bob(you) “words of OffloadFailed”"},
		"no namespace there": {func(f *Facts) {
			f.bound("kith-bob").StartTime = nil
			f.TwinRefused = &metav1.Condition{Reason: "Refused", Message: "the name is reserved"}
		}, "refused; NamespaceRefused@bob(you) Refused “the name is reserved”"},
		"more than the contract": {func(f *Facts) {
			f.bound("kith-bob")
			f.answered(RefusedContract)
			f.Places[1].Used = amounts("800m", "0")
		}, "refused; Refused@bob(you) ContractExceeded cpu 500m of 200m/1 “words of the peer”"},
		"against its level": {func(f *Facts) { f.bound("kith-bob"); f.answered("PodSecurity") }, "refused; Refused@bob(peer) PodSecurity “words of the peer”"},
		"the answer was to another of that name": {func(f *Facts) {
			f.bound("kith-bob").StartTime = nil
			f.answered("PodSecurity")
			f.Abroad.Spec.HomeUID = "u0"
		}, "starting; Starts@bob(nobody)"},
		"refused, and the peer says no more": {func(f *Facts) {
			s := f.bound("kith-bob")
			s.StartTime, s.Reason, s.Message = nil, "ImageNotAllowed", "bob refuses: no such image"
		}, "refused; Refused@bob(peer) ImageNotAllowed “bob refuses: no such image”"},
		"no node of its own": {func(f *Facts) {
			s := f.bound("kith-bob")
			s.Reason, s.Message = corev1.PodReasonUnschedulable, "bob: 0/1 nodes"
		}, "refused; UnschedulableThere@bob(peer) “bob: 0/1 nodes”"},
		"lost there":         {func(f *Facts) { f.bound("kith-bob").Reason = "Remaking" }, "starting; Remaking@bob(nobody)"},
		"evicted just there": {func(f *Facts) { f.bound("kith-bob").Reason = "Evicting" }, "failing; Evicted@bob(nobody)"},
		"the peer is gone": {func(f *Facts) {
			f.runs("kith-bob", running(true))
			f.Places[1].There = presence.Presence{State: presence.Unreachable, Since: at(2).Time, Why: "no answer"}
		}, "unknown; PeerUnreachable@bob(peer) “no answer”"},
		"the peer is gone, and it crashed before": {func(f *Facts) {
			s := waits("CrashLoopBackOff", "")
			s.LastTerminationState.Terminated = lastWords(3, "Error")
			f.runs("kith-bob", s)
			f.Places[1].There = presence.Presence{State: presence.Unreachable, Why: "no answer"}
		}, "unknown; PeerUnreachable@bob(peer) “no answer”; Crashes@bob(you) main Error “the last words”"},
		"refused, and the peer is gone": {func(f *Facts) {
			f.bound("kith-bob")
			f.answered("PodSecurity")
			f.Places[1].There = presence.Presence{State: presence.Unreachable, Why: "no answer"}
		}, "refused; Refused@bob(peer) PodSecurity “words of the peer”; PeerUnreachable@bob(peer) “no answer”"},
		"the peer is gone, as its status says": {func(f *Facts) {
			f.runs("kith-bob", running(true)).Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PeerUnreachable"}
			f.Places[1].There = presence.Presence{State: presence.Unreachable, Why: "no answer"}
		}, "unknown; PeerUnreachable@bob(peer) “no answer”"},
		"the tunnel is down": {func(f *Facts) { f.runs("kith-bob", running(true)); f.Places[1].Tunnel = false }, "notReady; TunnelDown@bob(you)"},
		"runs there":         {func(f *Facts) { f.runs("kith-bob", running(true)) }, "ready; Runs@bob(nobody)"},
		"an image that is nowhere": {func(f *Facts) { f.runs("kith-bob", waits("ImagePullBackOff", "not found")) },
			"failing; ImageNotPulled@bob(you) main ImagePullBackOff web:1 “not found”"},
		"takes its image from here": {func(f *Facts) {
			f.runs("kith-bob", waits("ContainerCreating", ""))
			f.event("Pulling", 2)
			f.event("Pulled", 1) // of another container
			f.Transfer = &api.ImageTransfer{Image: "web:1", Sent: 1, Size: 2}
		}, "starting; ImagePulling@bob(nobody) web:1"},
		"took another's, and runs": {func(f *Facts) { f.runs("kith-bob", running(true)); f.Transfer = &api.ImageTransfer{} }, "ready; Runs@bob(nobody)"},

		// Home has it.
		"runs here":      {func(f *Facts) { f.runs("alice", running(true)) }, "ready; Runs@alice(nobody)"},
		"gets its image": {func(f *Facts) { f.runs("alice", waits("ContainerCreating", "")); f.event("Pulling", 1) }, "starting; ImagePulling@alice(nobody) “words of Pulling”"},
		"has its image": {func(f *Facts) {
			f.runs("alice", waits("ContainerCreating", ""))
			f.event("Pulling", 2)
			f.event("Pulled", 1)
		}, "starting; Starts@alice(nobody)"},
		"a volume is missing": {func(f *Facts) { f.runs("alice", waits("ContainerCreating", "")); f.event("FailedMount", 1) }, "failing; VolumeNotMounted@alice(you) FailedMount “words of FailedMount”"},
		"a volume was missing": {func(f *Facts) {
			f.runs("alice", waits("ContainerCreating", ""))
			f.event("FailedMount", 2)
			f.event("Pulling", 1)
		}, "starting; ImagePulling@alice(nobody) “words of Pulling”"},
		"no sandbox":                  {func(f *Facts) { f.runs("alice", waits("ContainerCreating", "")); f.event("FailedCreatePodSandBox", 1) }, "failing; SandboxNotMade@alice(you) FailedCreatePodSandBox “words of FailedCreatePodSandBox”"},
		"refers to nothing":           {func(f *Facts) { f.runs("alice", waits("CreateContainerConfigError", "no secret")) }, "failing; ContainerNotMade@alice(you) main CreateContainerConfigError “no secret”"},
		"waits for what is not known": {func(f *Facts) { f.runs("alice", waits("Whatever", "some words")) }, "failing; Other@alice(you) main Whatever “some words”"},
		"crashes": {func(f *Facts) {
			s := waits("CrashLoopBackOff", "back-off")
			s.LastTerminationState.Terminated, s.RestartCount = lastWords(137, "OOMKilled"), 4
			f.runs("alice", s)
		}, "failing; Crashes@alice(you) main OOMKilled “the last words”"},
		"a guest crashes": {func(f *Facts) {
			s := waits("CrashLoopBackOff", "back-off")
			s.LastTerminationState.Terminated = lastWords(1, "Error")
			f.runs("alice", s)
			f.Guest = true
		}, "failing; Crashes@alice(home) main Error"},
		"just ended": {func(f *Facts) {
			f.runs("alice", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: lastWords(1, "Error")}})
		}, "failing; Exited@alice(you) main Error “the last words”"},
		"ended once more": {func(f *Facts) {
			f.runs("alice", corev1.ContainerStatus{RestartCount: 2, State: corev1.ContainerState{Terminated: lastWords(1, "Error")}})
		}, "failing; Crashes@alice(you) main Error “the last words”"},
		"is not ready":         {func(f *Facts) { f.runs("alice", running(false)); f.event("Unhealthy", 1) }, "notReady; ProbeFails@alice(you) main “words of Unhealthy”"},
		"a guest is not ready": {func(f *Facts) { f.runs("alice", running(false)); f.event("Unhealthy", 1); f.Guest = true }, "notReady; ProbeFails@alice(home) main"},
		"ran on after a crash": {func(f *Facts) {
			s := running(true)
			s.LastTerminationState.Terminated, s.RestartCount = lastWords(2, "Error"), 1
			f.runs("alice", s)
		}, "ready; Runs@alice(nobody); Restarted@alice(you) main Error “the last words”"},
		"an init container runs": {func(f *Facts) {
			f.runs("alice", waits("PodInitializing", "")).InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, {Name: "second", State: waits("PodInitializing", "").State}}
		}, "starting; InitContainerRuns@alice(you) first"},
		"an init container crashes": {func(f *Facts) {
			init := waits("CrashLoopBackOff", "")
			init.Name, init.LastTerminationState.Terminated = "first", lastWords(1, "Error")
			f.runs("alice", waits("PodInitializing", "")).InitContainerStatuses = []corev1.ContainerStatus{init}
		}, "failing; Crashes@alice(you) first Error “the last words”"},
		"a sidecar runs": {func(f *Facts) {
			f.Pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			f.runs("alice", running(true)).InitContainerStatuses = []corev1.ContainerStatus{{Name: "side", Started: new(true), State: running(true).State}}
		}, "ready; Runs@alice(nobody)"},
		"its readiness gate": {func(f *Facts) {
			f.runs("alice", running(true)).Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "one is not true"}
		}, "notReady; ReadinessGate@alice(you) ReadinessGatesNotReady “one is not true”"},
		"its node is gone": {func(f *Facts) {
			f.runs("alice", running(true))
			f.Places[0].Node.Status.Conditions[0].Status = corev1.ConditionUnknown
		}, "unknown; NodeNotReady@alice(you)"},

		// It is over.
		"done": {func(f *Facts) { f.bound("kith-bob").Phase = corev1.PodSucceeded }, "done; Done@bob(nobody)"},
		"failed": {func(f *Facts) {
			f.runs("alice", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: lastWords(7, "Error")}}).Phase = corev1.PodFailed
		}, "failed; Exited@alice(you) main Error “the last words”"},
		"was evicted": {func(f *Facts) {
			s := f.bound("kith-bob")
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", "low on disk"
		}, "failed; Evicted@bob(peer) Evicted “low on disk”"},
		"was refused for good": {func(f *Facts) {
			s := f.bound("kith-bob")
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "PodSecurity", "hostPath"
		}, "failed; Refused@bob(peer) PodSecurity “hostPath”"},
		"is lost for good": {func(f *Facts) {
			s := f.bound("kith-bob")
			s.Phase, s.Reason = corev1.PodFailed, "LostByPeer"
		}, "failed; Lost@bob(peer) LostByPeer"},
		"was not admitted": {func(f *Facts) {
			s := f.bound("alice")
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "OutOfcpu", "no cpu"
		}, "failed; Rejected@alice(you) OutOfcpu “no cpu”"},
		"deleted, at a peer that is gone": {func(f *Facts) {
			f.runs("kith-bob", running(true))
			f.Pod.DeletionTimestamp = &metav1.Time{Time: at(1).Time}
			f.Places[1].There = presence.Presence{State: presence.Unreachable, Why: "no answer"}
		}, "ending; Deleted@bob(nobody); PeerUnreachable@bob(peer) “no answer”"},
		"deleted, and held": {func(f *Facts) {
			f.runs("alice", running(true))
			f.Pod.DeletionTimestamp, f.Pod.Finalizers = &metav1.Time{Time: at(1).Time}, []string{"example.org/hold"}
		}, "ending; Deleted@alice(you) example.org/hold"},
	} {
		f := world()
		c.given(f)
		if got := words(Of(f)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, c.want)
		}
	}
}
