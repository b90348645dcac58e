package virtualnode

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
)

// refusedLine is what the view shows of a home pod that the peer refuses.
func refusedLine(t *testing.T, home *corev1.Pod, reason string) string {
	t.Helper()
	o := offloadedPod(home, home.Namespace+"-x")
	o.UID, o.Status = "u", v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodRefused, Reason: reason, Message: "not here"}
	line, err := json.Marshal(map[string]any{"kind": "OffloadedPod", "object": o})
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

func nodeNamed(name string, change func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: name}}}
	change(node)
	return node
}

// A bound pod cannot leave its node: one that is made again elsewhere fails, others wait.
func TestWhatBecomesOfAPodThatThePeerRefuses(t *testing.T) {
	plain := func(*corev1.Node) {}
	alice := nodeNamed("alice", plain)
	carol := nodeNamed("kith-carol", func(n *corev1.Node) {
		n.Labels[v1alpha1.LabelPeer] = "carol"
		n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPeer, Value: "carol", Effect: corev1.TaintEffectNoSchedule}, {Key: v1alpha1.TaintPeer, Value: "carol", Effect: corev1.TaintEffectNoExecute}}
	})
	beyondCarol := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"carol"}}}}},
		}}}
	}
	anyPeer := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}
	}
	owned := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
	}
	for name, c := range map[string]struct {
		reason string
		pod    []func(*corev1.Pod)
		others []*corev1.Node
		noted  time.Duration // before now; 0: not yet
		fails  error         // once
		ends   bool
		asked  bool
	}{
		"a controller's, and there is another node":  {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{alice}, ends: true, asked: true},
		"a controller's, and there is another peer":  {reason: "NotSupported", pod: []func(*corev1.Pod){owned, anyPeer}, others: []*corev1.Node{carol}, ends: true, asked: true},
		"the note needs a second try":                {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{alice}, fails: errors.New("conflict"), ends: true, asked: true},
		"another of that controller, a moment later": {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{alice}, noted: 2 * time.Second, ends: true, asked: true},
		"one that came though its kind avoids it":    {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{alice}, noted: time.Minute, asked: true},
		"bare":                       {reason: "PodSecurity", others: []*corev1.Node{alice}},
		"bare, with a sysctl":        {reason: "SysctlForbidden", others: []*corev1.Node{alice}, ends: true},
		"no other node":              {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}},
		"no other node tolerated":    {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{carol}},
		"the other peer refused too": {reason: "PodSecurity", pod: []func(*corev1.Pod){owned, anyPeer, beyondCarol}, others: []*corev1.Node{carol}},
		"home is closed":             {reason: "PodSecurity", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{nodeNamed("alice", func(n *corev1.Node) { n.Spec.Unschedulable = true })}},
		"it is to run abroad":        {reason: "PodSecurity", pod: []func(*corev1.Pod){owned, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{offloading.LabelVirtual: "true"} }}, others: []*corev1.Node{alice}},
		"what passes":                {reason: "ContractExceeded", pod: []func(*corev1.Pod){owned}, others: []*corev1.Node{alice}},
	} {
		t.Run(name, func(t *testing.T) {
			standing(t, func(s *stand) {
				for _, node := range append(c.others, nodeNamed("kith-bob", plain)) {
					if err := s.home.Tracker().Add(node.DeepCopy()); err != nil {
						s.Fatal(err)
					}
				}
				var asked []string
				since := time.Time{}
				if c.noted > 0 {
					since = time.Now().Add(-c.noted)
				}
				s.node.cfg.Avoid = func(_ context.Context, namespace string, controller types.UID) (time.Time, error) {
					asked = append(asked, namespace+" "+string(controller))
					if err := c.fails; err != nil {
						c.fails = nil
						return time.Time{}, err
					}
					if since.IsZero() {
						since = time.Now()
					}
					return since, nil
				}
				pod := onNode("shop", "web")
				for _, change := range c.pod {
					change(pod)
				}
				if err := errors.Join(s.home.Tracker().Add(pod.DeepCopy()), s.node.pods.put(pod.DeepCopy())); err != nil {
					s.Fatal(err)
				}
				status := func() corev1.PodStatus {
					s.Helper()
					now, err := s.home.CoreV1().Pods("shop").Get(s.Context(), "web", metav1.GetOptions{})
					if err != nil {
						s.Fatal(err)
					}
					return now.Status
				}
				s.say(twinLine("shop", ""), refusedLine(s.T, pod, c.reason), synced)
				first := status()
				if first.Reason != c.reason {
					s.Errorf("it does not say why at once: %+v", first)
				}
				time.Sleep(noteSpreads + time.Second)
				last := status()
				if first.Phase == corev1.PodFailed && c.asked && c.noted == 0 {
					s.Error("it failed before the API server can have new pods of its kind go elsewhere")
				}
				if last.Reason != c.reason || last.Message != "bob refuses: not here" || readiness(last) != corev1.ConditionFalse {
					s.Errorf("%+v", last)
				}
				if want := map[bool]corev1.PodPhase{true: corev1.PodFailed, false: corev1.PodPending}[c.ends]; last.Phase != want {
					s.Errorf("it is %s, want %s", last.Phase, want)
				}
				disrupted := slices.ContainsFunc(last.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
				if disrupted != (c.ends && c.asked) {
					s.Errorf("conditions %+v", last.Conditions)
				}
				if (len(asked) > 0) != c.asked || c.asked && asked[0] != "shop rs" {
					s.Errorf("asked for %q", asked)
				}
			}, offloadedNamespace("shop"))
		})
	}
}

// As at a kubelet; the peer is not even asked.
func TestAPodForAnotherSystemIsRejected(t *testing.T) {
	pod := onNode("shop", "web")
	pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	twins := &askedTwins{}
	n, home, events := permitted(t, twins, map[string]offloading.Permit{"shop": offloading.Granted}, pod)
	if err := n.reconcile(t.Context(), keyOf(pod)); err != nil {
		t.Fatal(err)
	}
	now, err := home.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || now.Status.Phase != corev1.PodFailed || now.Status.Reason != "PodOSNotSupported" || len(now.Status.ContainerStatuses) > 0 {
		t.Errorf("%+v, %v", now.Status, err)
	}
	if calls := twins.since(); len(calls) > 0 {
		t.Errorf("asked for twins: %q", calls)
	}
	if len(events.Events) != 1 || !strings.Contains(<-events.Events, "PodOSNotSupported") {
		t.Error("no event says so")
	}
}
