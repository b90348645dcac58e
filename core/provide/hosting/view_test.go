package hosting

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/guests"
)

// shelved is a list in memory.
type shelved struct {
	mu  sync.Mutex
	all map[string]any
}

func (s *shelved) List() (list []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		list = append(list, o)
	}
	return list
}

// gallery is a Host whose views are of what the test puts there, with two consumers.
type gallery struct {
	*provider
	host       *Host
	bob, carol grants.Consumer
	lists      map[string]*shelved
}

func newGallery(t *testing.T) *gallery {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	cb, cc := contractWith("bob", "contractb"), contractWith("carol", "contractc")
	g := &gallery{provider: newProvider(t, peer, other, cb, cc), bob: bob, carol: carol, lists: map[string]*shelved{}}
	g.host = &Host{client: g.client, Contracts: g.contracts, Tenants: g.tenants, Allocations: g.allocations, log: slog.New(slog.DiscardHandler)}
	g.host.views = newViews(g.contracts, nil, g.host.log)
	for _, kind := range []string{viewOffloaded, viewPod, viewEvent, "Secret"} {
		g.lists[kind] = &shelved{all: map[string]any{}}
		g.host.views.lists[kind] = g.lists[kind].List
	}
	for home, c := range map[string]struct {
		ctr *v1alpha1.Contract
		who grants.Consumer
	}{"shop": {cb, bob}, "market": {cc, carol}} {
		if _, err := g.ensure(c.ctr, c.who, home, ""); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g *gallery) put(kind string, o metav1.Object) {
	g.lists[kind].mu.Lock()
	g.lists[kind].all[o.GetNamespace()+"/"+o.GetName()] = o
	g.lists[kind].mu.Unlock()
	g.host.views.changed(kind, o, false)
}

func (g *gallery) take(kind string, o metav1.Object) {
	g.lists[kind].mu.Lock()
	delete(g.lists[kind].all, o.GetNamespace()+"/"+o.GetName())
	g.lists[kind].mu.Unlock()
	g.host.views.changed(kind, o, true)
}

// serve has the views served, and gives how a consumer opens its own.
func (g *gallery) serve() func(grants.Consumer) func(context.Context) (io.ReadCloser, error) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.host.GetView(w, r, r.Header.Get("Consumer"))
	}))
	g.Cleanup(s.Close)
	return func(c grants.Consumer) func(context.Context) (io.ReadCloser, error) {
		return func(ctx context.Context) (io.ReadCloser, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			if err != nil {
				return nil, err
			}
			r.Header.Set("Consumer", c.ID)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return nil, err
			}
			if resp.StatusCode != http.StatusOK {
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return nil, fmt.Errorf("%s: %s", resp.Status, text)
			}
			return resp.Body, nil
		}
	}
}

// lines reads a view to its end.
func lines(body io.Reader) <-chan remote.Line {
	out := make(chan remote.Line)
	go func() {
		defer close(out)
		for r := bufio.NewReader(body); ; {
			text, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var line remote.Line
			if json.Unmarshal(text, &line) != nil {
				line.Kind = "malformed: " + string(text)
			}
			out <- line
		}
	}()
	return out
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7"}
}

func guestPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: named(namespace, name), Spec: corev1.PodSpec{NodeName: "provider", Containers: []corev1.Container{{Name: "c", Image: "secret-image"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func TestAViewShowsWhatIsInTheOwnTwins(t *testing.T) {
	g := newGallery(t)
	carols := g.contracts.TwinsOfConsumer(g.carol.ID)[0].Name
	asked := guests.NewOffloaded()
	asked.SetNamespace(bobsShop)
	asked.SetName("web")
	asked.SetUID("u1")
	asked.Object["spec"] = map[string]any{"homeNamespace": "shop", "template": `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[]}}`}
	g.put(viewOffloaded, asked)
	g.put(viewPod, guestPod(bobsShop, "web"))
	g.put(viewPod, guestPod(carols, "hers"))
	g.put(viewPod, guestPod("default", "the-owners"))
	g.put("Secret", &metav1.PartialObjectMetadata{ObjectMeta: named("kube-system", "the-owners")})

	view := remote.NewView(remote.ViewConfig{Open: g.serve()(g.bob), Log: slog.New(slog.DiscardHandler)})
	type news struct{ what, name string }
	heard := make(chan news, 100)
	view.Pods.OnChange(func(was, is *corev1.Pod) {
		switch {
		case is == nil:
			heard <- news{"gone", was.Namespace + "/" + was.Name + " " + string(was.Status.Phase)}
		default:
			heard <- news{"is", is.Namespace + "/" + is.Name + " " + string(is.Status.Phase)}
		}
	})
	view.OnTwin(func(was, is *remote.Twin) {
		if is == nil {
			heard <- news{"twin gone", was.Name}
			return
		}
		heard <- news{"twin", fmt.Sprintf("%s of %s leaving %t", is.Name, is.Home, is.Leaving)}
	})
	view.OnSynced(func() { heard <- news{what: "synced"} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- view.Run(ctx) }()
	defer func() { cancel(); <-done }()
	want := func(all ...news) {
		t.Helper()
		for _, w := range all {
			select {
			case got := <-heard:
				if got != w {
					t.Fatalf("heard %q, want %q", got, w)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("did not hear %q", w)
			}
		}
	}
	want(news{"twin", bobsShop + " of shop leaving false"}, news{"is", bobsShop + "/web Running"}, news{what: "synced"})
	if o := view.OffloadedPods.Get(bobsShop, "web"); o == nil || o.Spec.Template.Labels["app"] != "web" || o.Spec.HomeNamespace != "shop" {
		t.Errorf("the OffloadedPod came as %+v", o)
	}
	if p := view.Pods.Get(bobsShop, "web"); p.Spec.NodeName != "provider" || len(p.Spec.Containers) > 0 {
		t.Errorf("the pod came with the spec %+v", p.Spec)
	}
	// What changes, and what goes, with its last state; nothing of others.
	g.put(viewPod, guestPod(carols, "hers-too"))
	last := guestPod(bobsShop, "web")
	last.Status.Phase = corev1.PodSucceeded
	g.take(viewPod, last)
	g.put(viewPod, guestPod(bobsShop, "db"))
	want(news{"gone", bobsShop + "/web Succeeded"}, news{"is", bobsShop + "/db Running"})
	// The namespace goes: everything in it is gone, whatever else was said.
	var ns corev1.Namespace
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: bobsShop}, &ns); err != nil {
		t.Fatal(err)
	}
	ns.DeletionTimestamp = new(metav1.Now())
	g.host.namespaceChanged(&ns, false)
	want(news{"twin", bobsShop + " of shop leaving true"})
	g.host.namespaceChanged(&ns, true)
	want(news{"gone", bobsShop + "/db Running"}, news{"twin gone", bobsShop})
	if view.OffloadedPods.Has(bobsShop) {
		t.Error("an OffloadedPod outlived its namespace")
	}
}

// TestAViewTellsHomesAddresses: of a guest whose address is not the one by which its home knows it, to the first word and in all news.
func TestAViewTellsHomesAddresses(t *testing.T) {
	g := newGallery(t)
	g.contracts.Pods = netip.MustParsePrefix("10.42.0.0/16")
	var peer v1alpha1.Peer
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "bob"}, &peer); err != nil {
		t.Fatal(err)
	}
	peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "198.18.0.0/16", Space: []string{"10.42.0.0/16"}, Aliases: []v1alpha1.RangeAlias{{Real: "10.42.0.0/16", Alias: "10.71.0.0/16"}}}
	if err := g.client.Update(t.Context(), &peer); err != nil {
		t.Fatal(err)
	}
	if _, err := g.contracts.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := func(ip string) *corev1.Pod {
		pod := guestPod(bobsShop, "web")
		pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		return pod
	}
	first := at("10.42.0.9")
	g.put(viewPod, first)
	body, err := g.serve()(g.bob)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	told := lines(body)
	for _, ip := range []string{"198.18.0.9", "198.18.0.10"} {
		for line := range told {
			if line.Kind != viewPod {
				continue
			}
			if status := line.Object.(map[string]any)["status"].(map[string]any); status["podIP"] != ip || fmt.Sprint(status["podIPs"]) != "[map[ip:"+ip+"]]" {
				t.Errorf("told %v; want %s", status, ip)
			}
			break
		}
		g.put(viewPod, at("10.42.0.10"))
	}
	if first.Status.PodIP != "10.42.0.9" || first.Status.PodIPs[0].IP != "10.42.0.9" {
		t.Error("changed what the cache holds")
	}
}

