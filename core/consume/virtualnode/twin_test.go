package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/remote"
)

// askedTwins notes what Twins is asked for, and refuses when told to.
type askedTwins struct {
	mu     sync.Mutex
	calls  []string
	refuse error
}

func (a *askedTwins) note(format string, args ...any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
	return a.refuse
}

func (a *askedTwins) answer(refuse error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = refuse
}

func (a *askedTwins) Ensure(_ context.Context, home string) (string, error) {
	return home + "-x", a.note("ensure %s", home)
}
func (a *askedTwins) Release(_ context.Context, home string) error { return a.note("release %s", home) }
func (a *askedTwins) Found(home, twin string, settled bool) {
	_ = a.note("found %s %s %t", home, twin, settled)
}
func (a *askedTwins) Gone(home string) { _ = a.note("gone %s", home) }

func (a *askedTwins) since() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.calls
	a.calls = nil
	return now
}

// stand is a node whose peer says what the test has it say.
type stand struct {
	*testing.T
	node  *Node
	home  *fake.Clientset
	twins *askedTwins
	peer  *io.PipeWriter

	permits sync.Map // of namespaces, where it is another than Granted
}

const synced = `{"kind":"Synced"}`

func (s *stand) say(lines ...string) {
	s.Helper()
	synctest.Wait()
	for _, line := range lines {
		if _, err := io.WriteString(s.peer, line+"\n"); err != nil {
			s.Fatal(err)
		}
	}
	synctest.Wait()
}

func (s *stand) want(calls ...string) {
	s.Helper()
	synctest.Wait()
	if got := s.twins.since(); !slices.Equal(got, calls) {
		s.Errorf("asked %q, want %q", got, calls)
	}
}

func twinLine(home, more string) string {
	return fmt.Sprintf(`{"kind":"Namespace",%s"object":{"metadata":{"name":"%s-x","labels":{"kith.dev/home-namespace":%q}}}}`, more, home, home)
}

func leavingLine(home string) string {
	return fmt.Sprintf(`{"kind":"Namespace","object":{"metadata":{"name":"%s-x","labels":{"kith.dev/home-namespace":%q},"deletionTimestamp":"2026-01-01T00:00:00Z"}}}`, home, home)
}

func offloadedLine(home, pod, more string) string {
	return fmt.Sprintf(`{"kind":"OffloadedPod",%s"object":{"metadata":{"namespace":"%s-x","name":%q,"uid":"u"},"spec":{"homeNamespace":%q,"homeUID":"h"}}}`, more, home, pod, home)
}

func offloadedNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}
}

// away answers nothing.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("away") }

// copies are a watch's events, whose objects are those of this watch alone.
type copies struct {
	watch.Interface
	events chan watch.Event
	ended  chan struct{}
	end    func()
}

func copying(w watch.Interface) *copies {
	c := &copies{Interface: w, events: make(chan watch.Event), ended: make(chan struct{})}
	c.end = sync.OnceFunc(func() { close(c.ended) })
	go func() {
		defer close(c.events)
		for e := range w.ResultChan() {
			e.Object = e.Object.DeepCopyObject()
			select {
			case c.events <- e:
			case <-c.ended:
				return
			}
		}
	}()
	return c
}

func (c *copies) ResultChan() <-chan watch.Event { return c.events }
func (c *copies) Stop()                          { c.end(); c.Interface.Stop() }

// standing runs a node's work, without its registration, in a bubble.
func standing(t *testing.T, story func(s *stand), namespaces ...*corev1.Namespace) {
	synctest.Test(t, func(t *testing.T) {
		s := &stand{T: t, home: fake.NewClientset(), twins: &askedTwins{}}
		s.home.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) { // whose own gives some objects to all who watch
			w, err := s.home.Tracker().Watch(action.GetResource(), action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
			if err != nil {
				return true, nil, err
			}
			return true, copying(w), nil
		})
		for _, ns := range namespaces {
			if err := s.home.Tracker().Add(ns); err != nil {
				t.Fatal(err)
			}
		}
		view := remote.NewView(remote.ViewConfig{Log: slog.New(slog.DiscardHandler), Open: func(ctx context.Context) (io.ReadCloser, error) {
			body, in := io.Pipe()
			s.peer = in
			context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
			return body, nil
		}})
		var err error
		s.node, err = New(Config{
			Home: s.home, Abroad: peerAt(t, "https://bob", away{}), View: view, Twins: s.twins, PeerName: "bob", NodeName: "kith-bob",
			NodeIP: netip.MustParseAddr("10.42.255.1"), KubeletPort: 10260, Recorder: record.NewFakeRecorder(1000), Log: slog.New(slog.DiscardHandler),
			Reflects: func() (all []string) {
				s.permits.Range(func(namespace, permit any) bool {
					if permit == offloading.Reflected {
						all = append(all, namespace.(string))
					}
					return true
				})
				return all
			},
			Permit: func(_ context.Context, namespace string) (offloading.Permit, string, error) {
				if permit, is := s.permits.Load(namespace); is {
					return permit.(offloading.Permit), "why of " + namespace, nil
				}
				if slices.ContainsFunc(namespaces, func(ns *corev1.Namespace) bool { return ns.Name == namespace }) {
					return offloading.Granted, "", nil
				}
				return offloading.Withdrawn, "why of " + namespace, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.node.pods.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _ = view.Run(ctx) })
		work.Go(func() { s.node.work(ctx, 2) })
		synctest.Wait()
		story(s)
		cancel()
		s.node.events.queue.ShutDown()
		work.Wait()
	})
}

