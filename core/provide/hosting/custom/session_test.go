package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/custom"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire"
)

var (
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	alice   = grants.Consumer{ID: "ALICE", Compact: "alice", Name: "alice"}
)

func definition(plural, kind, scope string, versions ...string) *unstructured.Unstructured {
	var list []any
	for _, v := range versions {
		list = append(list, map[string]any{"name": v, "served": true, "storage": v == versions[0]})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{"group": "example.com", "scope": scope, "names": map[string]any{"plural": plural, "kind": kind}, "versions": list},
	}}
}

// granted is what the owner grants alice.
type granted struct {
	mu    sync.Mutex
	terms grants.Terms
}

func (g *granted) Held(context.Context, string, string) (*grants.Terms, error) { return g.Of(""), nil }

func (g *granted) Of(string) *grants.Terms {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.terms
	return &now
}

func (g *granted) change(f func(*grants.Terms)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.terms)
}

func (g *granted) TwinFor(c grants.Consumer, home string) (grants.Twin, bool) {
	return grants.Twin{Name: home + "-" + c.Compact, Home: home, Leaving: home == "leaving"}, home != "elsewhere"
}

func (g *granted) Twin(string) grants.Twin { return grants.Twin{} }

// talk is a consumer by hand: whoever holds alice's key and runs another program.
type talk struct {
	*testing.T
	granted *granted
	client  *dynamicfake.FakeDynamicClient
	objects *Objects
	conn    net.Conn
	lines   *wire.Lines
	ended   chan error
}

// newTalk begins with two kinds, widgets and what else is named.
func newTalk(t *testing.T, kinds ...custom.Kind) *talk {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList", widgets: "WidgetList"}
	for _, k := range kinds {
		lists[k.GVR()] = "OthersList"
	}
	k := &talk{
		T: t, granted: &granted{terms: grants.Terms{Contract: "c", Consumer: alice, Kinds: []v1alpha1.GuestKind{{Group: "example.com", Resource: "widgets", Most: 3}}}},
		client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, definition("widgets", "Widget", "Namespaced", "v1", "v2")),
		ended:  make(chan error, 1),
	}
	k.objects = New(k.client, k.granted, slog.New(slog.DiscardHandler))
	return k
}

func (k *talk) begin(kinds ...custom.Kind) {
	k.Helper()
	here, there := net.Pipe()
	k.conn, k.lines = here, custom.NewLines(here, custom.MaxContent)
	s := &session{o: k.objects, consumer: alice, contract: "c", conn: there, log: slog.New(slog.DiscardHandler)}
	go func() {
		err := s.run(context.Background())
		k.Log(err)
		there.Close()
		k.ended <- err
	}()
	k.Cleanup(func() {
		here.Close()
		<-k.ended
	})
	k.say(custom.Ask{Kinds: kinds})
}

func (k *talk) say(line custom.Ask) {
	k.Helper()
	raw, err := json.Marshal(line)
	if err != nil {
		k.Fatal(err)
	}
	k.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := k.conn.Write(append(raw, '\n')); err != nil {
		k.Fatal(err)
	}
}

func (k *talk) hear() (line custom.Tell) {
	k.Helper()
	k.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err := k.lines.Next(&line); err != nil {
		k.Fatal(err)
	}
	return line
}

var widget = custom.Kind{Group: "example.com", Version: "v1", Resource: "widgets"}

// kept begins with widgets alone, which are kept.
func (k *talk) kept() {
	k.Helper()
	k.begin(widget)
	if line := k.hear(); line.Kept == nil || *line.Kept != 0 {
		k.Fatalf("%+v", line)
	}
}

func put(namespace, name, digest, content string) custom.Ask {
	return custom.Ask{Put: &custom.Content{Key: custom.Key{Namespace: namespace, Name: name}, Digest: digest, Content: json.RawMessage(content)}}
}

// refused wants a no to the next line said.
func (k *talk) refused(reason custom.Reason, words string) {
	k.Helper()
	line := k.hear()
	if line.Refused == nil || line.Refused.Reason != reason || !strings.Contains(line.Refused.Why, words) {
		k.Fatalf("%+v (%+v), want %s, %q", line, line.Refused, reason, words)
	}
}