func TestAViewEndsWithTheContractAndIsOpenedByItsHolderOnly(t *testing.T) {
	g := newGallery(t)
	open := g.serve()
	_, stranger := peerOf("mallory", 9)
	if _, err := open(stranger)(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a stranger: %v", err)
	}
	body, err := open(g.bob)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	told := lines(body)
	for line := range told {
		if line.Kind == remote.KindSynced {
			break
		}
	}
	g.contracts.End("contractb")
	for range told { // it ends
	}
	if _, err := open(g.bob)(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("after the end: %v", err)
	}
}

func TestANewerViewTakesThePlaceOfTheOldest(t *testing.T) {
	g := newGallery(t)
	open := g.serve()
	var all []<-chan remote.Line
	for range maxViews + 1 {
		body, err := open(g.bob)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		told := lines(body)
		for line := range told {
			if line.Kind == remote.KindSynced {
				break
			}
		}
		all = append(all, told)
	}
	for range all[0] { // it ends
	}
	g.put(viewPod, guestPod(bobsShop, "web"))
	for i, told := range all[1:] {
		if line := <-told; line.Kind != viewPod {
			t.Errorf("view %d of %d: %+v", i+2, len(all), line)
		}
	}
	for range 2 * viewsBurst {
		body, err := open(g.bob)(t.Context())
		if err != nil {
			if !strings.Contains(err.Error(), "too often") {
				t.Error(err)
			}
			return
		}
		body.Close()
	}
	t.Error("it can be opened as often as one likes")
}

// slow is a reader that takes what it is given when it is told to.
type slow struct {
	http.ResponseWriter
	goOn chan struct{}
	got  []byte
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.goOn
	s.got = append(s.got, p...)
	return len(p), nil
}

func (s *slow) FlushError() error                { return nil }
func (s *slow) SetWriteDeadline(time.Time) error { return nil }

func TestASlowReaderIsToldTheNewestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &slow{ResponseWriter: httptest.NewRecorder(), goOn: make(chan struct{})}
		one := newStream(cancel)
		done := make(chan error)
		go func() {
			done <- one.send(ctx, w, func(objectRef) bool { return true }, http.NewResponseController(w))
		}()
		ref := func(i int) objectRef { return objectRef{viewPod, bobsShop, fmt.Sprintf("web-%d", i)} }
		put := func(i int, phase corev1.PodPhase, gone bool) {
			pod := guestPod(bobsShop, ref(i).name)
			pod.Status.Phase = phase
			one.put(ref(i), pod, gone)
		}
		put(0, corev1.PodPending, false)
		synctest.Wait() // it is being written, and the reader takes nothing
		for range 1000 {
			put(0, corev1.PodRunning, false)
			put(1, corev1.PodRunning, false)
			put(2, corev1.PodRunning, false)
		}
		put(2, corev1.PodFailed, true) // came and went unseen
		if n := len(one.queue); n != 3 {
			t.Errorf("%d objects wait", n)
		}
		close(w.goOn)
		synctest.Wait()
		cancel(nil)
		<-done
		var told []string
		for text := range strings.Lines(string(w.got)) {
			var line struct {
				Gone   bool
				Object corev1.Pod
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			told = append(told, fmt.Sprint(line.Object.Name, " ", line.Object.Status.Phase, " ", line.Gone))
		}
		if !slices.Equal(told, []string{"web-0 Pending false", "web-0 Running false", "web-1 Running false"}) {
			t.Errorf("told: %q", told)
		}
	})
}

