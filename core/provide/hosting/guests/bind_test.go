package guests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
)

// laptop is a node with 2 cores and room for three pods.
func laptop(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alice", Labels: map[string]string{corev1.LabelArchStable: "amd64", v1alpha1.LabelFenced: "true"}}}
	n.Status.Allocatable = list("cpu", "2", "memory", "4Gi", "ephemeral-storage", "10Gi", "pods", "3")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(n)
	}
	return n
}

// guest waits for a node; the later in the alphabet, the younger it is.
func guest(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: bobsShop, Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		OwnerReferences:   []metav1.OwnerReference{{Kind: "OffloadedPod", Name: name, Controller: ptr.To(true)}},
		CreationTimestamp: metav1.Time{Time: time.Date(2030, 1, 1, 12, 0, int(name[0]), 0, time.UTC)},
	}, Spec: corev1.PodSpec{
		PreemptionPolicy: ptr.To(corev1.PreemptNever),
		Containers:       []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list("cpu", "500m")}}},
	}}
	for _, c := range change {
		c(p)
	}
	return p
}

func asks(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list(pairs...) }
}

func hostPort(port int32, ip string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: port, HostIP: ip, Protocol: corev1.ProtocolTCP})
	}
}

func TestAGuestIsBoundWhereTheSchedulerWould(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append([]corev1.NodeCondition{{Type: kind, Status: status}}, slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })...)
		}
	}
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tolerant := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
		}
	}
	const never = " preemption: not eligible due to preemptionPolicy=Never."
	for name, c := range map[string]struct {
		node  *corev1.Node
		there []*corev1.Pod
		pod   *corev1.Pod
		why   string
	}{
		"it fits":                          {laptop(), nil, guest("a"), ""},
		"it fits to the last bit":          {laptop(), []*corev1.Pod{guest("b", asks("cpu", "1500m"))}, guest("a"), ""},
		"no cpu":                           {laptop(), []*corev1.Pod{guest("b", asks("cpu", "1501m"))}, guest("a"), "1 Insufficient cpu."},
		"no cpu and no memory":             {laptop(), nil, guest("a", asks("cpu", "3", "memory", "5Gi")), "1 Insufficient cpu, 1 Insufficient memory."},
		"no disk":                          {laptop(), nil, guest("a", asks("ephemeral-storage", "11Gi")), "1 Insufficient ephemeral-storage."},
		"a resource that is not there":     {laptop(), nil, guest("a", asks("example.com/gpu", "1")), "1 Insufficient example.com/gpu."},
		"asked for none of it":             {laptop(), nil, guest("a", asks("example.com/gpu", "0")), ""},
		"too many pods":                    {laptop(), []*corev1.Pod{guest("b", asks()), guest("c", asks()), guest("d", asks())}, guest("a", asks()), "1 Too many pods."},
		"with its sandbox":                 {laptop(), nil, guest("a", func(p *corev1.Pod) { p.Spec.Overhead = list("cpu", "1600m") }), "1 Insufficient cpu."},
		"an init container asks for more":  {laptop(), nil, guest("a", func(p *corev1.Pod) { p.Spec.InitContainers = guest("b", asks("cpu", "3")).Spec.Containers }), "1 Insufficient cpu."},
		"cordoned":                         {laptop(cordoned, tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)), nil, guest("a"), "1 node(s) were unschedulable."},
		"cordoned, and tolerated":          {laptop(cordoned, tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)), nil, guest("a", tolerant(corev1.TaintNodeUnschedulable)), ""},
		"a cordon that was lifted since":   {laptop(tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)), nil, guest("a"), ""},
		"cordoned a moment ago":            {laptop(cordoned), nil, guest("a"), "1 node(s) were unschedulable."},
		"a taint":                          {laptop(tainted("mine", corev1.TaintEffectNoSchedule)), nil, guest("a"), "1 node(s) had untolerated taint(s)."},
		"a taint that ends pods":           {laptop(tainted("mine", corev1.TaintEffectNoExecute)), nil, guest("a"), "1 node(s) had untolerated taint(s)."},
		"a taint that is tolerated":        {laptop(tainted("mine", corev1.TaintEffectNoSchedule)), nil, guest("a", tolerant("mine")), ""},
		"a taint that is a wish":           {laptop(tainted("mine", corev1.TaintEffectPreferNoSchedule)), nil, guest("a"), ""},
		"not Ready":                        {laptop(condition(corev1.NodeReady, corev1.ConditionFalse)), nil, guest("a"), "1 node(s) had untolerated taint(s)."},
		"not Ready, and tolerated":         {laptop(condition(corev1.NodeReady, corev1.ConditionFalse)), nil, guest("a", tolerant(corev1.TaintNodeNotReady)), ""},
		"unknown":                          {laptop(condition(corev1.NodeReady, corev1.ConditionUnknown)), nil, guest("a"), "1 node(s) had untolerated taint(s)."},
		"its disk is full":                 {laptop(condition(corev1.NodeDiskPressure, corev1.ConditionTrue)), nil, guest("a"), "1 node(s) had untolerated taint(s)."},
		"it was not Ready when it stopped": {laptop(tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), nil, guest("a"), ""},
		"another architecture":             {laptop(), nil, guest("a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"} }), "1 node(s) didn't match Pod's node affinity/selector."},
		"its architecture":                 {laptop(), nil, guest("a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"} }), ""},
		"an affinity to others": {laptop(), nil, guest("a", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}}}}}}
		}), "1 node(s) didn't match Pod's node affinity/selector."},
		"a port of the host": {laptop(), []*corev1.Pod{guest("b", hostPort(80, ""))}, guest("a", hostPort(80, "127.0.0.1")), "1 node(s) didn't have free ports for the requested pod ports."},
		"the port of an init container": {laptop(), []*corev1.Pod{guest("b", hostPort(80, ""))}, guest("a", func(p *corev1.Pod) {
			p.Spec.InitContainers = guest("b", hostPort(80, "")).Spec.Containers
			p.Spec.InitContainers[0].Name = "init"
		}), ""},
		"the port of a sidecar": {laptop(), []*corev1.Pod{guest("b", hostPort(80, ""))}, guest("a", func(p *corev1.Pod) {
			p.Spec.InitContainers = guest("b", hostPort(80, "")).Spec.Containers
			p.Spec.InitContainers[0].Name, p.Spec.InitContainers[0].RestartPolicy = "init", ptr.To(corev1.ContainerRestartPolicyAlways)
		}), "1 node(s) didn't have free ports for the requested pod ports."},
		"another port":                         {laptop(), []*corev1.Pod{guest("b", hostPort(80, ""))}, guest("a", hostPort(81, "")), ""},
		"another address":                      {laptop(), []*corev1.Pod{guest("b", hostPort(80, "10.0.0.1"))}, guest("a", hostPort(80, "10.0.0.2")), ""},
		"all there is":                         {laptop(cordoned), []*corev1.Pod{guest("b", hostPort(80, ""))}, guest("a", hostPort(80, ""), asks("cpu", "3")), "1 node(s) were unschedulable."},
		"nothing is said of the pods it moves": {laptop(), nil, guest("a", asks("cpu", "3"), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = nil }), "1 Insufficient cpu."},
	} {
		p := &place{node: c.node}
		for _, there := range c.there {
			p.take(there)
		}
		at, why := choose(c.pod, []*place{p})
		want := ""
		if c.why != "" {
			want = "0/1 nodes are available: " + c.why
			if c.pod.Spec.PreemptionPolicy != nil {
				want += never
			}
		}
		if (at == p) != (c.why == "") || why != want {
			t.Errorf("%s: %q, want %q", name, why, want)
		}
	}
	if _, why := choose(guest("a"), nil); why != "0/0 nodes are available:"+never {
		t.Errorf("without nodes: %q", why)
	}
	pair := []*place{{node: laptop(cordoned)}, {node: laptop()}}
	if at, _ := choose(guest("a"), pair); at != pair[1] {
		t.Error("the second of two nodes is open, and not chosen")
	}
	if _, why := choose(guest("a", asks("cpu", "3")), pair); why != "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."+never {
		t.Errorf("two nodes: %q", why)
	}
}

