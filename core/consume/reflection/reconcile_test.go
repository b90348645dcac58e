package reflection

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/consume/remote"
)

func TestWhatIsWrittenAgain(t *testing.T) {
	have := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	yes, no := func(metav1.Object) bool { return true }, func(metav1.Object) bool { return false }
	for name, c := range map[string]struct {
		source  source
		written written
		want    bool
	}{
		"written and unchanged":                {source{stamp: "a"}, written{stamp: "a", version: "7"}, true},
		"changed at home":                      {source{stamp: "b"}, written{stamp: "a", version: "7"}, false},
		"changed abroad":                       {source{stamp: "a"}, written{stamp: "a", version: "6"}, false},
		"not known after a restart":            {source{stamp: "a"}, written{}, false},
		"a companion known by its annotations": {source{stamp: "a", fresh: yes}, written{}, true},
		"a companion of another pod":           {source{stamp: "a", fresh: no}, written{stamp: "a", version: "7"}, false},
		"a companion changed abroad":           {source{stamp: "a", fresh: yes}, written{stamp: "a", version: "6"}, false},
	} {
		if got := c.source.upToDate(c.written, have); got != c.want {
			t.Errorf("%s: up to date %v, want %v", name, got, c.want)
		}
	}
}

func TestTokensAreRenewedInTime(t *testing.T) {
	now := time.Now()
	for life, earliest := range map[time.Duration]time.Duration{time.Hour: 45 * time.Minute, 10 * time.Minute: 7 * time.Minute, 365 * 24 * time.Hour: 22 * time.Hour} {
		at := renewAt(now, now.Add(life)).Sub(now)
		if at < earliest || at > life*8/10 || at > 24*time.Hour {
			t.Errorf("a token of %s is renewed after %s", life, at)
		}
	}
}

// reflector makes one whose peer answers nothing but errors.
func reflector(t *testing.T, home *Home) *Reflector {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	r, err := New(Config{
		Home: home, Abroad: peerAt(t, server.URL), PeerName: "bob", NodeName: "kith-bob", View: noView(), APIServer: netip.MustParseAddr("10.43.0.1"),
		Permit: func(string) bool { return true }, GuestNode: func(string, string) string { return "" }, GuestReady: func(string, string) bool { return false },
		Problems: func(string, []string) {}, Reaches: always, Recorder: &record.FakeRecorder{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.queue.ShutDown)
	return r
}

func drain(r *Reflector) []item {
	var all []item
	for r.queue.Len() > 0 {
		it, _ := r.queue.Get()
		r.queue.Done(it)
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b item) int {
		return slices.Compare([]string{a.kind.Name, a.name}, []string{b.kind.Name, b.name})
	})
	return all
}

func TestOnlyPodsThatComeOrGoMatter(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase) *corev1.Pod {
		p := homePod()
		p.Spec.NodeName, p.Status.Phase = node, phase
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		return p
	}
	labelled := pod("kith-bob", corev1.PodRunning)
	labelled.Labels = map[string]string{"new": "yes"}
	both := []item{{kinds.Pod, "shop", "web-1"}, {kinds.Secret, "shop", "pull"}}
	for name, c := range map[string]struct {
		was, is metav1.Object
		want    []item
	}{
		"comes":                 {nil, pod("kith-bob", ""), both},
		"is bound":              {pod("", corev1.PodPending), pod("kith-bob", corev1.PodPending), both},
		"runs":                  {pod("kith-bob", corev1.PodPending), pod("kith-bob", corev1.PodRunning), nil},
		"ends":                  {pod("kith-bob", corev1.PodRunning), pod("kith-bob", corev1.PodSucceeded), both},
		"goes":                  {pod("kith-bob", corev1.PodRunning), nil, both},
		"gets another label":    {pod("kith-bob", corev1.PodRunning), labelled, both[:1]},
		"is another's":          {nil, pod("kith-carol", ""), nil},
		"runs at home and ends": {pod("alice", corev1.PodRunning), nil, nil},
	} {
		r := reflector(t, &Home{})
		if r.homeChanged(kinds.Pod, c.was, c.is); r.queue.Len() > 0 {
			t.Errorf("a pod that %s matters although its namespace has no twin", name)
		}
		r.twins["shop"] = newTwin("shop", "shop-x")
		r.homeChanged(kinds.Pod, c.was, c.is)
		if got := drain(r); !slices.Equal(got, c.want) {
			t.Errorf("a pod that %s: %v, want %v", name, got, c.want)
		}
	}
}

func noView() *remote.View {
	return remote.NewView(remote.ViewConfig{Log: slog.New(slog.DiscardHandler)})
}

