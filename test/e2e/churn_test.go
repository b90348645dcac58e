//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/test/lab"
)

const (
	// churnLimit is what the database and its log may take together, whatever comes and goes.
	churnLimit = 128 << 20
	// churnKept is what they may take some time after: a small cluster, and the newest ten thousand events.
	churnKept = 40 << 20
)

// TestTwentyThousandPodsComeAndGo makes and deletes pods as fast as it goes, loses power in the middle, and looks at what the
// datastore takes of the disk: all the time, and when what may still be asked for has become little. Nobody schedules the
// pods: their lives are written as anyone's, and no container runs. KITH_LIVES makes it shorter, or longer.
func TestTwentyThousandPodsComeAndGo(t *testing.T) {
	lives, err := strconv.Atoi(os.Getenv("KITH_LIVES"))
	if err != nil {
		lives = 20_000
	}
	l := laptops(t, lab.Options{Laptops: 1})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), apis: map[string]client.Client{}}
	calm := w.powerLoss()
	kubectl(t, w.alice, "create", "namespace", "churn")

	ctx, stop := context.WithCancel(t.Context())
	var largest atomic.Int64
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			if at := w.stored(); at > largest.Load() {
				largest.Store(at)
			}
		}
	})
	began := time.Now()
	lived := w.churn(lives/2, nil)
	first, half := lived, time.Since(began)

	// Power goes while the next ones are half way through their lives.
	cut := make(chan struct{})
	go func() { time.Sleep(5 * time.Second); close(cut) }()
	go func() { <-cut; _ = w.alice.Kill(t.Context()) }()
	lived += w.churn(lives, cut)
	eventually(t, 30*time.Second, "alice is off", func() string {
		if _, err := w.alice.Info(); err == nil && w.stored() != 0 {
			return "she is on"
		}
		return ""
	})
	busy := w.boot()
	for lived < lives {
		lived += w.churn(lives-lived, nil)
	}
	stop()
	watcher.Wait()
	t.Logf("%d lives in %s (the first %d in %s); at most %d MB; boots: %s calm, %s under load",
		lived, time.Since(began).Round(time.Second), first, half.Round(time.Second), largest.Load()>>20, calm.Round(100*time.Millisecond), busy.Round(100*time.Millisecond))
	if largest.Load() > churnLimit {
		t.Errorf("database and log took %d MB, and may take %d", largest.Load()>>20, churnLimit>>20)
	}
	if busy > calm+calm/2+2*time.Second {
		t.Errorf("a boot after power loss under load took %s, otherwise %s", busy, calm)
	}

	// What was replaced may be asked for until the API server has compacted it, twice five minutes later, or three times after a boot.
	took := eventually(t, 17*time.Minute, "the datastore has shrunk", func() string {
		if now := w.stored(); now > churnKept {
			return fmt.Sprintf("database and log take %d MB", now>>20)
		}
		return ""
	})
	t.Logf("down to %d MB after %s", w.stored()>>20, took.Round(time.Second))
}

// stored is the size of database and log.
func (w *world) stored() (sum int64) {
	for _, name := range []string{"state.db", "state.db-wal"} {
		if st, err := os.Stat(w.alice.Path(filepath.Join("/var/lib/kith/k8s/db", name))); err == nil {
			sum += st.Size()
		}
	}
	return sum
}

// powerLoss tells how long a boot takes after one.
func (w *world) powerLoss() time.Duration {
	w.t.Helper()
	if err := w.alice.Kill(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return w.boot()
}

func (w *world) boot() time.Duration {
	w.t.Helper()
	began := time.Now()
	if err := w.alice.Boot(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	if err := w.alice.WaitReady(ctx, nil); err != nil {
		w.t.Fatal(err)
	}
	clear(w.apis)
	return time.Since(began)
}

// churn lets n pods come and go, or as many as there are until cut, and tells how many did. Those that a cut left are
// deleted by the next call.
func (w *world) churn(n int, cut <-chan struct{}) int {
	w.t.Helper()
	api, err := apiOf(w.alice, time.Minute) // how long a write takes is not the matter here
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	if cut != nil {
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
	} else if err := api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("churn"), client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatal(err)
	}
	run := time.Now().UnixNano()
	var next, done atomic.Int64
	var writers sync.WaitGroup
	for range 12 {
		writers.Go(func() {
			for i := next.Add(1); i <= int64(n) && ctx.Err() == nil; i = next.Add(1) {
				if err := live(ctx, api, fmt.Sprintf("life-%d-%d", run, i)); err != nil {
					if cut == nil {
						w.t.Errorf("pod %d: %v", i, err)
					}
					return
				}
				done.Add(1)
			}
		})
	}
	writers.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
	return int(done.Load())
}

// live is what a pod's life writes: made, three statuses with an event each, deleted.
func live(ctx context.Context, api client.Client, name string) error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "churn", Labels: labels.Set{"app": "churn"}, Annotations: map[string]string{"note": "nobody runs it"}},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "c", Image: "kith.dev/echo:1", Command: []string{"/app", "serve"},
				Env:       []corev1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "two"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}},
			}},
		},
	}
	if err := api.Create(ctx, p); err != nil {
		return err
	}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded} {
		p.Status.Phase, p.Status.HostIP, p.Status.Message = phase, "192.0.2.200", string(phase)
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		}
		if err := api.Status().Update(ctx, p); err != nil {
			return err
		}
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: name + ".", Namespace: "churn"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "churn", Name: name, UID: p.UID},
			Reason:         "Lives", Message: "Pod " + name + " is " + string(phase) + ", though nobody runs it", Type: corev1.EventTypeNormal,
			Source: corev1.EventSource{Component: "churn", Host: "nobody"}, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
		}
		if err := api.Create(ctx, e); err != nil {
			return err
		}
	}
	return api.Delete(ctx, p, client.GracePeriodSeconds(0))
}
