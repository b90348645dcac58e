package virtualnode

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
)

func running() corev1.PodStatus {
	start := metav1.Now()
	return corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.71.0.7", PodIPs: []corev1.PodIP{{IP: "10.71.0.7"}, {IP: "fd00::7"}},
		HostIP: "192.168.1.9", HostIPs: []corev1.HostIP{{IP: "192.168.1.9"}}, StartTime: &start,
		QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "web", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}}},
			{Name: "of-the-peer", Ready: true},
		},
	}
}

func testView(home *corev1.Pod, guest *corev1.Pod, offloaded ...offloadedOption) view {
	return view{home: home, abroad: asked(offloaded...), guest: guest, peer: "bob",
		nodeIP: netip.MustParseAddr("10.42.255.1"), guests: netip.MustParsePrefix("10.71.0.0/24")}
}

func readiness(s corev1.PodStatus) corev1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

func refused(o *v1alpha1.OffloadedPod) {
	o.Status = v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodRefused, Reason: "QuotaExceeded", Message: "4 cpu asked, 2 left"}
}

func finally(ph v1alpha1.OffloadedPodPhase, s *corev1.PodStatus) offloadedOption {
	return func(o *v1alpha1.OffloadedPod) { o.Status.Phase, o.Status.Final = ph, s }
}

func TestStatusOfRunningGuest(t *testing.T) {
	home := homePod(func(p *corev1.Pod) {
		p.Generation = 3
		p.Status.QOSClass = corev1.PodQOSBestEffort
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "AtHome"},
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		}
	})
	v := testView(home, &corev1.Pod{Status: running()})
	got := statusOf(v)
	switch {
	case got.Phase != corev1.PodRunning, readiness(got) != corev1.ConditionTrue:
		t.Errorf("phase %s, ready %s", got.Phase, readiness(got))
	case got.PodIP != "10.71.0.7" || len(got.PodIPs) != 1 || got.PodIPs[0].IP != "10.71.0.7":
		t.Errorf("pod addresses %s %v", got.PodIP, got.PodIPs)
	case got.HostIP != "10.42.255.1" || len(got.HostIPs) != 1:
		t.Errorf("host addresses %s %v", got.HostIP, got.HostIPs)
	case got.QOSClass != corev1.PodQOSBestEffort || got.ObservedGeneration != 3:
		t.Errorf("qos class %s, generation %d: those of home were expected", got.QOSClass, got.ObservedGeneration)
	case len(got.ContainerStatuses) != 1:
		t.Errorf("containers %v", got.ContainerStatuses)
	case got.Conditions[0].Reason != "AtHome" || got.Conditions[1].Type != corev1.DisruptionTarget:
		t.Errorf("home's own conditions are lost: %v", got.Conditions)
	}
}

