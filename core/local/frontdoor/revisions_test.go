package frontdoor

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"kith.dev/core/local/apiproxy"
)

// informer follows the ConfigMaps that the front door shows, as programs do.
func informer(t *testing.T, d *Door) cache.SharedIndexInformer {
	t.Helper()
	kube, err := kubernetes.NewForConfig(as(t, d, alice))
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(kube, 0)
	i := factory.Core().V1().ConfigMaps().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	eventually(t, "the informer has listed", i.HasSynced)
	return i
}

// seen are the objects of a cache, each with the cluster that it is of.
func seen(i cache.SharedIndexInformer) string {
	found := map[string]bool{}
	for _, o := range i.GetStore().List() {
		m := o.(*corev1.ConfigMap)
		found[m.Name+"@"+m.Data["of"]] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

// The version that the client knows of home is, at corp, of the past, known to the digit, or of the future.
func TestAnInformerHasNothingOfTheFormerCluster(t *testing.T) {
	for name, version := range map[string]int{"corp is ahead": 5000, "corp is equal": 1000, "corp is behind": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, corp := newCluster(t, "home", 1000), newCluster(t, "corp", version)
			corp.oldest = 0 // what is asked for is not too old for it: it would take any
			home.put("ADDED", "both")
			home.put("ADDED", "own")
			corp.put("ADDED", "both")
			corp.put("ADDED", "theirs")
			d := open(t, nil)
			d.Lead(home.destination(t))
			i := informer(t, d)
			eventually(t, "home's objects", func() bool { return seen(i) == "both@home own@home" })
			home.put("ADDED", "new")
			eventually(t, "an event of home's", func() bool { return seen(i) == "both@home new@home own@home" })

			d.Lead(corp.destination(t))
			home.put("ADDED", "late")
			eventually(t, "corp's objects alone", func() bool { return seen(i) == "both@corp theirs@corp" })
			corp.put("ADDED", "more")
			eventually(t, "an event of corp's", func() bool { return seen(i) == "both@corp more@corp theirs@corp" })

			d.Lead(home.destination(t))
			corp.put("ADDED", "too late")
			eventually(t, "home's again", func() bool { return seen(i) == "both@home late@home new@home own@home" })
		})
	}
}

