package backend

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/find/directory"
	"kith.dev/core/local/cluster"
)

// rung tells whether the desktops hear of something that happens within a moment.
func rung(b *Backend, happens func()) bool {
	changed := b.Changed()
	happens()
	synctest.Wait()
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// moody is an engine that changes.
type moody struct {
	cluster.Engine
	changed chan struct{}
}

func (m *moody) Changed() <-chan struct{} { return m.changed }

func TestDesktopsHearOfTheEngineAndTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &moody{changed: make(chan struct{})}
		d := &Backend{Engine: engine, News: &notify.Broadcast{}}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = d.WatchEngine(ctx) }()
		var disk atomic.Pointer[[2]string]
		disk.Store(&[2]string{"9 GiB free", ""})
		go func() {
			_ = watchDisk(ctx, func() (room, trouble string) { s := disk.Load(); return s[0], s[1] }, d.News.Notify)
		}()
		synctest.Wait()
		if rung(d, func() { disk.Store(&[2]string{"8 GiB free", ""}); time.Sleep(time.Hour) }) {
			t.Error("somebody heard, and nothing happened")
		}
		if !rung(d, func() {
			was := engine.changed
			engine.changed = make(chan struct{})
			close(was)
		}) {
			t.Error("the engine is another, and nobody heard")
		}
		for _, is := range [][2]string{{"1 GiB free", "images of pods need room"}, {"8 GiB free", ""}} {
			if !rung(d, func() { disk.Store(&is); time.Sleep(diskEvery) }) {
				t.Errorf("the disk says %q, and nobody heard", is)
			}
		}
		cancel()
	})
}

func TestDesktopsHearOfATunnelThatDoesNotComeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Backend{News: &notify.Broadcast{}, Cluster: func() *Cluster { return nil }, Failing: func() []api.Problem { return nil }}
		bob := directory.Known{
			Name: "bob", Contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: time.Now()}},
			Peer: &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{
				State: v1alpha1.StateConnected, Contract: "c", Since: &metav1.Time{Time: time.Now().Add(-time.Hour)},
			}}},
		}
		look := func() int {
			return len(d.problems(t.Context(), api.Engine{State: api.EngineReady}, []directory.Known{bob}))
		}
		if n := look(); n != 0 {
			t.Errorf("%d problems at first", n)
		}
		if rung(d, func() { time.Sleep(15*time.Second - time.Millisecond) }) {
			t.Error("somebody heard too soon")
		}
		if !rung(d, func() { time.Sleep(time.Millisecond) }) || look() != 1 {
			t.Error("the tunnel is down, and nobody heard")
		}
		if rung(d, func() { time.Sleep(time.Hour) }) {
			t.Error("it is told again and again")
		}
	})
}

func TestDesktopsHearOfPodsThatAreNotJustAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Backend{News: &notify.Broadcast{}}
		home := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "alice"}}
		guest := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelConsumer: "bob"}}}
		abroad := &corev1.Pod{Spec: corev1.PodSpec{NodeName: v1alpha1.VirtualNodePrefix + "bob", Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintPeer}}}}
		for name, tc := range map[string]struct {
			obj  any
			want bool
		}{
			"at home": {home, false}, "a guest": {guest, true}, "abroad": {abroad, true},
			"gone, at home": {toolscache.DeletedFinalStateUnknown{Obj: home}, false}, "gone, a guest": {toolscache.DeletedFinalStateUnknown{Obj: guest}, true},
			"a peer": {&v1alpha1.Peer{}, true},
		} {
			if got := rung(d, func() { d.notifyFor(tc.obj) }); got != tc.want {
				t.Errorf("%s: heard %t, want %t", name, got, tc.want)
			}
		}
	})
}

func TestHeartbeatsOfNodesAreNoNews(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob", ResourceVersion: "1"}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		}}
		change(n)
		return n
	}
	was := node(func(*corev1.Node) {})
	for name, tc := range map[string]struct {
		is   any
		want bool
	}{
		"a minute later": {node(func(n *corev1.Node) {
			n.ResourceVersion, n.Annotations = "2", map[string]string{"virtual-kubelet.io/last-applied-node-status": "{}"}
			n.Status.Conditions[0].LastHeartbeatTime.Time = time.Now().Add(time.Minute)
		}), true},
		"not ready":    {node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }), false},
		"why":          {node(func(n *corev1.Node) { n.Status.Conditions[0].Message = "the peer is away" }), false},
		"less to give": {node(func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1") }), false},
		"cordoned":     {node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), false},
		"a pod":        {&corev1.Pod{}, false},
	} {
		if got := heartbeat(was, tc.is); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