func TestStatusPhases(t *testing.T) {
	succeeded := running()
	succeeded.Phase = corev1.PodSucceeded
	wasRunning := func(p *corev1.Pod) { p.Status = running() }
	guest := func(options ...podOption) *corev1.Pod {
		g := &corev1.Pod{Status: running()}
		for _, o := range options {
			o(g)
		}
		return g
	}
	for name, tc := range map[string]struct {
		v      view
		phase  corev1.PodPhase
		reason string
		ready  corev1.ConditionStatus
	}{
		"asked just now": {testView(homePod(phase(corev1.PodPending)), nil), corev1.PodPending, "", ""},
		"refused": {testView(homePod(phase(corev1.PodPending)), nil, refused),
			corev1.PodPending, "QuotaExceeded", corev1.ConditionFalse},
		"lost abroad and not made again yet": {testView(homePod(wasRunning), nil),
			corev1.PodRunning, reasonRemaking, corev1.ConditionFalse},
		"failed with its node abroad, will be made again": {testView(homePod(wasRunning), guest(phase(corev1.PodFailed))),
			corev1.PodRunning, reasonRemaking, corev1.ConditionFalse},
		"evicted abroad by the kubelet, and the peer has not said yet what follows": {testView(homePod(wasRunning), guest(phase(corev1.PodFailed), because("Evicted"))),
			corev1.PodRunning, reasonEvicting, corev1.ConditionFalse},
		"being evicted abroad": {testView(homePod(wasRunning), guest(deletedWithin(30), disrupted("EvictionByEvictionAPI"))),
			corev1.PodRunning, reasonEvicting, corev1.ConditionFalse},
		"deleted at home, then evicted abroad": {testView(homePod(wasRunning, deletedWithin(30)), guest(deletedWithin(30), disrupted("EvictionByEvictionAPI"))),
			corev1.PodRunning, "", corev1.ConditionTrue},
		"ending abroad, will be made again": {testView(homePod(wasRunning), guest(deletedWithin(30))),
			corev1.PodRunning, reasonRemaking, corev1.ConditionFalse},
		"ending abroad because deleted at home": {testView(homePod(wasRunning, deletedWithin(30)), guest(phase(corev1.PodSucceeded))),
			corev1.PodSucceeded, "", corev1.ConditionTrue},
		"over, its status kept": {testView(homePod(wasRunning), nil, finally(v1alpha1.OffloadedPodSucceeded, &succeeded)),
			corev1.PodSucceeded, "", corev1.ConditionTrue},
		"over, with the guest still there": {testView(homePod(wasRunning), guest(), finally(v1alpha1.OffloadedPodFailed, nil)),
			corev1.PodFailed, "", corev1.ConditionTrue},
		"an end is not taken back": {testView(homePod(phase(corev1.PodFailed)), guest()), corev1.PodFailed, "", ""},
	} {
		got := statusOf(tc.v)
		if got.Phase != tc.phase || got.Reason != tc.reason || readiness(got) != tc.ready {
			t.Errorf("%s: phase %q reason %q ready %q, want %q %q %q", name, got.Phase, got.Reason, readiness(got), tc.phase, tc.reason, tc.ready)
		}
	}
}

func because(reason string) podOption { return func(p *corev1.Pod) { p.Status.Reason = reason } }

// disrupted is what the API server, controllers and the kubelet leave on a pod that they take away.
func disrupted(reason string) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "said there"})
	}
}

// A pod that was evicted abroad is at home as one that a kubelet here evicted: nothing of it runs, and its condition says who did it.
func TestAnEvictionAbroadIsOneAtHome(t *testing.T) {
	evicted := running()
	evicted.Phase, evicted.Reason, evicted.Message = corev1.PodFailed, "Evicted", "Usage of EmptyDir volume exceeds the limit"
	byAPI := evicted
	byAPI.Conditions = append(running().Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "said there"})
	for name, c := range map[string]struct {
		final corev1.PodStatus
		home  podOption
		want  string // reason of the condition
	}{
		"for what it used itself":         {evicted, func(*corev1.Pod) {}, ""},
		"by the Eviction API":             {byAPI, func(*corev1.Pod) {}, "EvictionByEvictionAPI"},
		"while home takes it away anyway": {byAPI, disrupted("DeletionByTaintManager"), "DeletionByTaintManager"},
	} {
		got := statusOf(testView(homePod(func(p *corev1.Pod) { p.Status = running() }, c.home), nil, finally(v1alpha1.OffloadedPodFailed, &c.final)))
		if got.Phase != corev1.PodFailed || got.Reason != "Evicted" || got.Message != evicted.Message || readiness(got) != corev1.ConditionFalse {
			t.Errorf("%s: %s %s %q, ready %s", name, got.Phase, got.Reason, got.Message, readiness(got))
		}
		if got.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("%s: its container is %+v", name, got.ContainerStatuses[0].State)
		}
		reason := ""
		if d := disruption(got.Conditions); d != nil {
			reason = d.Reason
		}
		if reason != c.want {
			t.Errorf("%s: the condition says %q, want %q", name, reason, c.want)
		}
	}
}

func TestUnschedulableAbroadShowsAtHome(t *testing.T) {
	got := statusOf(testView(homePod(), &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}}}))
	if got.Reason != "Unschedulable" || got.Message != "bob: 0/1 nodes are available" {
		t.Errorf("reason %q, message %q", got.Reason, got.Message)
	}
}

