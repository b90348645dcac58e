package virtualnode

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
)

// step is what one look at a pod asks for.
type step string

const (
	stepReport step = "report" // nothing to change; tell at home how it goes
	stepCreate step = "create" // ask the peer for it
	stepUpdate step = "update" // tell the peer what changed
	stepRemove step = "remove" // take the OffloadedPod away
	stepFinish step = "finish" // nothing runs abroad any more; let the home pod go
	stepWait   step = "wait"   // something is on its way out; its end comes as an event
)

// decide compares a pod at home with the OffloadedPod of its name abroad; either may be nil.
func decide(home *corev1.Pod, abroad *v1alpha1.OffloadedPod) step {
	leaving := abroad != nil && abroad.DeletionTimestamp != nil
	switch {
	case home == nil && (abroad == nil || leaving):
		return stepWait
	case home == nil:
		return stepRemove
	}

	ours := abroad != nil && abroad.Spec.HomeUID == home.UID
	switch deleted := home.DeletionTimestamp != nil; {
	case deleted && !ours:
		return stepFinish
	case deleted && (!leaving || graceOf(abroad) > graceWanted(home)):
		return stepRemove
	case deleted:
		return stepReport
	case abroad == nil && ended(&home.Status):
		return stepWait
	case abroad == nil:
		return stepCreate
	case leaving && ours:
		return stepReport
	case leaving:
		return stepWait
	case !ours:
		return stepRemove
	case ended(&home.Status) && !endedAbroad(abroad):
		return stepRemove // declared ended at home
	case !ended(&home.Status) && outdated(home, abroad):
		return stepUpdate
	}
	return stepReport
}

func ended(s *corev1.PodStatus) bool { return v1alpha1.Ended(s.Phase) }

func endedAbroad(o *v1alpha1.OffloadedPod) bool {
	return v1alpha1.Ended(corev1.PodPhase(o.Status.Phase))
}

func outdated(home *corev1.Pod, abroad *v1alpha1.OffloadedPod) bool {
	wanted := template(home)
	return !sameTemplate(&wanted, &abroad.Spec.Template)
}

// graceWanted is how long the containers of a home pod being deleted may take, in seconds.
func graceWanted(home *corev1.Pod) int64 {
	if s := home.DeletionGracePeriodSeconds; s != nil {
		return *s
	}
	return templateGrace(&home.Spec)
}

// graceOf is what the peer was told last.
func graceOf(abroad *v1alpha1.OffloadedPod) int64 {
	if s, err := strconv.ParseInt(abroad.Annotations[v1alpha1.AnnotationGrace], 10, 64); err == nil {
		return s
	}
	return templateGrace(&abroad.Spec.Template.Spec)
}

func templateGrace(spec *corev1.PodSpec) int64 {
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		return *s
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}
