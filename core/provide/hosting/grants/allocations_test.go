package grants

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestBookAdmitsUpToTheLimit(t *testing.T) {
	b := NewAllocations()
	limit := list("cpu", "1", "memory", "1Gi", "pods", "3")
	pod := list("cpu", "400m", "memory", "100Mi", "pods", "1")
	for i := range 2 {
		if no := b.Admit(key("a", fmt.Sprint(i)), "c1", pod, limit); no != nil {
			t.Fatal(no)
		}
	}
	no := b.Admit(key("b", "2"), "c1", pod, limit)
	if no == nil || no.Reason != reasonExceeded || no.Message != "contract c1 would be exceeded: cpu: the pod asks for 400m, 800m of 1 is in use" {
		t.Errorf("third: %v", no)
	}
	if no := b.Admit(key("b", "gpu"), "c1", list("pods", "1", "nvidia.com/gpu", "1"), limit); no == nil || !strings.Contains(no.Message, "nvidia.com/gpu: the pod asks for 1, 0 of 0 is in use") {
		t.Errorf("not offered: %v", no)
	}
	if no := b.Admit(key("b", "2"), "c2", pod, limit); no != nil {
		t.Errorf("another contract: %v", no)
	}
	if no := b.Admit(key("a", "0"), "c1", pod, list("pods", "0")); no != nil {
		t.Errorf("made again after the contract was lowered: %v", no)
	}
	if no := b.Admit(key("a", "0"), "c1", list("cpu", "601m", "pods", "1"), limit); no == nil {
		t.Error("grown past the limit")
	}
	if no := b.Admit(key("a", "0"), "c1", list("cpu", "600m", "pods", "1"), limit); no != nil {
		t.Error("grown up to the limit:", no)
	}
	if used := b.Used("c1"); !equality.Semantic.DeepEqual(used, list("cpu", "1", "memory", "100Mi", "pods", "2")) {
		t.Errorf("used %v", used)
	}
	b.Release(key("a", "0"))
	b.Release(key("a", "0"))
	b.Release(key("a", "1"))
	if used := b.Used("c1"); len(used) != 0 {
		t.Errorf("all gone, yet used %v", used)
	}
}

func TestBookNeverExceedsWhateverTheOrder(t *testing.T) {
	b := NewAllocations()
	limit := list("cpu", "10", "pods", "40")
	var work sync.WaitGroup
	for w := range 16 {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			for range 2000 {
				k := key(fmt.Sprint(rnd.IntN(4)), fmt.Sprint(rnd.IntN(50)))
				if rnd.IntN(2) == 0 {
					b.Release(k)
				} else {
					b.Admit(k, "c", list("cpu", fmt.Sprintf("%dm", 100+rnd.IntN(900)), "pods", "1"), limit)
				}
				if used := b.Used("c"); used.Cpu().MilliValue() > 10_000 || used.Pods().Value() > 40 || used.Cpu().Sign() < 0 {
					t.Errorf("used %v", used)
					return
				}
			}
		})
	}
	work.Wait()
	for k := range b.pods {
		b.Release(k)
	}
	if len(b.sums) != 0 {
		t.Errorf("left %v", b.sums)
	}
}

func TestBookKnowsWhoWaits(t *testing.T) {
	b := NewAllocations()
	b.Enter(key("a", "holder"), "c1", "", list("cpu", "1"))
	b.NoteRefused(key("a", "room"), RefusedPod{Contract: "c1", No: Refusal{Reason: reasonExceeded, Message: ""}, Runs: false})
	b.NoteRefused(key("a", "level"), RefusedPod{Contract: "c1", No: Refusal{Reason: ReasonPodSecurity, Message: ""}, Runs: false})
	b.NoteRefused(key("b", "room"), RefusedPod{Contract: "c2", No: Refusal{Reason: reasonExceeded, Message: ""}, Runs: false})
	b.NoteRefused(key("z", "none"), RefusedPod{Contract: "", No: Refusal{Reason: ReasonNoContract, Message: ""}, Runs: false})
	if got := b.Release(key("a", "holder")); len(got) != 1 || got[0] != key("a", "room") {
		t.Errorf("room under c1 is waited for by %v", got)
	}
	b.Enter(key("a", "runs"), "c1", "", nil)
	if got := b.Under("c1"); len(got) != 4 {
		t.Errorf("a change of c1 concerns %v", got)
	}
	b.ForgetRefused(key("a", "level"))
	b.Release(key("a", "runs"))
	if got := b.Under("c1"); len(got) != 2 {
		t.Errorf("after one was settled: %v", got)
	}
	// A pod that moves to another contract with its namespace takes its amounts along.
	b.Enter(key("a", "mover"), "c1", "", list("cpu", "1"))
	b.Enter(key("a", "mover"), "c2", "", list("cpu", "1"))
	if used := b.Used("c2"); len(b.Used("c1")) != 0 || used.Cpu().Value() != 1 {
		t.Errorf("moved: %v, %v", b.Used("c1"), b.Used("c2"))
	}
}

