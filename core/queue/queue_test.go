package queue

import (
	"runtime"
	"strings"
	"testing"
	"time"

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
