package guests

import (
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire/wiretest"
)

// What this daemon reads of a template that the API server has.
func TestCost(t *testing.T) {
	most := int(apiproxy.DefaultLimits().Body)
	wiretest.Row{
		What: "template of an OffloadedPod (kithd)", From: "consumer", Max: most, Type: reflect.TypeFor[corev1.PodTemplateSpec](),
		Taken: func(text []byte) error { return templateShape.Check(text, door.BodyBound) },
		Decode: func(text []byte) {
			u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"template": string(text)}}}
			_, _ = typed(u)
		},
	}.Check(t)
}

// What an older Kith let into the API server: it costs a refusal, not the daemon. The paths alone took 900 MB once.
func TestATemplateThatIsThereAlreadyCostsARefusal(t *testing.T) {
	key := strings.Repeat("k", 200)
	template := strings.Repeat(`{"`+key+`":`, 3000) + `{"limits":{"cpu":"1e-999999999"}}` + strings.Repeat("}", 3000)
	var content map[string]any
	if err := door.Read([]byte(template), &content); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"homeNamespace": "den", "template": content}}}
	if o, err := Textual(u); err != nil || o != any(u) {
		t.Fatal(err)
	}
	if text, ok := u.Object["spec"].(map[string]any)["template"].(string); !ok || len(text) != len(template) {
		t.Errorf("it is kept as %T of %d bytes", u.Object["spec"].(map[string]any)["template"], len(text))
	}
	var no *grants.Refusal
	var opod *v1alpha1.OffloadedPod
	used := wiretest.Measure(func() { opod, no = typed(u) })
	if no == nil || !strings.Contains(no.Message, "nested more than 64 deep") || opod.Name != "x" || opod.Spec.HomeNamespace != "den" {
		t.Errorf("%v, %+v", no, opod)
	}
	if used.Allocated > int64(len(template))+1<<20 {
		t.Errorf("a template of %d bytes cost %d", len(template), used.Allocated)
	}
	if again, err := Whole(u).MarshalJSON(); err != nil || !strings.Contains(string(again), `"template":{"`+key) {
		t.Errorf("it would be written as %.100s: %v", again, err)
	}
}

// A status is written with the whole object, whose template the cache keeps as text.
func TestAStatusIsWrittenWithItsTemplate(t *testing.T) {
	var sent []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(sent)
	}))
	defer s.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("OffloadedPod"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: s.URL}, client.Options{Scheme: runtime.NewScheme(), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	u := NewOffloaded()
	u.SetName("web")
	u.SetNamespace("shop")
	u.Object["spec"] = map[string]any{"homeNamespace": "shop", "template": map[string]any{"spec": map[string]any{"hostname": "a"}}}
	if _, err := Textual(u); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{client: c, records: map[types.NamespacedName]record{}}
	o := &observed{raw: u, opod: &v1alpha1.OffloadedPod{}, key: types.NamespacedName{Namespace: "shop", Name: "web"}}
	if err := r.writeStatus(t.Context(), o, v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodRefused}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(sent), `"template":{"spec":{"hostname":"a"}}`) || !strings.Contains(string(sent), `"phase":"Refused"`) {
		t.Errorf("sent: %s", sent)
	}
	if opod, no := typed(o.raw); no != nil || opod.Spec.Template.Spec.Hostname != "a" || opod.Status.Phase != v1alpha1.OffloadedPodRefused {
		t.Errorf("%+v %v", opod, no)
	}
	if _, isText := u.Object["spec"].(map[string]any)["template"].(string); !isText {
		t.Error("what the cache holds was changed")
	}
}
