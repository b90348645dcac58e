package virtualnode

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/remote"
)

func anybody(context.Context, string) (offloading.Permit, string, error) {
	return offloading.Granted, "", nil
}

// onNode is a home pod on node kith-bob.
func onNode(namespace, name string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Spec:       corev1.PodSpec{NodeName: "kith-bob", Containers: []corev1.Container{{Name: "c"}}, Tolerations: tolerations},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// permitted is a node whose namespaces have these permits, others none; what is asked of the peer fails the test.
func permitted(t *testing.T, twins Twins, permits map[string]offloading.Permit, pods ...*corev1.Pod) (*Node, *fake.Clientset, *record.FakeRecorder) {
	t.Helper()
	peer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked of the peer: %s %s", r.Method, r.URL) }))
	t.Cleanup(peer.Close)
	home := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}})
	events := record.NewFakeRecorder(100)
	view, run := emptyView()
	n, err := New(Config{
		Home: home, Abroad: peerAt(t, peer.URL, http.DefaultTransport), View: view, Twins: twins, PeerName: "bob", NodeName: "kith-bob", NodeIP: netip.MustParseAddr("10.42.255.1"), KubeletPort: 10260,
		Recorder: events, Log: slog.New(slog.DiscardHandler),
		Permit: func(_ context.Context, namespace string) (offloading.Permit, string, error) {
			return permits[namespace], "why of " + namespace, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t)
	t.Cleanup(n.queue.ShutDown)
	t.Cleanup(n.events.queue.ShutDown)
	var list []any
	for _, pod := range pods {
		if err := home.Tracker().Add(pod.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		list = append(list, pod.DeepCopy())
	}
	if err := n.pods.Replace(list, ""); err != nil {
		t.Fatal(err)
	}
	return n, home, events
}

// A peer goes to sleep: of a namespace that does not wait, what a controller makes again is evicted, and nothing else.
func TestPodsLeaveAPeerThatGoesToSleepWhereTheirNamespaceDoesNotWait(t *testing.T) {
	since := func(ago time.Duration) presence.Presence {
		return presence.Presence{State: presence.Suspended, Why: "went to sleep", Since: time.Now().Add(-ago)}
	}
	asleep := since(time.Minute)
	for name, c := range map[string]struct {
		there     presence.Presence
		namespace string
		change    func(*corev1.Pod)
		leaves    bool
	}{
		"a pod of a controller":         {asleep, "moves", nil, true},
		"one that nobody makes again":   {asleep, "moves", func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"one that has ended":            {asleep, "moves", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"of a namespace that waits":     {asleep, "waits", nil, false},
		"at a peer that is unreachable": {presence.Presence{State: presence.Unreachable}, "moves", nil, false},
		"at a peer that is there":       {presence.Presence{State: presence.Reachable}, "moves", nil, false},
		"one that was made since":       {asleep, "moves", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Now() }, false},
		"at one asleep for a moment":    {since(0), "moves", nil, false},
	} {
		pod := onNode(c.namespace, "web")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: new(true)}}
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		if c.change != nil {
			c.change(pod)
		}
		n, home, events := permitted(t, &askedTwins{}, map[string]offloading.Permit{c.namespace: offloading.Granted}, pod)
		n.cfg.Moves = func(_ context.Context, namespace string) (bool, error) { return namespace == "moves", nil }
		n.mu.Lock()
		n.state.there = c.there // for which Heard is long ago
		n.mu.Unlock()
		for range 2 {
			if err := n.moveOn(t.Context(), pod); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := home.CoreV1().Pods(c.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) != c.leaves {
			t.Errorf("%s: %v", name, err)
		}
		if said := len(events.Events) > 0 && strings.Contains(<-events.Events, eventMoved); said != c.leaves {
			t.Errorf("%s: said so: %v", name, said)
		}
	}
}

// That its peer sleeps is looked at again when it has lasted, without anybody's event, and also where the node was not ready before.
func TestPodsMoveWhenTheSleepHasLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := onNode("shop", "web")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: new(true)}}
		home := fake.NewClientset(pod.DeepCopy())
		n, err := New(Config{
			Home: home, Abroad: peerAt(t, "http://peer.invalid", http.DefaultTransport), View: noView(), Twins: &askedTwins{}, PeerName: "bob", NodeName: "kith-bob", NodeIP: netip.MustParseAddr("10.42.255.1"), KubeletPort: 10260,
			Recorder: record.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler), Permit: anybody,
			Moves: func(context.Context, string) (bool, error) { return true, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.pods.Replace([]any{pod.DeepCopy()}, ""); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() { n.work(ctx, 1) })
		there := func() bool {
			synctest.Wait()
			_, err := home.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil
		}
		time.Sleep(time.Minute)
		n.SetPresence(presence.Presence{State: presence.Reachable, Cause: presence.Ailing, Since: time.Now()})
		time.Sleep(time.Minute)
		n.SetPresence(presence.Presence{State: presence.Suspended, Since: time.Now()})
		if !there() {
			t.Error("it is evicted at once")
		}
		if time.Sleep(movesAfter); there() {
			t.Error("it stays")
		}
		cancel()
		n.events.queue.ShutDown()
		working.Wait()
	})
}