func TestReadinessGatesOfHomeCount(t *testing.T) {
	home := homePod(func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
	})
	if got := readiness(statusOf(testView(home, &corev1.Pod{Status: running()}))); got != corev1.ConditionFalse {
		t.Errorf("ready %s although the gate is closed", got)
	}
	home.Status.Conditions = []corev1.PodCondition{{Type: "example.com/lb", Status: corev1.ConditionTrue}}
	if got := readiness(statusOf(testView(home, &corev1.Pod{Status: running()}))); got != corev1.ConditionTrue {
		t.Errorf("ready %s although the gate is open", got)
	}
}

func TestEndOfUnseenContainers(t *testing.T) {
	got := endOf(running(), reasonLost, "bob no longer has the pod")
	if got.Phase != corev1.PodFailed || got.Reason != reasonLost || readiness(got) != corev1.ConditionFalse {
		t.Errorf("phase %s, reason %s, ready %s", got.Phase, got.Reason, readiness(got))
	}
	if s := got.ContainerStatuses[0].State; s.Terminated == nil || s.Running != nil || s.Terminated.StartedAt.IsZero() {
		t.Errorf("container state %+v", s)
	}
	clean := running()
	clean.ContainerStatuses = []corev1.ContainerStatus{{Name: "web",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}}}}
	if got := endOf(clean, "", ""); got.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s of a pod whose containers all ended well", got.Phase)
	}
}

// As TerminatePod in k8s.io/kubernetes/pkg/kubelet/status has it.
func TestEndOfAPodThatWasDeletedEarly(t *testing.T) {
	name := func(names ...string) (all []corev1.Container) {
		for _, n := range names {
			all = append(all, corev1.Container{Name: n, Image: n + ":1"})
		}
		return all
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	exited := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	// A word for each container: waits, or its exit code; with a star when it has times.
	say := func(statuses []corev1.ContainerStatus) (words string) {
		for _, s := range statuses {
			switch t := s.State.Terminated; {
			case t == nil:
				words += " waits"
			case t.FinishedAt.IsZero() != t.StartedAt.IsZero():
				words += " half-timed"
			default:
				words += fmt.Sprintf(" %d", t.ExitCode) + map[bool]string{true: "*"}[!t.FinishedAt.IsZero()]
			}
		}
		return words
	}
	for what, c := range map[string]struct {
		init, main   []corev1.Container
		seenInit     []corev1.ContainerState
		seenMain     []corev1.ContainerState
		wantI, wantM string
	}{
		"before anything":                {main: name("a", "b"), wantM: " 137 137"},
		"before anything, init":          {init: name("i", "j"), main: name("a"), wantI: " 137 waits", wantM: " waits"},
		"while it was made":              {main: name("a"), seenMain: []corev1.ContainerState{waits}, wantM: " 137"},
		"while the first init ran":       {init: name("i", "j"), main: name("a"), seenInit: []corev1.ContainerState{runs, waits}, seenMain: []corev1.ContainerState{waits}, wantI: " 137* waits", wantM: " waits"},
		"after an init container failed": {init: name("i"), main: name("a"), seenInit: []corev1.ContainerState{exited(1)}, seenMain: []corev1.ContainerState{waits}, wantI: " 1", wantM: " waits"},
		"after init":                     {init: name("i"), main: name("a"), seenInit: []corev1.ContainerState{exited(0)}, seenMain: []corev1.ContainerState{waits}, wantI: " 0", wantM: " 137"},
		"while it ran":                   {init: name("i"), main: name("a"), seenInit: []corev1.ContainerState{exited(0)}, seenMain: []corev1.ContainerState{runs}, wantI: " 0", wantM: " 137*"},
	} {
		pod := homePod(phase(corev1.PodPending))
		pod.Spec.InitContainers, pod.Spec.Containers = c.init, c.main
		for i, state := range c.seenInit {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.init[i].Name, State: state})
		}
		for i, state := range c.seenMain {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.main[i].Name, State: state})
		}
		got := endOf(begun(pod, pod.Status), "", "")
		if i, m := say(got.InitContainerStatuses), say(got.ContainerStatuses); got.Phase != corev1.PodFailed || i != c.wantI || m != c.wantM {
			t.Errorf("%s: %s, init%s, main%s; want init%s, main%s", what, got.Phase, i, m, c.wantI, c.wantM)
		}
		if len(got.ContainerStatuses) != len(c.main) || got.ContainerStatuses[0].Name != c.main[0].Name || len(c.seenMain) == 0 && got.ContainerStatuses[0].Image != "a:1" {
			t.Errorf("%s: %+v", what, got.ContainerStatuses)
		}
	}
}

