package custom

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/wire"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// home is a cluster with a definition of widgets, and policies.
type home struct {
	*testing.T
	objects  *dynamicfake.FakeDynamicClient
	policies client.Client
	home     *Home
	events   *record.FakeRecorder
}

func newHomeOf(t *testing.T, kinds ...v1alpha1.ReflectedKind) *home {
	t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget"}, "conversion": map[string]any{"strategy": "None"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}}}, map[string]any{"name": "v0", "served": false}},
		},
	}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.ReflectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.ReflectionPolicySpec{Kinds: kinds}}
	h := &home{T: t, events: record.NewFakeRecorder(100),
		objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			definitions: "CustomResourceDefinitionList", widgets: "WidgetList", {Group: "example.com", Version: "v1", Resource: "gadgets"}: "GadgetList"}, crd),
		policies: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(policy).WithObjects(policy).Build(),
	}
	h.home = newHome(h.policies, h.objects, slog.New(slog.DiscardHandler))
	h.read()
	t.Cleanup(func() { h.home.set(nil, nil) })
	return h
}

func (h *home) read() {
	h.Helper()
	if _, err := h.home.reconcile(h.Context(), reconcileRequest); err != nil {
		h.Fatal(err)
	}
}

// refusals are those that the policy shows now.
func (h *home) refusals() (list []string) {
	h.Helper()
	if _, err := h.home.show(h.Context(), reconcileRequest); err != nil {
		h.Fatal(err)
	}
	var policy v1alpha1.ReflectionPolicy
	if err := h.policies.Get(h.Context(), client.ObjectKey{Name: "all"}, &policy); err != nil {
		h.Fatal(err)
	}
	for _, r := range policy.Status.Refusals {
		list = append(list, strings.TrimSpace(r.Peer+" "+r.Kind+" "+r.Reason))
	}
	return list
}

func widget(name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	maps.Copy(o.Object, fields)
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetGeneration(5)
	o.SetLabels(map[string]string{"tier": "front"})
	o.SetAnnotations(map[string]string{"secret": "x"})
	return o
}