// TestWhatAPeerKeepsForNothingIsGivenUp: nobody here remembers the namespace; the peer was away, or this daemon was, when it went.
func TestWhatAPeerKeepsForNothingIsGivenUp(t *testing.T) {
	standing(t, func(s *stand) {
		s.twins.answer(errors.New("429: too many calls"))
		s.say(twinLine("shop", ""), twinLine("market", ""))
		s.want() // more may be told that matters
		s.say(synced)
		if calls := s.twins.since(); !slices.Contains(calls, "release shop") || slices.Contains(calls, "release market") || !slices.Contains(calls, "found market market-x true") {
			s.Errorf("asked %q", calls)
		}
		time.Sleep(10 * time.Minute) // it is asked again until it works
		if calls := s.twins.since(); len(calls) < 15 || len(calls) > 40 {
			s.Errorf("asked %d times in ten minutes: %q", len(calls), calls)
		}
		if left := s.node.Left(); len(left) != 1 || left[0].Home != "shop" || left[0].Leaving || left[0].Why != "429: too many calls" || time.Since(left[0].Since) < 9*time.Minute {
			s.Errorf("left: %+v", left)
		}
		s.twins.answer(nil)
		time.Sleep(time.Minute)
		if calls := s.twins.since(); !slices.Equal(calls, []string{"release shop"}) {
			s.Errorf("asked %q", calls)
		}
		s.say(leavingLine("shop"))
		time.Sleep(10 * time.Minute) // which takes the peer a while
		s.want()
		if left := s.node.Left(); len(left) != 1 || !left[0].Leaving {
			s.Errorf("left: %+v", left)
		}
		s.say(twinLine("shop", `"gone":true,`))
		s.want("gone shop")
		if left := s.node.Left(); len(left) != 0 {
			s.Errorf("left: %+v", left)
		}
	}, offloadedNamespace("market"))
}

// TestATwinOutlivesItsLastPodAndNotItsNamespace: a namespace is given up when its pods have ended abroad too, and not before.
func TestATwinOutlivesItsLastPodAndNotItsNamespace(t *testing.T) {
	going := offloadedNamespace("shop")
	standing(t, func(s *stand) {
		s.say(twinLine("shop", ""), offloadedLine("shop", "web", ""), synced)
		s.want("found shop shop-x true")
		now := metav1.Now()
		going.DeletionTimestamp = &now
		if err := s.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), going, ""); err != nil {
			s.Fatal(err)
		}
		s.node.Review("shop")
		s.want() // its pod has not ended there
		s.say(offloadedLine("shop", "web", `"gone":true,`))
		s.want("release shop")
	}, going)
}

// TestANamespaceIsAtAPeerWithoutItsPods: its twin is made without any, as soon as the peer has told what it has, and again when it is taken away there;
// it is given up when the peer is none of those it is to be at any more.
func TestANamespaceIsAtAPeerWithoutItsPods(t *testing.T) {
	standing(t, func(s *stand) {
		s.permits.Store("db", offloading.Reflected)
		s.node.Review("db")
		s.want() // the peer may have it
		s.twins.answer(errors.New("429: too many calls"))
		s.say(synced)
		s.want("ensure db")
		s.twins.answer(nil)
		time.Sleep(time.Minute)
		s.want("ensure db")
		s.say(twinLine("db", ""))
		time.Sleep(time.Minute)
		s.want()
		if left := s.node.Left(); len(left) != 0 {
			s.Errorf("left: %+v", left)
		}
		s.say(twinLine("db", `"gone":true,`))
		s.want("gone db", "ensure db")
		s.say(twinLine("db", ""))
		s.permits.Store("db", offloading.Refused)
		s.node.Review("db")
		time.Sleep(time.Minute)
		s.want("release db")
		s.say(twinLine("db", `"gone":true,`))
		time.Sleep(time.Minute)
		s.want("gone db")
		s.permits.Store("db", offloading.Reflected)
		s.node.Review("db")
		s.want("ensure db")
	}, offloadedNamespace("db"))
}