func TestUnreachablePodsAreNotReady(t *testing.T) {
	s := running()
	got := unreachable(s, "bob", presence.Presence{State: presence.Unreachable})
	if readiness(got) != corev1.ConditionFalse || got.Phase != corev1.PodRunning || !got.ContainerStatuses[0].Ready {
		t.Errorf("ready %s, phase %s", readiness(got), got.Phase)
	}
	if readiness(s) != corev1.ConditionTrue {
		t.Error("the status given was changed")
	}
}

// TestAPeerTellsAddressesOfItsOwnOnly: one that gives a pod the address of another, at home or at another peer, would get what is sent there.
func TestAPeerTellsAddressesOfItsOwnOnly(t *testing.T) {
	for name, c := range map[string]struct {
		told    []string
		guests  string
		want    string
		foreign string
	}{
		"its own":                         {[]string{"10.71.0.7"}, "10.71.0.0/24", "10.71.0.7", ""},
		"and one of IPv6":                 {[]string{"fd00::7", "10.71.0.7"}, "10.71.0.0/24", "10.71.0.7", ""},
		"two of its own":                  {[]string{"10.71.0.7", "10.71.0.8"}, "10.71.0.0/24", "10.71.0.7", ""},
		"that of a pod at home":           {[]string{"10.42.0.7"}, "10.71.0.0/24", "", "10.42.0.7"},
		"its own and that of another":     {[]string{"10.71.0.7", "10.72.0.7"}, "10.71.0.0/24", "10.71.0.7", "10.72.0.7"},
		"the same, written for IPv6":      {[]string{"::ffff:10.42.0.7"}, "10.71.0.0/24", "", "10.42.0.7"},
		"before addresses were agreed on": {[]string{"10.71.0.7"}, "", "", ""},
		"both of its own":                 {[]string{"fd71::7", "10.71.0.7"}, "10.71.0.0/24 fd71::/64", "10.71.0.7 fd71::7", ""},
		"two of IPv6":                     {[]string{"10.71.0.7", "fd71::7", "fd71::8"}, "10.71.0.0/24 fd71::/64", "10.71.0.7 fd71::7", ""},
		"IPv6 alone":                      {[]string{"fd71::7"}, "10.71.0.0/24 fd71::/64", "", ""},
		"IPv6 of a pod at home":           {[]string{"10.71.0.7", "fd00::7"}, "10.71.0.0/24 fd71::/64", "10.71.0.7", "fd00::7"},
	} {
		home, guest := homePod(), running()
		guest.PodIP, guest.PodIPs = c.told[0], nil
		for _, ip := range c.told {
			guest.PodIPs = append(guest.PodIPs, corev1.PodIP{IP: ip})
		}
		v := testView(home, &corev1.Pod{Status: guest})
		ipv4, ipv6, _ := strings.Cut(c.guests, " ")
		v.guests, _ = netip.ParsePrefix(ipv4)
		v.guests6, _ = netip.ParsePrefix(ipv6)
		wants := strings.Fields(c.want)
		c.want, _, _ = strings.Cut(c.want, " ")
		got := statusOf(v)
		told := condition(got.Conditions, conditionForeign)
		if got.PodIP != c.want || !slices.EqualFunc(got.PodIPs, wants, func(ip corev1.PodIP, want string) bool { return ip.IP == want }) || (told != nil) != (c.foreign != "") || told != nil && !strings.Contains(told.Message, "the address "+c.foreign+",") {
			t.Errorf("%s: %s %v, %v", name, got.PodIP, got.PodIPs, told)
		}
		home.Status = got
		if again := statusOf(v); !equality.Semantic.DeepEqual(again, got) {
			t.Errorf("%s: looked at again, the status is another: %+v", name, again.Conditions)
		}
		v.guest.Status, v.guests6 = running(), netip.Prefix{} // whose IPv6 address is none of these
		if c.guests != "" && condition(statusOf(v).Conditions, conditionForeign) != nil {
			t.Errorf("%s: the condition stays", name)
		}
		v.guests = netip.Prefix{} // while the link is made anew
		if again := statusOf(v); again.PodIP != c.want {
			t.Errorf("%s: without a link the address is %q", name, again.PodIP)
		}
	}
}