// A pod that may not go says why at once, and fails when its controller will not fill the cluster with others like it.
func TestAPodOfANamespaceThatIsNotOffloadedDoesNotGo(t *testing.T) {
	for name, c := range map[string]struct {
		permit offloading.Permit
		fails  bool
	}{
		"not offloaded":        {offloading.Withdrawn, true},
		"offloaded to another": {offloading.Refused, true},
		"closed by a budget":   {offloading.Closed, true},
		"being brought home":   {offloading.Ending, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := onNode("private", "agent", corev1.Toleration{Operator: corev1.TolerationOpExists})
			peer := &askedTwins{}
			n, home, events := permitted(t, peer, map[string]offloading.Permit{"private": c.permit}, pod)
			look := func() corev1.PodStatus {
				t.Helper()
				if err := n.reconcile(t.Context(), keyOf(pod)); err != nil {
					t.Fatal(err)
				}
				now, err := home.CoreV1().Pods("private").Get(t.Context(), "agent", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := n.pods.Update(now); err != nil {
					t.Fatal(err)
				}
				return now.Status
			}
			if s := look(); s.Phase != corev1.PodPending || c.fails && (s.Reason != "NotOffloaded" || s.Message != "why of private") {
				t.Errorf("just made: %+v", s)
			}
			look() // it is not told twice
			pod = n.pods.Get(pod.Namespace, pod.Name).DeepCopy()
			pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-refusedAfter))
			if err := n.pods.Update(pod); err != nil {
				t.Fatal(err)
			}
			if s := look(); c.fails && (s.Phase != corev1.PodFailed || s.Reason != "NotOffloaded" || s.Message != "why of private") || !c.fails && s.Phase != corev1.PodPending {
				t.Errorf("later: %+v", s)
			}
			if told := len(events.Events); c.fails && told != 1 || !c.fails && told != 0 {
				t.Errorf("%d events, the first: %s", told, <-events.Events)
			}
			if calls := peer.since(); len(calls) > 0 {
				t.Errorf("asked for twins: %q", calls)
			}
		})
	}
}

// That a pod was refused once is looked at again when it may fail, without anybody's event.
func TestARefusedPodIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := onNode("private", "agent")
		home := fake.NewClientset(pod.DeepCopy())
		n, err := New(Config{
			Home: home, Abroad: peerAt(t, "http://peer.invalid", http.DefaultTransport), View: noView(), Twins: &askedTwins{}, PeerName: "bob", NodeName: "kith-bob", NodeIP: netip.MustParseAddr("10.42.255.1"), KubeletPort: 10260,
			Recorder: record.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler),
			Permit: func(context.Context, string) (offloading.Permit, string, error) {
				return offloading.Withdrawn, "it is not", nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.pods.Replace([]any{pod.DeepCopy()}, ""); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() { n.work(ctx, 1) })
		time.Sleep(refusedAfter + time.Second)
		synctest.Wait()
		now, err := home.CoreV1().Pods("private").Get(t.Context(), "agent", metav1.GetOptions{})
		if err != nil || now.Status.Phase != corev1.PodFailed {
			t.Errorf("%+v, %v", now.Status, err)
		}
		cancel()
		n.events.queue.ShutDown()
		working.Wait()
	})
}