func TestBookTellsOfOtherRefusals(t *testing.T) {
	b := NewAllocations()
	told := 0
	b.onRefused = func() { told++ }
	for want, step := range []func(){
		func() { b.ForgetRefused(key("a", "web")) }, // was never refused
		func() {
			b.NoteRefused(key("a", "web"), RefusedPod{Contract: "c1", No: Refusal{Reason: reasonExceeded, Message: "no room"}, Runs: false})
		},
		func() {
			b.NoteRefused(key("a", "web"), RefusedPod{Contract: "c1", No: Refusal{Reason: reasonExceeded, Message: "less room"}, Runs: false})
		},
		func() { b.ForgetRefused(key("a", "web")) },
	} {
		for range 2 { // the second time it is nothing new
			step()
		}
		if told != want {
			t.Errorf("told %d times, want %d", told, want)
		}
	}
}

func TestBookSaysWhatToPublishOnce(t *testing.T) {
	b := NewAllocations()
	for i := range 100 {
		b.Enter(key("a", fmt.Sprint(i)), "c1", "", list("pods", "1"))
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	if err := b.changed.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if r, _ := queue.Get(); r.Name != "c1" || queue.Len() != 0 {
		t.Errorf("to be published: %s, and %d more", r.Name, queue.Len())
	}
}

// However fast pods come and go, a contract's use is written once in a while, and the last word is.
func TestUseIsWrittenSeldomAndToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, _ := peerOf("bob", 1)
		d := newProvider(t, peer, contractWith("bob", "contractb"))
		if err := d.contracts.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish, began := d.contracts.publisher(d.allocations), time.Now()
		written := func() int64 {
			var c v1alpha1.Contract
			if err := d.client.Get(t.Context(), types.NamespacedName{Name: "bob-contractb"}, &c); err != nil {
				t.Fatal(err)
			}
			return c.Status.Used.Pods().Value()
		}
		for i := range 3 {
			d.allocations.Enter(key("a", fmt.Sprint(i)), "contractb", "", list("pods", "1"))
			result, err := publish(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "contractb"}})
			if err != nil || result.RequeueAfter != map[bool]time.Duration{false: publishEvery}[i == 0] || written() != 1 {
				t.Errorf("change %d: %+v, %v, %d written", i, result, err, written())
			}
		}
		time.Sleep(publishEvery)
		if result, err := publish(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "contractb"}}); err != nil || !result.IsZero() || written() != 3 {
			t.Errorf("after %s: %+v, %v, %d written", time.Since(began), result, err, written())
		}
	})
}

func TestAPodThatIsThereCountsWhatItAskedFor(t *testing.T) {
	b := NewAllocations()
	key := types.NamespacedName{Namespace: "a", Name: "p"}
	if no := b.Admit(key, "c", cpus("1m"), cpus("300m")); no != nil {
		t.Fatal(no)
	}
	b.Enter(key, "c", "", cpus("300m")) // another pod of that name, made before
	if no := b.Admit(types.NamespacedName{Namespace: "a", Name: "q"}, "c", cpus("1m"), cpus("300m")); no == nil {
		t.Error("there is room beside a pod that has all of it")
	}
	b.Enter(key, "c", "", cpus("2m"))
	if used := b.Used("c"); used.Cpu().String() != "300m" {
		t.Errorf("%s are in use", used.Cpu())
	}
}