func (h *home) write(o *unstructured.Unstructured) {
	h.Helper()
	objects := h.objects.Resource(widgets).Namespace(o.GetNamespace())
	_, err := objects.Create(h.Context(), o, metav1.CreateOptions{})
	if err != nil {
		_, err = objects.Update(h.Context(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		h.Fatal(err)
	}
}

// provider is the other end, by hand.
type provider struct {
	*home
	peer  *Peer
	conns chan net.Conn
	conn  net.Conn
	lines *wire.Lines
	no    atomic.Pointer[peering.Problem]

	ensured chan string
}

func (h *home) provider(name string) *provider {
	h.Helper()
	p := &provider{home: h, conns: make(chan net.Conn, 8), ensured: make(chan string, 8)}
	p.peer = h.home.Peer(PeerConfig{
		Name: name, Abroad: func(ns string) bool { return ns == "shop" }, Permit: func(ns string) bool { return ns == "shop" || ns == "new" },
		Ensure: func(_ context.Context, ns string) error { p.ensured <- ns; return nil }, Recorder: h.events, Log: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (io.ReadWriteCloser, error) {
			if no := p.no.Load(); no != nil {
				return nil, no
			}
			here, there := net.Pipe()
			p.conns <- there
			return here, nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.peer.Run(ctx) }()
	h.Cleanup(func() { cancel(); <-done })
	return p
}

// accept takes the next connection that says something, and gives the kinds that it is for.
func (p *provider) accept() []Kind {
	p.Helper()
	for {
		select {
		case p.conn = <-p.conns:
		case <-time.After(10 * time.Second):
			p.Fatal("no connection")
		}
		p.lines = NewLines(p.conn, MaxDefinition)
		conn := p.conn
		p.Cleanup(func() { conn.Close() })
		p.conn.SetDeadline(time.Now().Add(10 * time.Second))
		var first Ask
		switch err := p.lines.Next(&first); {
		case err == nil:
			return first.Kinds
		case err != io.EOF: // one that was begun anew at once
			p.Fatal(err)
		}
	}
}

func (p *provider) hear() (line Ask) {
	p.Helper()
	p.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err := p.lines.Next(&line); err != nil {
		p.Fatal(err)
	}
	return line
}

// silent wants nothing said for a moment.
func (p *provider) silent() {
	p.Helper()
	p.conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	var line Ask
	if err := p.lines.Next(&line); err == nil {
		p.Fatalf("it says %+v", line)
	}
	p.lines = NewLines(p.conn, MaxDefinition)
}

func (p *provider) tell(line Tell) {
	p.Helper()
	raw, _ := json.Marshal(line)
	p.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := p.conn.Write(append(raw, '\n')); err != nil {
		p.Fatal(err)
	}
}

func (p *provider) kept() { p.Helper(); p.tell(Tell{Kept: new(int)}) }

func (p *provider) has(name, digest, status string) {
	p.Helper()
	p.tell(Tell{State: &State{Key: Key{0, "shop", name}, Digest: digest, Generation: 2, Status: json.RawMessage(status)}})
}

func both(change ...func(*v1alpha1.ReflectedKind)) v1alpha1.ReflectedKind {
	k := v1alpha1.ReflectedKind{Group: "example.com", Resource: "widgets", Direction: v1alpha1.ReflectBoth}
	for _, f := range change {
		f(&k)
	}
	return k
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal(what)
		}
	}
}

func TestWhatAnObjectSaysGoesAndItsStatusComes(t *testing.T) {
	h := newHomeOf(t, both())
	h.write(widget("one", map[string]any{"spec": map[string]any{"size": int64(3)}, "data": "x", "status": map[string]any{"phase": "Old"}}))
	p := h.provider("bob")
	p.peer.SetWorks(true)
	if kinds := p.accept(); !slices.Equal(kinds, []Kind{{"example.com", "v1", "widgets"}}) {
		t.Fatalf("%+v", kinds)
	}
	p.silent() // before the peer keeps the kind
	p.kept()
	put := p.hear().Put
	if put == nil || put.Name != "one" || put.Namespace != "shop" || string(put.Content) != `{"data":"x","spec":{"size":3}}` || put.Digest == "" {
		t.Fatalf("%+v %s", put, put.Content)
	}
	p.has("one", put.Digest, `{"phase":"Ready","observedGeneration":2,"conditions":[{"type":"A","observedGeneration":1}]}`)
	one := func() *unstructured.Unstructured {
		o, err := h.objects.Resource(widgets).Namespace("shop").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	want := map[string]any{"phase": "Ready", "observedGeneration": int64(5), "conditions": []any{map[string]any{"type": "A", "observedGeneration": int64(4)}}}
	eventually(t, "the status does not come", func() bool { return reflect.DeepEqual(one().Object["status"], want) })
	if one().GetAnnotations()["secret"] != "x" || one().Object["data"] != "x" {
		t.Errorf("more than the status was written: %+v", one().Object)
	}
	p.silent()

	// Somebody there changed it; then home does; then it is gone at home.
	p.has("one", "", `{}`)
	if again := p.hear().Put; again == nil || again.Digest != put.Digest {
		t.Fatalf("%+v", again)
	}
	p.has("one", put.Digest, `{"phase":"Ready"}`)
	eventually(t, "the next status does not come", func() bool { return reflect.DeepEqual(one().Object["status"], map[string]any{"phase": "Ready"}) })
	o := one()
	o.Object["spec"] = map[string]any{"size": int64(4)}
	h.write(o)
	if next := p.hear().Put; next == nil || next.Digest == put.Digest {
		t.Fatalf("%+v", next)
	}
	if err := h.objects.Resource(widgets).Namespace("shop").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if line := p.hear(); line.Delete == nil || line.Delete.Name != "one" {
		t.Fatalf("%+v", line)
	}
	p.has("left", "d", ``) // of before
	if line := p.hear(); line.Delete == nil || line.Delete.Name != "left" {
		t.Fatalf("%+v", line)
	}
}

func TestWhatStaysAtHome(t *testing.T) {
	h := newHomeOf(t, both(func(k *v1alpha1.ReflectedKind) {
		k.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}
		k.Fields = []string{"spec.size", "spec.nested.a", "other"}
	}))
	h.write(widget("goes", map[string]any{"spec": map[string]any{"size": int64(3), "secret": "x", "nested": map[string]any{"a": int64(1), "b": int64(2)}}, "data": "x"}))
	back := widget("back", nil)
	back.SetLabels(map[string]string{"tier": "back"})
	h.write(back)
	said := widget("said", nil)
	said.SetLabels(map[string]string{"tier": "front", "kith.dev/reflect": "false"})
	h.write(said)
	elsewhere := widget("elsewhere", nil)
	elsewhere.SetNamespace("home-only")
	h.write(elsewhere)
	h.write(widget("large", map[string]any{"other": strings.Repeat("x", MaxContent)}))
	p := h.provider("bob")
	p.peer.SetWorks(true)
	p.accept()
	p.has("large", "before", ``) // it stays as it was
	p.kept()
	put := p.hear().Put
	if put == nil || put.Name != "goes" || string(put.Content) != `{"spec":{"nested":{"a":1},"size":3}}` {
		t.Fatalf("%+v", put)
	}
	p.silent()
	select {
	case ns := <-p.ensured:
		t.Errorf("a twin of %s is made", ns)
	default:
	}
	eventually(t, "what is too large is not shown", func() bool { return slices.Equal(h.refusals(), []string{"bob widgets.example.com TooLarge"}) })
}

// TestTheStatusOfOnePeerCounts: of two that have an object, the first by its name.
func TestTheStatusOfOnePeerCounts(t *testing.T) {
	h := newHomeOf(t, both())
	h.write(widget("one", nil))
	bob, carol := h.provider("bob"), h.provider("carol")
	phase := func() string {
		o, err := h.objects.Resource(widgets).Namespace("shop").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return s
	}
	for _, p := range []*provider{carol, bob} {
		p.peer.SetWorks(true)
		p.accept()
		p.kept()
		digest := p.hear().Put.Digest
		p.has("one", digest, `{"phase":"`+p.peer.Name+`"}`)
		eventually(t, "the status does not come", func() bool { return phase() == p.peer.Name })
	}
	carol.has("one", "d", `{"phase":"carol"}`)
	carol.hear()
	if phase() != "bob" {
		t.Errorf("it is %s's", phase())
	}
}

func TestRefusalsAreShown(t *testing.T) {
	h := newHomeOf(t, both(), v1alpha1.ReflectedKind{Group: "example.com", Resource: "gadgets"}, v1alpha1.ReflectedKind{Group: "kith.dev", Resource: "contracts"},
		v1alpha1.ReflectedKind{Group: "example.com", Resource: "widgets", Version: "v0"})
	h.write(widget("one", nil))
	if got := h.refusals(); !slices.Equal(got, []string{"contracts.kith.dev NotAllowed", "gadgets.example.com Unknown"}) {
		t.Fatalf("home: %q", got)
	}
	p := h.provider("bob")
	p.no.Store(&peering.Problem{Code: peering.CodeUnavailable, Message: "starting"})
	p.peer.SetWorks(true)
	eventually(t, "that it is starting is not shown", func() bool { return slices.Contains(h.refusals(), "bob widgets.example.com Failed") })
	p.no.Store(&peering.Problem{Code: peering.CodeForbidden, Message: "no"}) // it is asked again by itself, soon
	eventually(t, "the peer's no is not shown", func() bool { return slices.Contains(h.refusals(), "bob widgets.example.com NotAllowed") })
	p.no.Store(nil)
	p.peer.renew()
	p.accept()
	p.tell(Tell{Refused: &Refusal{Key: Key{Kind: 0}, Reason: Unknown, Why: "none"}})
	eventually(t, "the kind's is not", func() bool { return slices.Contains(h.refusals(), "bob widgets.example.com Unknown") })
	p.silent()
	p.kept()
	digest := p.hear().Put.Digest
	p.tell(Tell{Refused: &Refusal{Key: Key{0, "shop", "one"}, Reason: Invalid, Why: "size: \x1b[31m"}})
	eventually(t, "an object's is not", func() bool { return slices.Contains(h.refusals(), "bob widgets.example.com Invalid") })
	if event := <-h.events.Events; !strings.Contains(event, "NotReflected") || strings.ContainsRune(event, 0x1b) {
		t.Errorf("%q", event)
	}
	p.silent() // what is wrong is not sent again until it is otherwise
	h.write(widget("one", map[string]any{"spec": "x"}))
	if put := p.hear().Put; put == nil || put.Digest == digest {
		t.Fatalf("%+v", put)
	}
	p.tell(Tell{Refused: &Refusal{Key: Key{0, "shop", "one"}, Reason: Failed}})
	put := p.hear().Put // but what may pass by itself is
	p.has("one", put.Digest, ``)
	eventually(t, "there are refusals still", func() bool { return len(h.refusals()) == 2 })
}

func TestADefinitionIsSentOnce(t *testing.T) {
	h := newHomeOf(t, both(func(k *v1alpha1.ReflectedKind) { k.Definition = v1alpha1.AccessAllow }))
	p := h.provider("bob")
	p.peer.SetWorks(true)
	p.accept()
	p.tell(Tell{Refused: &Refusal{Reason: Unknown}})
	define := p.hear().Define
	if define == nil || strings.Contains(string(define.Definition), "conversion") || !strings.Contains(string(define.Definition), `"v1"`) || strings.Contains(string(define.Definition), `"v0"`) {
		t.Fatalf("%s", define.Definition)
	}
	p.tell(Tell{Refused: &Refusal{Reason: Unknown}})
	p.silent()
}

func TestOtherPoliciesBeginAnew(t *testing.T) {
	h := newHomeOf(t, both(func(k *v1alpha1.ReflectedKind) { k.Peers = []string{"carol"} }))
	p := h.provider("bob")
	p.peer.SetWorks(true)
	select {
	case <-p.conns:
		t.Fatal("bob is spoken to of what is for carol")
	case <-time.After(100 * time.Millisecond):
	}
	var policy v1alpha1.ReflectionPolicy
	if err := h.policies.Get(t.Context(), client.ObjectKey{Name: "all"}, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Kinds[0].Peers = nil
	if err := h.policies.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	h.read()
	p.accept()
	p.peer.SetWorks(false)
	p.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := p.conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a peer that is away is still spoken to: %v", err)
	}
}

// TestAPeerThatLies ends its connection, and nothing else.
func TestAPeerThatLies(t *testing.T) {
	h := newHomeOf(t, both())
	p := h.provider("bob")
	p.peer.SetWorks(true)
	for _, raw := range []string{
		`{"kept":7}`, `{"kept":-1}`, `{"state":{"kind":3,"namespace":"shop","name":"a"}}`, `{"state":{"namespace":"shop","name":"../x"}}`, `{"refused":{"kind":9,"reason":"Invalid"}}`, `{`,
		`{"state":{"namespace":"shop","name":"a","status":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}}`,
	} {
		p.peer.renew()
		p.accept()
		p.conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = p.conn.Write([]byte(raw + "\n"))
		if _, err := p.conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestAnObjectHasATwinMade: its namespace may go there, and has no pods.
func TestAnObjectHasATwinMade(t *testing.T) {
	h := newHomeOf(t, both())
	o := widget("one", nil)
	o.SetNamespace("new")
	h.write(o)
	p := h.provider("bob")
	p.peer.SetWorks(true)
	p.accept()
	p.kept()
	if put := p.hear().Put; put == nil || put.Namespace != "new" || <-p.ensured != "new" {
		t.Fatalf("%+v", put)
	}
}