func TestAReaderThatIsTooFarBehindIsCut(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	one := newStream(cancel)
	for i := range maxPending + 1 {
		one.put(objectRef{viewEvent, bobsShop, fmt.Sprint(i)}, nil, false)
	}
	if ctx.Err() == nil || len(one.queue) > maxPending {
		t.Errorf("%d objects wait", len(one.queue))
	}
}

// What was told of in a namespace that is another's by now is gone, and no more is told of it than that.
func TestNothingOfANamespaceIsToldThatIsTheOwnNoMore(t *testing.T) {
	one, mine := newStream(func(error) {}), true
	ref := objectRef{viewPod, bobsShop, "web"}
	line := func(gone bool) string {
		text, err := one.line(ref, latest{guestPod(bobsShop, "web"), gone}, func(objectRef) bool { return mine })
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if told := line(false); !strings.Contains(told, "Running") {
		t.Errorf("told: %s", told)
	}
	mine = false
	if told := line(false); !strings.Contains(told, `"gone":true`) || strings.Contains(told, "Running") || strings.Contains(told, "uid-of") {
		t.Errorf("told: %s", told)
	}
	for _, gone := range []bool{false, true} {
		if told := line(gone); told != "" {
			t.Errorf("told: %s", told)
		}
	}
}

// TestAThousandNamespacesInOneView: what they cost, with a pod each, its Secret and some events, is little, and told at once.
func TestAThousandNamespacesInOneView(t *testing.T) {
	g := newGallery(t)
	const many = 1000 - 1 // besides the shop
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // of a test
	}
	for i := range many {
		home := fmt.Sprintf("n%d", i)
		name := home + "-" + g.bob.Compact[:7]
		g.contracts.Learn(grants.Twin{Name: name, Home: home, Contract: "contractb", Consumer: g.bob.Compact})
		asked := guests.NewOffloaded()
		asked.SetNamespace(name)
		asked.SetName("web")
		asked.Object["spec"] = map[string]any{"homeNamespace": home, "template": `{"spec":{"containers":[{"name":"web","image":"` + strings.Repeat("x", 1000) + `"}]}}`}
		g.lists[viewOffloaded].all[name] = asked
		g.lists[viewPod].all[name] = guestPod(name, "web")
		g.lists["Secret"].all[name] = &metav1.PartialObjectMetadata{ObjectMeta: named(name, "kith-pod-web")}
		for e := range 3 {
			g.lists[viewEvent].all[fmt.Sprint(name, e)] = &corev1.Event{ObjectMeta: named(name, fmt.Sprint("e", e)), Message: strings.Repeat("m", 100)}
		}
	}
	held := heap()
	view := remote.NewView(remote.ViewConfig{Open: g.serve()(g.bob), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	began := time.Now()
	go func() { done <- view.Run(ctx) }()
	<-view.Known()
	took := time.Since(began)
	if n := len(view.Twins.All()); n != 1000 {
		t.Errorf("%d namespaces were told of", n)
	}
	both := (heap() - held) / 1000
	g.host.views.mu.Lock()
	streams := len(g.host.views.open[g.bob.ID])
	g.host.views.mu.Unlock()
	t.Logf("%d namespaces came in %s, in %d stream; each takes %d bytes, at both ends together, besides what the provider watches anyway", 1000, took.Round(time.Millisecond), streams, both)
	if streams != 1 || both > 32<<10 {
		t.Errorf("%d streams, %d bytes for each namespace", streams, both)
	}
	cancel()
	<-done
}
