package queue

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestQueueServesAndHasNoTimerForMetrics(t *testing.T) {
	q := New("some-controller", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second))
	defer q.ShutDown()
	want := reconcile.Request{}
	want.Name = "x"
	q.AddAfter(want, time.Millisecond)
	got, ended := q.Get()
	if got != want || ended {
		t.Fatalf("%v %v", got, ended)
	}
	q.Done(got)
	stacks := make([]byte, 1<<20)
	if s := string(stacks[:runtime.Stack(stacks, true)]); strings.Contains(s, "updateUnfinishedWorkLoop") {
		t.Error("the queue keeps metrics up to date, and so wakes twice a second:\n" + s)
	}
}

func TestWhatIsPutInBeforeTheControllerRunsWaitsForIt(t *testing.T) {
	var inbox Inbox
	early, late := types.NamespacedName{Name: "early"}, types.NamespacedName{Name: "late"}
	inbox.Add(early)
	q := New("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second))
	defer q.ShutDown()
	if err := inbox.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	inbox.Add(late)
	inbox.Add(late)
	for _, want := range []types.NamespacedName{early, late} {
		got, _ := q.Get()
		if q.Done(got); got.NamespacedName != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if q.Len() != 0 {
		t.Errorf("%d more", q.Len())
	}
}