func (k *talk) at(namespace, name string) *unstructured.Unstructured {
	o, err := k.client.Resource(widgets).Namespace(namespace).Get(k.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		k.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return o
}

func TestWhichKindsAreKept(t *testing.T) {
	other := func(resource string) custom.Kind {
		return custom.Kind{Group: "example.com", Version: "v1", Resource: resource}
	}
	k := newTalk(t, other("gadgets"), other("globals"), other("secrets"))
	if err := k.client.Tracker().Create(definitions, definition("globals", "Global", "Cluster", "v1"), ""); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"gadgets", "globals"} {
		k.granted.terms.Kinds = append(k.granted.terms.Kinds, v1alpha1.GuestKind{Group: "example.com", Resource: resource, Most: 1})
	}
	k.granted.terms.Kinds = append(k.granted.terms.Kinds, v1alpha1.GuestKind{Group: "kith.dev", Resource: "contracts", Most: 1})
	k.begin(widget, other("gadgets"), other("globals"), other("secrets"), custom.Kind{Group: "example.com", Version: "v9", Resource: "widgets"},
		custom.Kind{Group: "kith.dev", Version: "v1alpha1", Resource: "contracts"})
	for i, want := range []custom.Reason{"", custom.Unknown, custom.ClusterScoped, custom.NotAllowed, custom.NotServed, custom.NotAllowed} {
		line := k.hear()
		switch {
		case want == "" && (line.Kept == nil || *line.Kept != i):
			t.Errorf("kind %d: %+v", i, line)
		case want != "" && (line.Refused == nil || line.Refused.Kind != i || line.Refused.Reason != want):
			t.Errorf("kind %d: %+v, want %s", i, line.Refused, want)
		}
	}
	k.say(custom.Ask{Put: &custom.Content{Key: custom.Key{Kind: 3, Namespace: "shop", Name: "a"}, Content: json.RawMessage(`{}`)}})
	k.refused(custom.NotAllowed, "does not let peers keep secrets.example.com")
}

func TestAnObjectIsWhatItsHomeSays(t *testing.T) {
	k := newTalk(t)
	k.kept()
	k.say(put("shop", "one", "d1", `{"spec":{"size":3,"on":true},"data":{"a":"b"}}`))
	if line := k.hear(); line.State == nil || line.State.Digest != "d1" || line.State.Namespace != "shop" || line.State.Name != "one" {
		t.Fatalf("%+v", line)
	}
	o := k.at("shop-alice", "one")
	if o.GetKind() != "Widget" || o.GetAPIVersion() != "example.com/v1" || o.Object["spec"].(map[string]any)["size"] != int64(3) || o.Object["data"] == nil {
		t.Errorf("%+v", o.Object)
	}
	if l := o.GetLabels(); len(l) != 3 || l[v1alpha1.LabelConsumer] != "alice" || l[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || len(o.GetFinalizers())+len(o.GetOwnerReferences()) > 0 {
		t.Errorf("%+v", o.Object["metadata"])
	}

	// A controller here writes a status and a finalizer: they stay, and the status is told.
	o.Object["status"] = map[string]any{"phase": "Ready"}
	o.SetFinalizers([]string{"example.com/hold"})
	if _, err := k.client.Resource(widgets).Namespace("shop-alice").Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if line := k.hear(); line.State == nil || string(line.State.Status) != `{"phase":"Ready"}` {
		t.Fatalf("%+v", line.State)
	}
	k.say(put("shop", "one", "d2", `{"spec":{"size":4}}`))
	if line := k.hear(); line.State == nil || line.State.Digest != "d2" || string(line.State.Status) != `{"phase":"Ready"}` {
		t.Fatalf("%+v", line.State)
	}
	if o = k.at("shop-alice", "one"); o.Object["data"] != nil || o.Object["spec"].(map[string]any)["on"] != nil || len(o.GetFinalizers()) != 1 {
		t.Errorf("%+v", o.Object)
	}

	// Somebody here changes it: home is told that it is not what it put.
	o.Object["spec"] = map[string]any{"size": int64(9)}
	o.SetGeneration(7)
	if _, err := k.client.Resource(widgets).Namespace("shop-alice").Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if line := k.hear(); line.State == nil || line.State.Digest != "" || line.State.Gone {
		t.Fatalf("%+v", line.State)
	}
	k.say(custom.Ask{Delete: &custom.Key{Namespace: "shop", Name: "one"}})
	if line := k.hear(); line.State == nil || !line.State.Gone {
		t.Fatalf("%+v", line)
	}
}

func TestWhatThereIsIsToldFirst(t *testing.T) {
	k := newTalk(t)
	make := func(name, consumer, digest string) {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
		o.SetNamespace("shop-alice")
		o.SetName(name)
		o.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer, v1alpha1.LabelHomeNamespace: "shop"})
		o.SetAnnotations(map[string]string{annotationContent: digest})
		if err := k.client.Tracker().Create(widgets, o, "shop-alice"); err != nil {
			t.Fatal(err)
		}
	}
	make("mine", "alice", "d")
	make("daves", "dave", "d")
	k.begin(widget)
	if line := k.hear(); line.State == nil || line.State.Name != "mine" || line.State.Digest != "d" {
		t.Fatalf("%+v", line)
	}
	if line := k.hear(); line.Kept == nil {
		t.Fatalf("%+v", line)
	}
	k.say(put("shop", "daves", "e", `{}`)) // of another consumer, whatever the namespace is called
	k.refused(custom.NotOurs, "somebody there")
	k.say(custom.Ask{Delete: &custom.Key{Namespace: "shop", Name: "daves"}})
	k.refused(custom.NotOurs, "somebody there")
}