// scene is a binder over an API server that binds as the real one does: each pod once, and none that is another by now.
type scene struct {
	*testing.T
	*Binder
	told  *events.FakeRecorder
	bound []string        // in order
	stale map[string]bool // pods of which the binder's cache does not hear yet that they are bound
	deny  error           // what is answered to a binding
}

func newScene(t *testing.T, objects ...client.Object) *scene {
	t.Helper()
	d := newProvider(t, objects...)
	s := &scene{T: t, told: events.NewFakeRecorder(100), stale: map[string]bool{}}
	real := d.client.(client.WithWatch)
	d.client = interceptor.NewClient(real, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o client.Object, body client.Object, _ ...client.SubResourceCreateOption) error {
			binding, pod := body.(*corev1.Binding), &corev1.Pod{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), pod); err != nil || sub != "binding" {
				return err
			}
			pods := schema.GroupResource{Resource: "pods/binding"}
			switch {
			case s.deny != nil:
				return s.deny
			case binding.UID != pod.UID, pod.Spec.NodeName != "", pod.DeletionTimestamp != nil:
				return apierrors.NewConflict(pods, pod.Name, fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName))
			}
			s.bound = append(s.bound, pod.Name+" "+binding.Target.Name)
			if s.stale[pod.Name] {
				return nil
			}
			pod.Spec.NodeName = binding.Target.Name
			return c.Update(ctx, pod)
		},
	})
	s.Binder = d.host(s.told).Binder()
	return s
}

func (s *scene) look() error {
	_, err := s.reconcile(s.Context(), ctrl.Request{})
	return err
}

func (s *scene) want(bound ...string) {
	s.Helper()
	if err := s.look(); err != nil {
		s.Fatal(err)
	}
	if !slices.Equal(s.bound, bound) {
		s.Fatalf("bound %q, want %q", s.bound, bound)
	}
}