// FuzzAddressesOfThePeer: whatever a peer says its pod's addresses are, home gets one that the peer may give, or none.
func FuzzAddressesOfThePeer(f *testing.F) {
	for _, seed := range []string{"10.71.0.7", "10.42.0.7", "::ffff:10.71.0.7", "fe80::1%eth0", "", "10.42.0.7/8", "010.1.1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, ip string) {
		guest := running()
		guest.PodIP, guest.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		got := statusOf(testView(homePod(), &corev1.Pod{Status: guest}))
		for _, p := range got.PodIPs {
			if a, err := netip.ParseAddr(p.IP); err != nil || !netip.MustParsePrefix("10.71.0.0/24").Contains(a) || a.String() != p.IP {
				t.Errorf("%q became %q", ip, p.IP)
			}
		}
		if len(got.PodIPs) == 0 && got.PodIP != "" {
			t.Errorf("%q became %q", ip, got.PodIP)
		}
	})
}

// TestClocksOfThePeerMayBeOff: its times are shown, but nothing here waits for one that is yet to come.
func TestClocksOfThePeerMayBeOff(t *testing.T) {
	for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		then := metav1.NewTime(time.Now().Add(off))
		guest := &corev1.Pod{Status: running()}
		for i := range guest.Status.Conditions {
			guest.Status.Conditions[i].LastTransitionTime = then
		}
		s := statusOf(testView(homePod(), guest))
		for _, c := range s.Conditions {
			if c.Type == corev1.PodReady && (c.Status != corev1.ConditionTrue || time.Until(c.LastTransitionTime.Time) > time.Second) {
				t.Errorf("clock %s off: %+v", off, c)
			}
		}
		home, abroad := homePod(), asked()
		home.CreationTimestamp, abroad.CreationTimestamp = metav1.Now(), then
		for after, want := range map[time.Duration]bool{-time.Minute: false, time.Second: true} {
			event := &corev1.Event{LastTimestamp: metav1.NewTime(then.Add(after))}
			if got := concerns(event, home, abroad); got != want {
				t.Errorf("clock %s off: an event %s after the OffloadedPod was made concerns the pod: %t", off, after, got)
			}
		}
	}
}

func TestADebuggerOfTheNodeIsToldWhatElseToDo(t *testing.T) {
	const instead = "kubectl debug POD"
	for name, c := range map[string]struct {
		pod, reason string
		says        bool
	}{
		"of the node":              {"node-debugger-kith-bob-x7w2p", "PodSecurity", true},
		"of the node, no room":     {"node-debugger-kith-bob-x7w2p", "ContractExceeded", false},
		"a pod with as much power": {"web-0", "PodSecurity", false},
	} {
		home := homePod(func(p *corev1.Pod) { p.Name = c.pod })
		got := statusOf(testView(home, nil, func(o *v1alpha1.OffloadedPod) {
			o.Status.Phase, o.Status.Reason, o.Status.Message = v1alpha1.OffloadedPodRefused, c.reason, "spec.hostPID"
		}))
		if got.Reason != c.reason || !strings.HasPrefix(got.Message, "bob refuses: spec.hostPID") || strings.Contains(got.Message, instead) != c.says {
			t.Errorf("%s: %s: %s", name, got.Reason, got.Message)
		}
		if kubectl := len(got.ContainerStatuses) == 1 && got.ContainerStatuses[0].State.Waiting != nil && got.ContainerStatuses[0].State.Waiting.Message == got.Message; kubectl != c.says {
			t.Errorf("%s: containers %+v", name, got.ContainerStatuses)
		}
	}
}