// kubectl get -w lists and then watches once; its watch ends with the switch, and when the switch is between the two it hears that it is late.
func TestAWatchEndsWithTheSwitch(t *testing.T) {
	home, corp := newCluster(t, "home", 1000), newCluster(t, "corp", 1001)
	home.put("ADDED", "own")
	d := open(t, nil)
	d.Lead(home.destination(t))
	kube, err := kubernetes.NewForConfig(as(t, d, alice))
	if err != nil {
		t.Fatal(err)
	}
	maps := kube.CoreV1().ConfigMaps("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{Limit: 500})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	from := metav1.ListOptions{ResourceVersion: list.ResourceVersion}
	w, err := maps.Watch(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d.Lead(corp.destination(t))
	if took := time.Since(began); took > time.Second {
		t.Errorf("the switch took %s with a watch open", took)
	}
	if e, open := <-w.ResultChan(); open {
		t.Errorf("the watch ended with %s %v, want nothing", e.Type, e.Object)
	}
	w, err = maps.Watch(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	e := <-w.ResultChan()
	if s, ok := e.Object.(*metav1.Status); !ok || s.Code != http.StatusGone || s.Reason != metav1.StatusReasonExpired {
		t.Errorf("a watch with home's version at corp: %s %v, want 410 Gone", e.Type, e.Object)
	}
	if _, open := <-w.ResultChan(); open {
		t.Error("something follows")
	}
}

// RetryWatcher of client-go, with which programs wait for one thing, tries again after every answer but an event that says 410.
func TestARetryWatcherHearsThatItsVersionIsGone(t *testing.T) {
	home, corp := newCluster(t, "home", 1000), newCluster(t, "corp", 900)
	d := open(t, nil)
	d.Lead(home.destination(t))
	kube, err := kubernetes.NewForConfig(as(t, d, alice))
	if err != nil {
		t.Fatal(err)
	}
	list, err := kube.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return kube.CoreV1().ConfigMaps("default").Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	home.put("ADDED", "one")
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Fatalf("%v", e)
	}
	d.Lead(corp.destination(t))
	select {
	case e := <-w.ResultChan():
		if e.Type != watch.Error {
			t.Errorf("%v, want an error", e)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it tries for ever")
	}
	w.Stop()
}

// A watch that ended by itself goes on with the version of its last event, which came in no list; so does no other watch.
func TestAWatchGoesOnWhereItEnded(t *testing.T) {
	home := newCluster(t, "home", 1000)
	for range 10 {
		home.put("ADDED", "one")
	}
	d := open(t, nil)
	d.Lead(home.destination(t))
	c := dial(t, d, alice, false)
	url := d.url("/api/v1/namespaces/default/configmaps?watch=1")
	_, end := watchFirst(t, c, url)
	const later = "&resourceVersion=1007"
	if text, _ := watchFirst(t, c, url+later); !strings.Contains(text, "too old") {
		t.Errorf("a version that nobody gave, while another watch runs: %s", text)
	}
	end()
	eventually(t, "it goes on", func() bool {
		if text, _ := watchFirst(t, c, url+later+"&labelSelector=a%3Db"); !strings.Contains(text, "too old") {
			t.Fatalf("a watch of other objects goes on: %s", text)
		}
		text, _ := watchFirst(t, c, url+later)
		return strings.Contains(text, "1008")
	})
}

// watchFirst gives what a watch tells first, and what ends it.
func watchFirst(t *testing.T, c *http.Client, url string) (string, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	end := func() { cancel(); answer.Body.Close() }
	t.Cleanup(end)
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line, end
}

func TestWhatNamesAVersionOfTheFormerCluster(t *testing.T) {
	d := open(t, nil)
	g, s := d.newGeneration(Destination{}), new(session)
	program := func(path string) *http.Request {
		r, err := http.NewRequest("GET", "https://kith"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", "k9s")
		return r
	}
	got := func(path, version string) {
		r := program(path)
		info, _ := apiproxy.Describe(r)
		g.book.gave(readerOf(alice, r, info), version, info.List)
	}
	token := func(version int) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":"web\u0000"}`, version))
	}
	got("/api/v1/pods", "100")
	got("/api/v1/namespaces/shop/pods/web", "90")
	got("/apis/apps/v1/namespaces/shop/deployments", "120")
	for _, c := range []struct {
		path  string
		stale bool
	}{
		{"/api/v1/pods?watch=1&resourceVersion=100", false},
		{"/api/v1/namespaces/shop/pods?watch=true&resourceVersion=100", false},
		{"/api/v1/watch/namespaces/shop/pods?resourceVersion=100", false},
		{"/api/v1/namespaces/shop/pods?watch=true&resourceVersion=90&fieldSelector=metadata.name%3Dweb", false},
		{"/api/v1/pods?watch=1&resourceVersion=101", true},
		{"/api/v1/pods?w%61tch=1&resourceVersion=101", true},
		{"/api/v1/watch/pods?resourceVersion=101", true},
		{"/api/v1/watch/namespaces/shop/pods/web?resourceVersion=101", true},
		{"/api/v1/namespaces/shop/pods/web?watch=1&resourceVersion=101", true},
		{"/api/v1/pods?watch=1&resourceVersion=101&sendInitialEvents=true", true},
		{"/api/v1/pods?watch=1&resourceVersion=120", true}, // of another resource
		{"/apis/apps/v1/deployments?watch=1&resourceVersion=120", false},
		{"/apis/apps/v1beta1/deployments?watch=1&resourceVersion=120", false}, // a group's versions are one resource
		{"/apis/batch/v1/deployments?watch=1&resourceVersion=120", true},
		{"/api/v1/pods?watch=1&resourceVersion=0", false},
		{"/api/v1/pods?watch=1", false},
		{"/api/v1/pods?resourceVersion=101", true},
		{"/api/v1/pods?resourceVersion=100", false},
		{"/api/v1/pods?limit=500", false},
		{"/api/v1/pods?continue=" + token(100), false},
		{"/api/v1/pods?continue=" + token(100) + "%3D%3D", false},
		{"/api/v1/pods?continue=" + token(99), true},
		{"/api/v1/pods?continue=" + token(-1), true},
		{"/api/v1/pods?continue=opaque", false},
		{"/api/v1/namespaces/shop/pods/web?resourceVersion=7", false}, // answered whole by whoever has it
		{"/api/v1/namespaces/shop/pods/web/log?follow=1&resourceVersion=7", false},
		{"/apis?resourceVersion=7", false},
	} {
		r := program(c.path)
		info, watch := apiproxy.Describe(r)
		if got := g.stale(s, readerOf(alice, r, info), r, info, watch); got != c.stale {
			t.Errorf("%s: stale %v, want %v", c.path, got, c.stale)
		}
	}
	r := program("/api/v1/pods?watch=1&resourceVersion=100")
	info, watch := apiproxy.Describe(r)
	if !g.stale(s, readerOf(User{"bob", 1001}, r, info), r, info, watch) {
		t.Error("another user has alice's versions")
	}
	r.Header.Set("User-Agent", "another program")
	if !g.stale(s, readerOf(alice, r, info), r, info, watch) {
		t.Error("another program has k9s's versions")
	}
}

func TestAnAnswerWithoutAVersionIsGoodForOneWatch(t *testing.T) {
	b := newBook()
	of := reader{"alice 1000", "x", "/pods"}
	b.gave(of, unread, true)
	if !b.given(of, "7") || b.given(of, "7") {
		t.Error("want one watch, whatever it names, and no second")
	}
}

func TestTheBookIsBounded(t *testing.T) {
	b := newBook()
	of := reader{"alice 1000", "x", "/pods"}
	for i := range 10 * booked {
		b.gave(of, fmt.Sprint(i), true)
		b.gave(of, unread, true)
		b.given(of, "none")
	}
	b.gave(of, "list", true)
	for i := range 10 * booked {
		b.gave(of, fmt.Sprint(i), false)
	}
	if !b.given(of, "list") {
		t.Error("single objects displaced a list")
	}
	if len(b.lists.has) > booked || len(b.objects.has) > booked || len(b.lists.order) != booked {
		t.Errorf("%d, %d versions are remembered", len(b.lists.has), len(b.objects.has))
	}
	var l lineage
	g := new(generation)
	for i := range 10 * followed {
		l.end(g, uint64(i))
	}
	if len(l.ended) > followed {
		t.Errorf("%d lineages of a connection are remembered", len(l.ended))
	}
}
