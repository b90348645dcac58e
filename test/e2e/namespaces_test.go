//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// namespacesComeAndGo: nothing is left of them, and what is left of others is cleared when somebody finds it.
func namespacesComeAndGo(t *testing.T, l *lab.Lab) {
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	eventually(t, 30*time.Second, "all is well", w.well)
	w.passing(6, 6)

	// A twin of which alice knows nothing: her disk was set back, or the deletion was lost on an older Kith.
	api, err := w.api(w.bob)
	if err != nil {
		t.Fatal(err)
	}
	var shop corev1.Namespace
	if err := api.Get(t.Context(), client.ObjectKey{Name: twinAt(t, w.bob, "shop")}, &shop); err != nil {
		t.Fatal(err)
	}
	leak := func(home string) {
		left := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: strings.Replace(shop.Name, "shop", home, 1), Labels: maps.Clone(shop.Labels)}}
		left.Labels[v1alpha1.LabelHomeNamespace] = home
		if err := api.Create(t.Context(), left); err != nil {
			t.Fatal(err)
		}
	}
	leak("churn-leaked")
	eventually(t, 30*time.Second, "what alice knows nothing of is cleared away", func() string { return w.leftovers("churn-") })
	// The same while her daemon does not run.
	if err := w.alice.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	leak("churn-while-away")
	if err := w.alice.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "what was left while alice was away is cleared away", func() string { return w.leftovers("churn-") })
	twinAt(t, w.bob, "shop") // which she needs
}

// passing makes that many namespaces, as many at once as workers, has a pod in each run at bob, and deletes it, without waiting for
// its end. In the end nothing of them is left on either side, and the two were connected all the time.
func (w *world) passing(namespaces, workers int) {
	t := w.t
	t.Helper()
	home, err := apiOf(w.alice, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute+time.Duration(namespaces)*10*time.Second)
	defer stop()
	watched, done := context.WithCancel(ctx)
	linked := make(chan []string)
	go func() { linked <- w.flaps(watched) }()

	began := time.Now()
	var next, ran atomic.Int32
	var most atomic.Int64
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for i := next.Add(1); int(i) <= namespaces && ctx.Err() == nil; i = next.Add(1) {
				took, err := visit(ctx, home, fmt.Sprintf("churn-%d", i))
				if err != nil {
					t.Errorf("namespace %d: %v", i, err)
					continue
				}
				if n := ran.Add(1); n%50 == 0 {
					t.Logf("%d after %s", n, time.Since(began).Round(time.Second))
				}
				for was := most.Load(); int64(took) > was && !most.CompareAndSwap(was, int64(took)); was = most.Load() {
				}
			}
		})
	}
	work.Wait()
	used := time.Since(began)
	left := eventually(t, time.Minute+time.Duration(namespaces)*2*time.Second, "nothing is left on either side", func() string { return w.leftovers("churn-") })
	t.Logf("%d of %d namespaces were used by a pod abroad in %s, %.1f a second, the slowest of them in %s; the last was gone on both sides %s later",
		ran.Load(), namespaces, used.Round(time.Millisecond), float64(ran.Load())/used.Seconds(), time.Duration(most.Load()).Round(time.Millisecond), left.Round(time.Millisecond))
	done()
	if lost := <-linked; len(lost) > 0 {
		t.Errorf("the link was lost %d times: %v", len(lost), lost[:min(len(lost), 5)])
	}
}

// visit makes a namespace that is offloaded, and a pod in it that runs at bob, and deletes the namespace. It gives how long it took
// until the pod ran.
func visit(ctx context.Context, home client.Client, name string) (time.Duration, error) {
	began := time.Now()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}
	if err := home.Create(ctx, ns); err != nil {
		return 0, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "guest"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: "kith-bob"}, TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "echo", Image: "kith.dev/echo:1", ImagePullPolicy: corev1.PullIfNotPresent,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}}}},
		},
	}
	for { // the account of a new namespace is made a moment after it
		err := home.Create(ctx, pod)
		if err == nil || apierrors.IsAlreadyExists(err) {
			break
		}
		if ctx.Err() != nil || time.Since(began) > 5*time.Minute {
			return 0, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	for pod.Status.Phase != corev1.PodRunning {
		time.Sleep(250 * time.Millisecond)
		err := home.Get(ctx, client.ObjectKeyFromObject(pod), pod) // on a busy machine it takes its time
		if time.Since(began) > 10*time.Minute || ctx.Err() != nil {
			return 0, fmt.Errorf("after %s its pod is %s on %q: %s %s, %w", time.Since(began).Round(time.Second), pod.Status.Phase, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message, err)
		}
	}
	return time.Since(began), home.Delete(ctx, ns)
}

// leftovers tells what there still is of namespaces that begin like this: at home, their twins, and what is in those.
func (w *world) leftovers(prefix string) string {
	for _, p := range []*lab.Laptop{w.alice, w.bob} {
		var list corev1.NamespaceList
		if err := w.list(p, &list); err != nil {
			return err.Error()
		}
		var names []string
		for _, ns := range list.Items {
			if strings.HasPrefix(ns.Name, prefix) {
				names = append(names, ns.Name)
			}
		}
		if len(names) > 0 {
			return fmt.Sprintf("%s has %d namespaces: %v", p.Name(), len(names), names[:min(len(names), 5)])
		}
	}
	return ""
}

// peersSaid is peers without the command, which costs more than what it asks.
func peersSaid(p *lab.Laptop) (list []peer, err error) {
	resp, err := local(p).Get("http://kithd/v1/peers")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return list, json.NewDecoder(resp.Body).Decode(&list)
}

// flaps looks at the link each second until ctx ends, and gives each time that it was not as it should be.
func (w *world) flaps(ctx context.Context) (lost []string) {
	for was := ""; ; {
		select {
		case <-ctx.Done():
			return lost
		case <-time.After(time.Second):
		}
		for _, one := range []struct {
			at   *lab.Laptop
			peer string
		}{{w.alice, "bob"}, {w.bob, "alice"}} {
			list, err := peersSaid(one.at)
			if ctx.Err() != nil || err != nil {
				continue // the machine is busy; the daemon's own word counts
			}
			i := slices.IndexFunc(list, func(p peer) bool { return p.Name == one.peer })
			if i >= 0 && list[i].Reachable && (list[i].Outgoing == "connected" || list[i].Incoming == "connected") {
				continue
			}
			if is := fmt.Sprintf("%s: %+v", one.at.Name(), list); is != was {
				was, lost = is, append(lost, time.Now().Format("15:04:05 ")+is)
			}
		}
	}
}