// scheduled is what a pod says of its place, with the reason.
func (s *scene) scheduled(name string) string {
	s.Helper()
	var pod corev1.Pod
	if err := s.client.Get(s.Context(), key(bobsShop, name), &pod); err != nil {
		s.Fatal(err)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func TestNothingIsBoundWhileTheSchedulerIsOn(t *testing.T) {
	s := newScene(t, laptop(), guest("a"))
	s.want()
	s.SetBinding(true)
	s.want("a alice")
	s.SetBinding(false)
	if err := s.client.Create(t.Context(), guest("b")); err != nil {
		t.Fatal(err)
	}
	s.want("a alice")
	if len(s.assumed) != 0 {
		t.Errorf("it remembers %v", s.assumed)
	}
}

func TestGuestsAreBoundTheOldestFirstAndNoOther(t *testing.T) {
	s := newScene(t, laptop(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-carol", Labels: map[string]string{v1alpha1.LabelPeer: "carol"}}, Status: laptop().Status},
		guest("d", asks("cpu", "1")), guest("c", asks("cpu", "1")), guest("b", asks("cpu", "1")),
		guest("h", func(p *corev1.Pod) { p.Labels = nil }),
		guest("i", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }),
		guest("j", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }),
		guest("k", func(p *corev1.Pod) { p.Spec.SchedulerName = "another" }),
		guest("l", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		guest("m", func(p *corev1.Pod) { p.Finalizers, p.DeletionTimestamp = []string{"x"}, &metav1.Time{Time: time.Now()} }),
	)
	s.SetBinding(true)
	s.want("b alice", "c alice")
	const why = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
	if got := s.scheduled("d"); got != "False Unschedulable: "+why {
		t.Errorf("the youngest: %s", got)
	}
	for _, want := range []string{
		"Normal Scheduled Successfully assigned " + bobsShop + "/b to alice", "Normal Scheduled Successfully assigned " + bobsShop + "/c to alice",
		"Warning FailedScheduling " + why,
	} {
		if got := <-s.told.Events; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}

	// The same is not said twice; when one ends, its room is free.
	var was, is corev1.Pod
	if err := s.client.Get(t.Context(), key(bobsShop, "d"), &was); err != nil {
		t.Fatal(err)
	}
	s.want("b alice", "c alice")
	if err := s.client.Get(t.Context(), key(bobsShop, "d"), &is); err != nil || is.ResourceVersion != was.ResourceVersion || len(s.told.Events) != 0 {
		t.Errorf("it is written again: %v", err)
	}
	if err := s.client.Get(t.Context(), key(bobsShop, "b"), &is); err != nil {
		t.Fatal(err)
	}
	is.Status.Phase = corev1.PodSucceeded
	if err := s.client.Status().Update(t.Context(), &is); err != nil {
		t.Fatal(err)
	}
	s.want("b alice", "c alice", "d alice")
}

// What the cache has not heard of counts all the same, until it has, or the pod is gone.
func TestRoomIsNotGivenTwice(t *testing.T) {
	s := newScene(t, laptop(), guest("a", asks("cpu", "1500m")))
	s.stale["a"] = true
	s.SetBinding(true)
	s.want("a alice")
	if err := s.client.Create(t.Context(), guest("b", asks("cpu", "1"))); err != nil {
		t.Fatal(err)
	}
	s.want("a alice")
	if err := s.client.Delete(t.Context(), guest("a")); err != nil {
		t.Fatal(err)
	}
	s.want("a alice", "b alice")
	if len(s.assumed) != 1 {
		t.Errorf("it remembers %v", s.assumed)
	}
}

func TestABindingThatIsRefusedKeepsNoOtherBack(t *testing.T) {
	s := newScene(t, laptop(), guest("a"), guest("b", asks("cpu", "3")))
	s.SetBinding(true)
	s.deny = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", fmt.Errorf("it is assigned"))
	s.want() // the news of it is on its way
	if got := s.scheduled("a"); got != "" {
		t.Errorf("a: %s", got)
	}
	s.deny = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", fmt.Errorf("the policy denies it"))
	if err := s.look(); !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
	if got := s.scheduled("a"); !strings.HasPrefix(got, "False SchedulerError: bind guest ") || !strings.Contains(got, "the policy denies it") {
		t.Errorf("a: %s", got)
	}
	if got := s.scheduled("b"); !strings.HasPrefix(got, "False Unschedulable: ") {
		t.Errorf("b: %s", got)
	}
	s.deny = nil
	s.want("a alice")
}

func TestOnlyWhatMakesRoomIsLookedAt(t *testing.T) {
	beat := laptop(func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		n.Annotations = map[string]string{"a": "b"}
	})
	if roomChanged(laptop(), beat) {
		t.Error("a node's heartbeat")
	}
	for name, is := range map[string]*corev1.Node{
		"cordoned":  laptop(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		"not Ready": laptop(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }),
		"smaller":   laptop(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "1") }),
		"labelled":  laptop(func(n *corev1.Node) { n.Labels = nil }),
		"tainted":   laptop(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "mine"}} }),
	} {
		if !roomChanged(laptop(), is) {
			t.Errorf("%s: nobody looks", name)
		}
	}
}
