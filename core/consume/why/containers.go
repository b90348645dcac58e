package why

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api"
)

// Reasons for which a container waits, as kubelets give them (k8s.io/kubernetes/pkg/kubelet/images, container and kuberuntime).
var (
	imageReasons  = []string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"}
	makingReasons = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError"}
	plainReasons  = []string{"", "ContainerCreating", "PodInitializing"}
)

const crashLoop = "CrashLoopBackOff"

// lately is how long ago a container was started anew for it to be worth a word of one that runs.
const lately = 10 * time.Minute

// inside is what the laptop that has the pod says of it, by its containers.
func (f *Facts) inside() (api.PodState, []api.Cause) {
	pod := f.Pod
	var failing, waiting, unready []api.Cause
	sort := func(c *api.Cause, state api.PodState) {
		switch {
		case c == nil:
		case state == api.PodFailing:
			failing = append(failing, *c)
		case state == api.PodNotReady:
			unready = append(unready, *c)
		default:
			waiting = append(waiting, *c)
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if done(pod, s) {
			continue
		}
		c, state := f.container(s)
		if s.State.Running != nil {
			c, state = f.about(api.CauseInitRuns, s), api.PodStarting
			c.Since = s.State.Running.StartedAt.Time
		}
		if c != nil {
			sort(c, state)
			break // the others wait for it
		}
	}
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if len(failing)+len(waiting) > 0 && s.State.Waiting != nil && slices.Contains(plainReasons, s.State.Waiting.Reason) {
			continue // as all do while one is in the way
		}
		sort(f.container(s))
	}
	switch {
	case len(failing) > 0:
		return api.PodFailing, append(failing, unready...)
	case len(waiting) > 0:
		return f.starting(waiting)
	case len(unready) > 0:
		return api.PodNotReady, unready
	}
	ready := podCondition(pod, corev1.PodReady)
	if len(pod.Status.ContainerStatuses) == 0 || ready == nil {
		return f.starting(nil)
	}
	if ready.Status != corev1.ConditionTrue {
		c := api.Cause{Reason: api.CauseOther, Laptop: f.Laptop(), Who: f.place().owner(), Detail: ready.Reason, Said: ready.Message, Since: ready.LastTransitionTime.Time}
		if ready.Reason == "ReadinessGatesNotReady" {
			c.Reason, c.Who = api.CauseGate, api.WhoYou
		}
		return api.PodNotReady, []api.Cause{c}
	}
	return api.PodReady, append([]api.Cause{{Reason: api.CauseRuns, Laptop: f.Laptop(), Who: api.WhoNobody, Since: ready.LastTransitionTime.Time}}, f.restarted()...)
}

