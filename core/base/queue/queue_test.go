package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
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
	named := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "DynamicClientCertificate"}) // of client-go
	defer named.ShutDown()
	time.Sleep(10 * time.Millisecond)
	stacks := make([]byte, 1<<20)
	if s := string(stacks[:runtime.Stack(stacks, true)]); strings.Contains(s, "updateUnfinishedWorkLoop") || strings.Contains(s, "logState") {
		t.Error("the queue keeps metrics up to date, or logs, and so wakes by itself:\n" + s)
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

// TestServe: so many at a time and no more, what fails is tried again, what panics too, and each once it is over ends.
func TestServe(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, 10*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var log bytes.Buffer
	now, most, tries := 0, 0, map[string]int{}
	var all, served sync.WaitGroup
	for i := range 20 {
		all.Add(1)
		q.Add(fmt.Sprint(i))
	}
	served.Go(func() {
		Serve(ctx, slog.New(slog.NewTextHandler(&log, nil)), q, 3, func(_ context.Context, item string) error {
			mu.Lock()
			now++
			most = max(most, now)
			tries[item]++
			try := tries[item]
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			switch {
			case item == "7" && try == 1:
				return errors.New("not yet")
			case item == "8" && try == 1:
				panic("a bug")
			case try == 1 || item == "7" || item == "8":
				all.Done()
			}
			return nil
		})
	})
	all.Wait()
	cancel()
	served.Wait()
	if most != 3 {
		t.Errorf("%d at a time", most)
	}
	if tries["7"] != 2 || tries["8"] != 2 || tries["1"] != 1 || q.NumRequeues("7") != 0 {
		t.Errorf("tries: %v", tries)
	}
	if got := log.String(); !strings.Contains(got, "report it") || !strings.Contains(got, "queue_test.go") || strings.Contains(got, "not yet") {
		t.Errorf("the log says %s", got)
	}
}