func TestHomeIsWatchedOnceForAllPeersAndNamespaces(t *testing.T) {
	pod := homePod()
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	core := fake.NewClientset(pod, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "else", Namespace: "other"}})
	scheme := metafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	secret := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "pull", Namespace: "shop"}}
	home := &Home{core: core, meta: metafake.NewSimpleMetadataClient(scheme, secret)}
	ignore := func(*kinds.Kind, metav1.Object, metav1.Object) {}
	first, err := home.join(ignore)
	if err != nil {
		t.Fatal(err)
	}
	second, err := home.join(ignore)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if !cache.WaitFor(ctx, "", append(first.synced, second.synced...)...) {
		t.Fatal("not everything was seen")
	}
	if first.watched != second.watched {
		t.Error("it is watched twice")
	}
	it := item{kinds.Secret, "shop", "pull"}
	all := func(*corev1.Pod) bool { return true }
	if !first.referred("kith-bob", it, all) || first.referred("kith-carol", it, all) || first.referred("kith-bob", item{kinds.ConfigMap, "shop", "pull"}, all) || first.referred("kith-bob", item{kinds.Secret, "other", "pull"}, all) {
		t.Error("a reference is not found, or one that is not there is")
	}
	if first.referred("kith-bob", it, func(*corev1.Pod) bool { return false }) {
		t.Error("a pod that does not go abroad takes its Secret there")
	}
	if _, full := first.get(it, false).(*corev1.Secret); full || first.get(it, false) == nil {
		t.Errorf("of the Secret a %T is held", first.get(it, false))
	}
	if got := first.list(kinds.Service, "shop"); !reflect.DeepEqual(got, []item{{kinds.Service, "shop", "web"}, {kinds.Service, "shop", kinds.APIServerAbroad}}) {
		t.Errorf("services: %v", got)
	}
	first.leave()
	if home.watched == nil {
		t.Error("the second user lost it")
	}
	second.leave()
	if home.watched != nil {
		t.Error("it is watched for nobody")
	}
}

func TestAdaptLeadsToTheAPIServerOfHome(t *testing.T) {
	r := reflector(t, &Home{})
	pod := homePod()
	spec := pod.Spec.DeepCopy()
	r.Adapt(pod, "shop", spec)
	if env := spec.Containers[0].Env[0]; env.Name != "KUBERNETES_SERVICE_HOST" || env.Value != "10.43.0.1" {
		t.Errorf("it begins with %+v", env)
	}
	again := pod.Spec.DeepCopy()
	if r.Adapt(pod, "shop", again); !reflect.DeepEqual(spec, again) {
		t.Error("the template would change for nothing")
	}
}

func TestWhatWasJustWrittenIsNotWrittenAgain(t *testing.T) {
	at := func(version string) metav1.Object {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	now := written{stamp: "a", version: "7", at: time.Now()}
	with := func(change func(*written)) written {
		m := now
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		written written
		have    metav1.Object
		want    bool
	}{
		"the watch does not show it yet":       {now, nil, true},
		"the watch shows what was before":      {now, at("6"), true},
		"somebody changed it since":            {now, at("8"), false},
		"somebody deleted it since":            {with(func(m *written) { m.seen = true }), nil, false},
		"the watch does not show it for long":  {with(func(m *written) { m.at = time.Now().Add(-time.Minute) }), nil, false},
		"home changed since":                   {with(func(m *written) { m.stamp = "b" }), nil, false},
		"it was written by an earlier process": {written{}, nil, false},
	} {
		if got := c.written.behind(&source{stamp: "a"}, c.have); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Those that are there keep what they refer to, also when no more may come.
func TestOnlyPodsThatGoAbroadTakeThingsThere(t *testing.T) {
	r := reflector(t, &Home{})
	permitted, guest := false, ""
	r.cfg.Permit, r.cfg.GuestNode = func(string) bool { return permitted }, func(string, string) string { return guest }
	waits, runs := homePod(), homePod()
	waits.Status.Phase, runs.Status.Phase = corev1.PodPending, corev1.PodRunning
	if r.goes(waits) || !r.goes(runs) {
		t.Errorf("one that waits and may not go: %v, one that runs: %v", r.goes(waits), r.goes(runs))
	}
	if guest = "bob"; !r.goes(waits) {
		t.Error("one that is there, and pulls its image, loses what it refers to")
	}
	if guest, permitted = "", true; !r.goes(waits) {
		t.Error("one that may go does not")
	}
}

// always: every address is reached.
func always(netip.Addr) bool { return true }