func TestWhatAnObjectMayNotBe(t *testing.T) {
	k := newTalk(t)
	owners := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	owners.SetNamespace("shop-alice")
	owners.SetName("owners")
	if err := k.client.Tracker().Create(widgets, owners, "shop-alice"); err != nil {
		t.Fatal(err)
	}
	k.kept()
	for _, c := range []struct {
		ask    custom.Ask
		reason custom.Reason
		words  string
	}{
		{put("shop", "a", "", `{"metadata":{"finalizers":["x"]}}`), custom.Invalid, "metadata is not taken"},
		{put("shop", "a", "", `{"kind":"Pod"}`), custom.Invalid, "kind is not taken"},
		{put("shop", "a", "", `{"apiVersion":"v1"}`), custom.Invalid, "apiVersion is not taken"},
		{put("shop", "a", "", `{"status":{}}`), custom.Invalid, "status is not taken"},
		{put("shop", "a", "", `["spec"]`), custom.Invalid, ""},
		{put("shop", "a", "", `{"spec":"`+strings.Repeat("x", custom.MaxContent)+`"}`), custom.TooLarge, "at most 65536"},
		{put("shop", "a", strings.Repeat("d", 200), `{}`), custom.Invalid, "digest"},
		{put("elsewhere", "a", "", `{}`), custom.Failed, "no twin"},
		{put("leaving", "a", "", `{}`), custom.Failed, "no twin"},
		{put("shop", "owners", "", `{"spec":{"mine":true}}`), custom.NotOurs, "somebody there"},
	} {
		k.say(c.ask)
		k.refused(c.reason, c.words)
	}
	if k.at("shop-alice", "a") != nil || k.at("shop-alice", "owners").Object["spec"] != nil {
		t.Error("something was written")
	}
	for i := range 3 {
		k.say(put("shop", fmt.Sprint("w", i), "d", `{}`))
		k.hear()
	}
	k.say(put("shop", "w3", "d", `{}`))
	k.refused(custom.TooMany, "3 objects")
	k.say(put("shop", "w0", "e", `{"spec":{}}`)) // what there is may change
	if line := k.hear(); line.State == nil || line.State.Digest != "e" {
		t.Errorf("%+v", line)
	}
	k.granted.change(func(t *grants.Terms) { t.Kinds = nil })
	k.say(put("shop", "w0", "f", `{}`))
	k.refused(custom.NotAllowed, "does not let")
}

func TestLinesThatEndAConnection(t *testing.T) {
	for what, raw := range map[string]string{
		"a kind that was not named": `{"put":{"kind":7,"namespace":"shop","name":"a","content":{}}}`,
		"a kind below none":         `{"delete":{"kind":-1,"namespace":"shop","name":"a"}}`,
		"a path":                    `{"put":{"namespace":"shop","name":"../../secrets/a","content":{}}}`,
		"another's namespace":       `{"put":{"namespace":"shop/../x","name":"a","content":{}}}`,
		"kinds again":               `{"kinds":[{"group":"example.com","version":"v1","resource":"widgets"}]}`,
		"too deep":                  `{"put":{"namespace":"shop","name":"a","content":` + strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200) + `}}`,
		"no JSON":                   `{"put":`,
		"a definition of nothing":   `{"define":{"kind":3,"definition":{}}}`,
		"too long":                  `{"put":{"namespace":"shop","name":"` + strings.Repeat("a", custom.MaxDefinition+8<<10) + `"}}`,
	} {
		k := newTalk(t)
		k.kept()
		k.conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = k.conn.Write([]byte(raw + "\n"))
		var line custom.Tell
		if err := k.lines.Next(&line); err == nil {
			t.Errorf("%s: it goes on with %+v", what, line)
		}
	}
	k := newTalk(t)
	k.begin()
	var line custom.Tell
	if err := k.lines.Next(&line); err == nil {
		t.Error("no kinds: it goes on")
	}
}