// Pods of such a namespace that went abroad under an earlier version, or whose offloading somebody took away by force.
func TestATwinOfANamespaceThatIsNotOffloadedIsGivenUp(t *testing.T) {
	standing(t, func(s *stand) {
		old := onNode("private", "agent")
		old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		old.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
		going := onNode("private", "going")
		going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"test/x"}
		for _, pod := range []*corev1.Pod{old, going} {
			if err := errors.Join(s.home.Tracker().Add(pod.DeepCopy()), s.node.pods.put(pod.DeepCopy())); err != nil {
				s.Fatal(err)
			}
		}
		there := func(name string) *corev1.Pod {
			s.Helper()
			pod, err := s.home.CoreV1().Pods("private").Get(s.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			} else if err != nil {
				s.Fatal(err)
			}
			return pod
		}
		if synctest.Wait(); there("going") == nil {
			s.Error("a pod was let go that may run abroad")
		}
		s.say(twinLine("private", ""), twinLine("kube-system", ""), offloadedLine("private", "going", ""), synced)
		calls := s.twins.since()
		slices.Sort(calls)
		if calls = slices.Compact(calls); !slices.Equal(calls, []string{"release kube-system", "release private"}) {
			s.Errorf("asked %q", calls)
		}
		if now := there("agent"); now == nil || now.Status.Phase != corev1.PodFailed || now.Status.ContainerStatuses[0].State.Terminated == nil || now.Status.ContainerStatuses[0].State.Terminated.Reason != "NotOffloaded" {
			s.Errorf("%+v", now)
		}
		if there("going") == nil {
			s.Error("a pod was let go that runs abroad")
		}
		s.say(offloadedLine("private", "going", `"gone":true,`))
		if there("going") != nil {
			s.Error("the pod that was deleted is still there")
		}
		if err := s.node.Open(s.Context(), "private"); err == nil || !strings.Contains(err.Error(), "why of private") {
			s.Errorf("a twin for it: %v", err)
		}
	})
}

func TestPodsTolerateTheTaintThatEvictsBeforeItIsThere(t *testing.T) {
	before := corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	pods := []*corev1.Pod{
		onNode("shop", "old", before), onNode("shop", "bare"), onNode("shop", "new", corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}),
		onNode("shop", "wide", corev1.Toleration{Operator: corev1.TolerationOpExists}), onNode("elsewhere", "stays", before), onNode("private", "stray", before),
	}
	n, home, _ := permitted(t, &askedTwins{}, map[string]offloading.Permit{"shop": offloading.Granted, "elsewhere": offloading.Refused}, pods...)
	n.state.labels = map[string]string{corev1.LabelTopologyZone: "bob"}
	nodes := home.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), "kith-bob", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mine := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule}
	node.Labels = map[string]string{"mine": "too", corev1.LabelTopologyZone: "what the peer said"}
	node.Spec.Taints = []corev1.Taint{mine, {Key: v1alpha1.TaintPeer, Value: "bob", Effect: corev1.TaintEffectNoSchedule}}
	if _, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.ensureLabelsAndTaints(t.Context(), n.node("v1")); err != nil {
			t.Fatal(err)
		}
	}
	if node, err = nodes.Get(t.Context(), "kith-bob", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := append([]corev1.Taint{mine}, n.taints()...); !slices.Equal(node.Spec.Taints, want) {
		t.Errorf("taints %v, want %v", node.Spec.Taints, want)
	}
	if node.Labels["mine"] != "too" || node.Labels[corev1.LabelTopologyZone] != "bob" {
		t.Errorf("labels %v", node.Labels)
	}
	for name, added := range map[string]int{"shop/old": 1, "shop/bare": 1, "shop/new": 0, "shop/wide": 0, "elsewhere/stays": 1, "private/stray": 0} {
		namespace, pod, _ := strings.Cut(name, "/")
		now, err := home.CoreV1().Pods(namespace).Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == pod })
		if got := len(now.Spec.Tolerations) - len(pods[at].Spec.Tolerations); got != added {
			t.Errorf("%s got %d tolerations, want %d: %v", name, got, added, now.Spec.Tolerations)
		}
	}
	// The order: the taint is the last write.
	var writes []string
	for _, a := range home.Actions() {
		if a.GetVerb() == "patch" || a.GetVerb() == "update" {
			writes = append(writes, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	if want := []string{"update nodes", "patch pods", "patch pods", "patch pods", "update nodes"}; !slices.Equal(writes, want) {
		t.Errorf("writes %v, want %v", writes, want)
	}
}

// TestAPodOfNobodyKnowsWhomDoesNotGo: at the peer it would be this cluster's own.
func TestAPodOfNobodyKnowsWhomDoesNotGo(t *testing.T) {
	n, _, _ := permitted(t, &askedTwins{}, map[string]offloading.Permit{"shop": offloading.Granted})
	n.cfg.Onward = func(string) (remote.Onward, bool) { return remote.Onward{}, true }
	if err := n.create(t.Context(), &twin{home: "shop", name: "shop-x"}, onNode("shop", "web")); err == nil || !strings.Contains(err.Error(), "shop") {
		t.Errorf("it goes: %v", err)
	}
}