// TestATwinOfPodsStaysUntilTheyEnd, where no more may go.
func TestATwinOfPodsStaysUntilTheyEnd(t *testing.T) {
	standing(t, func(s *stand) {
		s.permits.Store("shop", offloading.Refused)
		s.say(twinLine("shop", ""), offloadedLine("shop", "web", ""), synced)
		time.Sleep(time.Minute)
		if calls := s.twins.since(); slices.Contains(calls, "release shop") {
			s.Errorf("asked %q", calls)
		}
		s.say(offloadedLine("shop", "web", `"gone":true,`))
		time.Sleep(time.Minute)
		if calls := s.twins.since(); !slices.Contains(calls, "release shop") {
			s.Errorf("asked %q", calls)
		}
	}, offloadedNamespace("shop"))
}

// TestATwinStaysWhereABudgetClosesThePeer: guests of other namespaces use the services there, and its own come back; it is not made for that.
func TestATwinStaysWhereABudgetClosesThePeer(t *testing.T) {
	standing(t, func(s *stand) {
		s.permits.Store("shop", offloading.Closed)
		s.permits.Store("market", offloading.Closed)
		s.say(twinLine("shop", ""), offloadedLine("shop", "web", ""), synced)
		s.say(offloadedLine("shop", "web", `"gone":true,`))
		for range 3 {
			s.node.Review("shop")
			s.node.Review("market")
			time.Sleep(time.Minute)
		}
		if calls := s.twins.since(); len(calls) == 0 || slices.ContainsFunc(calls, func(call string) bool { return call != "found shop shop-x true" }) {
			s.Errorf("asked %q", calls)
		}
		if left := s.node.Left(); len(left) != 0 {
			s.Errorf("left: %+v", left)
		}
		s.permits.Store("shop", offloading.Refused) // its owner named other peers
		s.node.Review("shop")
		time.Sleep(time.Minute)
		s.want("release shop")
	}, offloadedNamespace("shop"), offloadedNamespace("market"))
}

// TestANamespaceThatComesBackWaitsForTheEndOfItsFormerTwin, and asks for the next at once.
func TestANamespaceThatComesBackWaitsForTheEndOfItsFormerTwin(t *testing.T) {
	standing(t, func(s *stand) {
		s.say(leavingLine("shop"), synced)
		s.want()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "h"}, Spec: corev1.PodSpec{NodeName: "kith-bob"}}
		if err := s.node.pods.Add(pod); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Hour)
		s.want() // nobody asks again and again for what cannot be
		s.say(twinLine("shop", `"gone":true,`))
		time.Sleep(time.Millisecond)
		if calls := s.twins.since(); len(calls) < 2 || calls[0] != "gone shop" || calls[1] != "ensure shop" {
			s.Errorf("asked %q", calls)
		}
	}, offloadedNamespace("shop"))
}

// TestAPodThatNeverWentIsLetGo when it is known that nothing of its namespace is abroad, and not before.
func TestAPodThatNeverWentIsLetGo(t *testing.T) {
	standing(t, func(s *stand) {
		now := metav1.Now()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "h", DeletionTimestamp: &now, Finalizers: []string{"test/held"}}, Spec: corev1.PodSpec{NodeName: "kith-bob", Containers: []corev1.Container{{Name: "web", Image: "i"}}}}
		if err := s.home.Tracker().Add(pod); err != nil {
			s.Fatal(err)
		}
		if err := s.node.pods.Add(pod); err != nil {
			s.Fatal(err)
		}
		deleted := func() bool {
			return slices.ContainsFunc(s.home.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "delete" })
		}
		time.Sleep(time.Minute)
		if deleted() {
			s.Error("it was let go although it may be abroad")
		}
		s.say(synced)
		time.Sleep(time.Second)
		if !deleted() {
			s.Error("it was not let go")
		}
		for _, a := range s.home.Actions() { // it is left as a kubelet leaves it
			if a.GetVerb() != "update" || a.GetSubresource() != "status" {
				continue
			}
			last := a.(clienttesting.UpdateAction).GetObject().(*corev1.Pod).Status
			if last.Phase != corev1.PodFailed || len(last.ContainerStatuses) != 1 || last.ContainerStatuses[0].State.Terminated == nil {
				s.Errorf("it ended as %+v", last)
			}
			return
		}
		s.Error("how it ended is not said")
	}, offloadedNamespace("shop"))
}

// TestATwinThatWasJustAskedForIsKept: that its namespace is offloaded may not be seen yet.
func TestATwinThatWasJustAskedForIsKept(t *testing.T) {
	bare := offloadedNamespace("shop")
	bare.Labels = nil
	standing(t, func(s *stand) {
		s.say(synced)
		if err := s.node.Open(s.Context(), "shop"); err != nil {
			s.Fatal(err)
		}
		s.say(twinLine("shop", ""))
		s.want("ensure shop")
		time.Sleep(newFor)
		s.want("release shop") // it is not, after all
	}, bare)
}