func TestAConnectionEndsWithTheContract(t *testing.T) {
	k := newTalk(t)
	k.kept()
	k.granted.change(func(t *grants.Terms) { t.Why = "it is ending" })
	k.say(put("shop", "a", "d", `{}`))
	var line custom.Tell
	if err := k.lines.Next(&line); err != io.EOF {
		t.Errorf("%+v, %v", line, err)
	}
	if k.at("shop-alice", "a") != nil {
		t.Error("it was written")
	}
	one, two := net.Pipe()
	k.objects.take("ALICE", live{two, k.granted.Of("")})
	k.objects.ShutObjects("ALICE")
	if _, err := one.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection is open: %v", err)
	}
}

// TestOtherKindsBeginAnew: the owner lets a peer keep another kind, or none.
func TestOtherKindsBeginAnew(t *testing.T) {
	k := newTalk(t)
	here, there := net.Pipe()
	k.objects.take("ALICE", live{there, k.granted.Of("")})
	k.objects.KindsChanged("another")
	k.objects.KindsChanged("c")
	here.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing changed: %v", err)
	}
	k.granted.change(func(t *grants.Terms) { t.Kinds = nil })
	k.objects.KindsChanged("c")
	if _, err := here.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}
}

func TestADefinitionIsBrought(t *testing.T) {
	gadget := custom.Kind{Group: "example.com", Version: "v1", Resource: "gadgets"}
	brought := definition("gadgets", "Gadget", "Namespaced", "v1", "v2")
	brought.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{"clientConfig": map[string]any{"url": "https://169.254.169.254/"}}}
	brought.Object["spec"].(map[string]any)["names"].(map[string]any)["categories"] = []any{"all"}
	raw, _ := brought.MarshalJSON()
	for _, c := range []struct {
		what       string
		definition v1alpha1.Access
		kind       custom.Kind
		raw        json.RawMessage
		want       custom.Reason
	}{
		{"allowed", v1alpha1.AccessAllow, gadget, raw, ""},
		{"not allowed", v1alpha1.AccessDeny, gadget, raw, custom.NotAllowed},
		{"of another kind", v1alpha1.AccessAllow, gadget, func() json.RawMessage { b, _ := definition("pods", "Pod", "Namespaced", "v1").MarshalJSON(); return b }(), custom.Invalid},
		{"cluster-scoped", v1alpha1.AccessAllow, gadget, func() json.RawMessage {
			b, _ := definition("gadgets", "Gadget", "Cluster", "v1").MarshalJSON()
			return b
		}(), custom.Invalid},
		{"of another version", v1alpha1.AccessAllow, custom.Kind{Group: "example.com", Version: "v3", Resource: "gadgets"}, raw, custom.NotServed},
		{"no JSON object", v1alpha1.AccessAllow, gadget, json.RawMessage(`[]`), custom.Invalid},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := newTalk(t, c.kind)
			k.granted.terms.Kinds = []v1alpha1.GuestKind{{Group: "example.com", Resource: "gadgets", Most: 1, Definition: c.definition}}
			k.begin(c.kind)
			k.refused(custom.Unknown, "gadgets.example.com")
			k.say(custom.Ask{Define: &custom.Definition{Definition: c.raw}})
			crd := func() *unstructured.Unstructured {
				o, _ := k.client.Resource(definitions).Get(t.Context(), "gadgets.example.com", metav1.GetOptions{})
				return o
			}
			if c.want != "" {
				k.refused(c.want, "")
				if crd() != nil {
					t.Error("it was made")
				}
				return
			}
			if line := k.hear(); line.Kept == nil {
				t.Fatalf("%+v", line.Refused)
			}
			spec := crd().Object["spec"].(map[string]any)
			if spec["conversion"] != nil || len(spec["versions"].([]any)) != 1 || spec["names"].(map[string]any)["categories"] != nil {
				t.Errorf("made was %+v", spec)
			}
		})
	}
}