// done reports whether an init container is in nobody's way.
func done(pod *corev1.Pod, s *corev1.ContainerStatus) bool {
	if t := s.State.Terminated; t != nil {
		return t.ExitCode == 0
	}
	if s.State.Running == nil || s.Started == nil || !*s.Started {
		return false
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { // a sidecar
		return c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// starting is about one whose containers are not made yet: what its kubelet tells in events says more.
func (f *Facts) starting(waiting []api.Cause) (api.PodState, []api.Cause) {
	at, who := f.Laptop(), f.place().owner()
	if len(waiting) > 0 && waiting[0].Reason != api.CauseStarts {
		return api.PodStarting, waiting
	}
	// Nothing that was in the way before the last step that worked is in the way now.
	begun := time.Time{}
	if e := f.latest("Pulling", "Pulled", "Created"); e != nil {
		begun = lastTime(e)
	}
	failure := f.latest("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady")
	if failure != nil && !lastTime(failure).Before(begun) {
		c := api.Cause{Reason: api.CauseVolume, Laptop: at, Who: who, Detail: failure.Reason, Said: failure.Message, Since: failure.FirstTimestamp.Time}
		if failure.Reason == "FailedCreatePodSandBox" || failure.Reason == "NetworkNotReady" {
			c.Reason = api.CauseSandbox
		}
		if c.Reason == api.CauseVolume {
			c.Who = api.WhoYou // it is what the pod refers to
		}
		return api.PodFailing, []api.Cause{c}
	}
	if t := f.Transfer; t != nil {
		return api.PodStarting, []api.Cause{{Reason: api.CauseImagePulling, Laptop: at, Who: api.WhoNobody, Since: t.Began, Names: []string{t.Image}, Transfer: t}}
	}
	pulling, pulled := f.latest("Pulling"), f.latest("Pulled", "Failed")
	if pulling != nil && (pulled == nil || lastTime(pulling).After(lastTime(pulled))) {
		return api.PodStarting, []api.Cause{{Reason: api.CauseImagePulling, Laptop: at, Who: api.WhoNobody, Since: lastTime(pulling), Said: pulling.Message}}
	}
	return api.PodStarting, []api.Cause{{Reason: api.CauseStarts, Laptop: at, Who: api.WhoNobody, Since: f.Pod.CreationTimestamp.Time}}
}

func (f *Facts) about(reason api.CauseReason, s *corev1.ContainerStatus) *api.Cause {
	return &api.Cause{Reason: reason, Laptop: f.Laptop(), Who: api.WhoYou, Container: s.Name, Restarts: s.RestartCount}
}

// container is what is in the way of one; nil when nothing is.
func (f *Facts) container(s *corev1.ContainerStatus) (*api.Cause, api.PodState) {
	switch w := s.State.Waiting; {
	case w != nil && slices.Contains(plainReasons, w.Reason):
		c := f.about(api.CauseStarts, s)
		c.Who = api.WhoNobody
		return c, api.PodStarting
	case w != nil:
		c := f.about(api.CauseOther, s)
		c.Detail, c.Said = w.Reason, w.Message
		switch {
		case slices.Contains(imageReasons, w.Reason):
			c.Reason, c.Names = api.CauseImage, []string{s.Image}
		case slices.Contains(makingReasons, w.Reason):
			c.Reason = api.CauseConfig
		case w.Reason == crashLoop:
			c.Reason, c.Said = api.CauseCrashes, ""
			exit(c, s.LastTerminationState.Terminated)
		}
		return c, api.PodFailing
	case s.State.Terminated != nil:
		c := f.about(api.CauseExited, s)
		exit(c, s.State.Terminated)
		if s.State.Terminated.ExitCode == 0 && f.Pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			return nil, "" // the others go on
		}
		if s.RestartCount > 0 && f.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			c.Reason = api.CauseCrashes // a moment before the next start
		}
		return c, api.PodFailing
	case s.State.Running != nil && !s.Ready:
		c := f.about(api.CauseProbe, s)
		c.Since = s.State.Running.StartedAt.Time
		if e := f.latest("Unhealthy"); e != nil && lastTime(e).After(c.Since) {
			c.Said = e.Message
		}
		return c, api.PodNotReady
	}
	return nil, ""
}

// exit tells how a container ended.
func exit(c *api.Cause, t *corev1.ContainerStateTerminated) {
	if t == nil {
		return
	}
	code := t.ExitCode
	c.ExitCode, c.Detail, c.Since, c.Said = &code, t.Reason, t.FinishedAt.Time, t.Message
}

// crashed are the containers that ended badly, of a pod that has ended.
func (f *Facts) crashed() (causes []api.Cause) {
	for _, s := range slices.Concat(f.Pod.Status.InitContainerStatuses, f.Pod.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			c := f.about(api.CauseExited, &s)
			exit(c, t)
			causes = append(causes, *c)
		}
	}
	return causes
}

// restarted are the containers of one that runs which were started anew a short while ago.
func (f *Facts) restarted() (causes []api.Cause) {
	for i := range f.Pod.Status.ContainerStatuses {
		s := &f.Pod.Status.ContainerStatuses[i]
		if t := s.LastTerminationState.Terminated; t != nil && s.RestartCount > 0 && f.Now.Sub(t.FinishedAt.Time) < lately {
			c := f.about(api.CauseRestarted, s)
			exit(c, t)
			causes = append(causes, *c)
		}
	}
	return causes
}