func cpus(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func TestBookCorrectsAmountsAndWakesThoseThatWait(t *testing.T) {
	b := NewAllocations()
	b.Enter(key("a", "big"), "c1", "", list("cpu", "1"))
	b.NoteRefused(key("a", "runs"), RefusedPod{Contract: "c1", No: Refusal{Reason: reasonExceeded, Message: ""}, Runs: true})
	if got := b.Correct(key("a", "big"), list("cpu", "1")); got != nil {
		t.Errorf("nothing changed, yet %v is to be looked at", got)
	}
	if got := b.Correct(key("a", "big"), list("cpu", "500m")); len(got) != 1 || got[0].Name != "runs" {
		t.Errorf("room for %v", got)
	}
	if got := b.Used("c1"); got.Cpu().String() != "500m" {
		t.Errorf("used %v", got)
	}
	if got := b.Correct(key("a", "unknown"), list("cpu", "9")); got != nil || !b.Used("c1")["cpu"].Equal(list("cpu", "500m")["cpu"]) {
		t.Error("a pod without a place was counted")
	}
}

func TestUseOfAContractIsWrittenHoweverFarBehindTheCacheIs(t *testing.T) {
	peer, _ := peerOf("bob", 1)
	d := newProvider(t, peer, contractWith("bob", "contractb"))
	get := func(into *v1alpha1.Contract) {
		t.Helper()
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: "bob-contractb"}, into); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.contracts.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() { d.allocations.Enter(key(bobsShop, "p"), "contractb", "", list("cpu", "1")) }, "1"},
		{func() { d.allocations.Release(key(bobsShop, "p")) }, "0"},
	} {
		c.do()
		if err := d.contracts.publishOne(t.Context(), d.allocations, "contractb"); err != nil {
			t.Fatal(err)
		}
		var now v1alpha1.Contract
		if get(&now); now.Status.Used.Cpu().String() != c.want {
			t.Errorf("used %v, want cpu %s", now.Status.Used, c.want)
		}
	}
}

// Of a cluster that is not ours its owner says by an annotation whether its nodes can; virtual nodes run no guests.
func TestGuestsHaveUserNamespacesWhereAllNodesCan(t *testing.T) {
	node := func(name, word string, labels map[string]string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if word != "" {
			n.Annotations = map[string]string{v1alpha1.AnnotationUserNamespaces: word}
		}
		return n
	}
	virtual := node("kith-alice", "", map[string]string{v1alpha1.LabelPeer: "alice"})
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		want  bool
	}{
		"none":                  {[]*corev1.Node{virtual}, false},
		"one that can":          {[]*corev1.Node{node("a", "yes", nil), virtual}, true},
		"one that says nothing": {[]*corev1.Node{node("a", "", nil)}, false},
		"one that cannot":       {[]*corev1.Node{node("a", "yes", nil), node("b", "the kernel is too old", nil)}, false},
	} {
		d := newProvider(t)
		for _, n := range c.nodes {
			if err := d.client.Create(t.Context(), n.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.contracts.userNamespaces(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}

// TestAPartIsALimitOfItsOwn: a pod counts for the contract, and for the place that it is to run at, until it is gone.
func TestAPartIsALimitOfItsOwn(t *testing.T) {
	b := NewAllocations()
	whole, carol, own := list("cpu", "1"), &Part{ID: "C", Peer: "carol", Limit: list("cpu", "400m")}, &Part{ID: "B", Limit: list("cpu", "600m")}
	one := list("cpu", "300m")
	admit := func(name string, at *Part, requests corev1.ResourceList, want string) {
		t.Helper()
		got := ""
		if no := b.AdmitTo(key("a", name), "c", at, requests, whole); no != nil {
			got = no.Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	admit("1", carol, one, "")
	admit("2", carol, one, "what contract c has at carol would be exceeded: cpu: the pod asks for 300m, 300m of 400m is in use")
	admit("1", carol, list("cpu", "400m"), "")
	admit("2", own, one, "")
	admit("3", own, list("cpu", "400m"), "contract c would be exceeded: cpu: the pod asks for 400m, 700m of 1 is in use")
	admit("3", nil, one, "")
	b.Correct(key("a", "1"), list("cpu", "100m"))
	admit("4", own, list("cpu", "301m"), "contract c would be exceeded: cpu: the pod asks for 301m, 700m of 1 is in use")
	b.Enter(key("a", "2"), "c", "", list("cpu", "200m")) // as it is
	admit("5", carol, one, "")
	for i := range 5 {
		b.Release(key("a", fmt.Sprint(i+1)))
	}
	if len(b.sums) > 0 {
		t.Errorf("left: %v", b.sums)
	}
}