func TestResizeOfTheGuestShowsAtHome(t *testing.T) {
	condition := func(s corev1.PodStatus) string {
		for _, c := range s.Conditions {
			if c.Type == corev1.PodResizePending {
				return c.Reason + ": " + c.Message
			}
		}
		return ""
	}
	home, guest := homePod(), &corev1.Pod{Status: running()}
	guest.Status.Conditions = append(guest.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: "Deferred", Message: "no room"})
	home.Status = statusOf(testView(home, guest))
	if got := condition(home.Status); got != "Deferred: no room" {
		t.Errorf("the kubelet's word: %q", got)
	}
	v := testView(home, &corev1.Pod{Status: running()}, func(o *v1alpha1.OffloadedPod) {
		o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionResizePending, Status: metav1.ConditionTrue, Reason: "Infeasible", Message: "beyond the contract"}}
	})
	home.Status = statusOf(v)
	if got := condition(home.Status); got != "Infeasible: bob: beyond the contract" {
		t.Errorf("the contract's word: %q", got)
	}
	if got := condition(statusOf(testView(home, &corev1.Pod{Status: running()}))); got != "" {
		t.Errorf("it is over, and %q stays", got)
	}
}

func TestDebuggersShowAtHome(t *testing.T) {
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	home := homePod(func(p *corev1.Pod) {
		for _, name := range []string{"runs", "ended", "refused"} {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}})
		}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "ended", State: ended}}
	})
	guest := &corev1.Pod{Status: running()}
	guest.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "of-the-peer"}, {Name: "runs", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	got := statusOf(testView(home, guest, func(o *v1alpha1.OffloadedPod) {
		o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionEphemeralContainersRefused, Status: metav1.ConditionTrue, Reason: "PodSecurity", Message: "privileged"}}
	})).EphemeralContainerStatuses
	if len(got) != 3 || got[0].State.Running == nil || got[1].State.Terminated == nil || got[2].State.Waiting == nil || got[2].State.Waiting.Message != "bob refuses: privileged" {
		t.Errorf("states %+v", got)
	}
	// One that ended is not started again when the guest is made anew.
	var asked []string
	for _, c := range template(home).Spec.EphemeralContainers {
		asked = append(asked, c.Name)
	}
	if len(asked) != 2 || asked[0] != "runs" || asked[1] != "refused" {
		t.Errorf("asked for %v", asked)
	}
}

func TestGuestThatNoKubeletHasYetIsNoNews(t *testing.T) {
	home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 3}, Status: corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: 3}},
	}}
	guest := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: 1}},
	}}
	if got := statusOf(testView(home, guest)); !equality.Semantic.DeepEqual(got, home.Status) {
		t.Errorf("%+v would be written over %+v", got, home.Status)
	}
	guest.Status = running()
	if got := statusOf(testView(home, guest)); got.HostIP != "10.42.255.1" || got.ObservedGeneration != 3 {
		t.Errorf("host %q, generation %d", got.HostIP, got.ObservedGeneration)
	}
}

// The peer bounds what each guest writes to its disk. Of that nothing is seen at home where nobody asked for it: upstream's tests of resizes
// compare what is allocated with what was asked.
func TestScratchThatNobodyAskedForIsNotShown(t *testing.T) {
	list := func(scratch string) corev1.ResourceList {
		all := corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("300m")}
		if scratch != "" {
			all[corev1.ResourceEphemeralStorage] = quantity.MustParse(scratch)
		}
		return all
	}
	for name, c := range map[string]struct{ request, limit, wantRequest, wantLimit string }{
		"nothing asked": {"", "", "", ""},
		"a request":     {"1Gi", "", "1Gi", ""},
		"both":          {"1Gi", "2Gi", "1Gi", "2Gi"},
	} {
		home := homePod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(c.request), Limits: list(c.limit)}
		})
		s := running()
		s.ContainerStatuses[0].AllocatedResources = list(cmp.Or(c.request, "0"))
		s.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: list(cmp.Or(c.request, "0")), Limits: list(cmp.Or(c.limit, "186Mi"))}
		guest := &corev1.Pod{Status: s}
		got := statusOf(testView(home, guest)).ContainerStatuses[0]
		for what, pair := range map[string][2]corev1.ResourceList{
			"allocated": {got.AllocatedResources, list(c.wantRequest)}, "requests": {got.Resources.Requests, list(c.wantRequest)}, "limits": {got.Resources.Limits, list(c.wantLimit)},
		} {
			if !equality.Semantic.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s: %s %v, want %v", name, what, pair[0], pair[1])
			}
		}
		if _, kept := guest.Status.ContainerStatuses[0].AllocatedResources[corev1.ResourceEphemeralStorage]; !kept {
			t.Errorf("%s: what the peer told was changed", name)
		}
	}
}
