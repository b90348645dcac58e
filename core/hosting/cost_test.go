package hosting

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/apiproxy"
	"kith.dev/core/wire/wiretest"
)

// What the API server decodes of a body, and this daemon reads of it after.
func TestCost(t *testing.T) {
	types := map[string]reflect.Type{
		"offloadedpods": reflect.TypeFor[v1alpha1.OffloadedPod](), "services": reflect.TypeFor[corev1.Service](),
		"configmaps": reflect.TypeFor[corev1.ConfigMap](), "secrets": reflect.TypeFor[corev1.Secret](),
		"endpointslices": reflect.TypeFor[discoveryv1.EndpointSlice](),
	}
	most := int(apiproxy.DefaultLimits().Body)
	row := func(what, resource, method string, of reflect.Type, decode func([]byte)) {
		wiretest.Row{
			What: what, From: "consumer", Max: most, Type: of,
			Taken: func(text []byte) error {
				_, err := checkBody(apiproxy.Info{Resource: resource}, method, "application/json", text)
				if resource == "endpointslices" { // whose two lists come together only
					return wares[resource].shapes[0].Check(text, bodyBound)
				}
				return err
			},
			Decode: decode,
		}.Check(t)
	}
	for _, resource := range slices.Sorted(maps.Keys(wares)) {
		row(wares[resource].kind+" (the API server's decoding)", resource, http.MethodPost, types[resource], func(text []byte) {
			if resource == "offloadedpods" {
				_ = read(text, new(map[string]any)) // open in its schema
				return
			}
			_ = read(text, reflect.New(types[resource]).Interface())
		})
	}
	row("OffloadedPod, any fields (the API server's decoding)", "offloadedpods", http.MethodPost, reflect.TypeFor[struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}](), func(text []byte) { _ = read(text, new(map[string]any)) })
	row("DeleteOptions", "secrets", http.MethodDelete, reflect.TypeFor[metav1.DeleteOptions](), func(text []byte) { _ = read(text, new(metav1.DeleteOptions)) })
	row("EndpointSlice (the door's own look)", "endpointslices", http.MethodPost, types["endpointslices"], func(text []byte) {
		_, _ = checkBody(apiproxy.Info{Resource: "endpointslices"}, http.MethodPost, "application/json", text)
	})
	wiretest.Row{
		What: "template of an OffloadedPod (kithd)", From: "consumer", Max: most, Type: reflect.TypeFor[corev1.PodTemplateSpec](),
		Taken: func(text []byte) error { return templateShape.Check(text, bodyBound) },
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
	if err := read([]byte(template), &content); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"homeNamespace": "den", "template": content}}}
	if o, err := textual(u); err != nil || o != any(u) {
		t.Fatal(err)
	}
	if text, ok := u.Object["spec"].(map[string]any)["template"].(string); !ok || len(text) != len(template) {
		t.Errorf("it is kept as %T of %d bytes", u.Object["spec"].(map[string]any)["template"], len(text))
	}
	var no *refusal
	var opod *v1alpha1.OffloadedPod
	used := wiretest.Measure(func() { opod, no = typed(u) })
	if no == nil || !strings.Contains(no.message, "nested more than 64 deep") || opod.Name != "x" || opod.Spec.HomeNamespace != "den" {
		t.Errorf("%v, %+v", no, opod)
	}
	if used.Allocated > int64(len(template))+1<<20 {
		t.Errorf("a template of %d bytes cost %d", len(template), used.Allocated)
	}
	if again, err := whole(u).MarshalJSON(); err != nil || !strings.Contains(string(again), `"template":{"`+key) {
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
	u := newOffloaded()
	u.SetName("web")
	u.SetNamespace("shop")
	u.Object["spec"] = map[string]any{"homeNamespace": "shop", "template": map[string]any{"spec": map[string]any{"hostname": "a"}}}
	if _, err := textual(u); err != nil {
		t.Fatal(err)
	}
	r := &reconciler{client: c, memos: map[types.NamespacedName]memo{}}
	o := &seen{raw: u, opod: &v1alpha1.OffloadedPod{}, key: types.NamespacedName{Namespace: "shop", Name: "web"}}
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

// An apply is read as YAML, which costs more than JSON: so it counts as more bodies under way.
func TestAnApplyCostsWhatItCountsAs(t *testing.T) {
	_ = yaml.Unmarshal([]byte(`{"a":0}`), new(map[string]any)) // what is made once only
	one := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader("1"))
	one.Header.Set("Content-Type", "application/apply-patch+yaml")
	applied := int(apiproxy.DefaultLimits().Weight(one))
	for resource, of := range map[string]reflect.Type{"configmaps": reflect.TypeFor[corev1.ConfigMap](), "endpointslices": reflect.TypeFor[discoveryv1.EndpointSlice]()} {
		for _, text := range wiretest.Worst(of, 100<<10, func(text []byte) error {
			for _, shape := range append(slices.Clone(wares[resource].shapes), open) {
				if err := shape.Check(text, bodyBound); err != nil {
					return err
				}
			}
			return nil
		}) {
			wiretest.Within(t, applied*len(text.Data), func() { _ = yaml.Unmarshal(text.Data, new(map[string]any)) })
		}
	}
}

// With as many as the API server looks at by default it wrote a path of 1 MiB for each.
func TestRepeatedFieldsUnderALongName(t *testing.T) {
	var sent string
	l := newLane(t, func(_ http.ResponseWriter, r *http.Request) { sent = r.URL.RawQuery })
	body := `{"spec":{"template":{"` + strings.Repeat("k", 1<<20) + `":{"a":0` + strings.Repeat(`,"a":0`, 5000) + `}}}}`
	const path = "/kube/apis/kith.dev/v1alpha1/namespaces/shop/offloadedpods"
	for _, query := range []string{"", "?fieldValidation=Strict", "?fieldValidation=Warn&fieldValidation=Strict"} {
		sent = ""
		resp := l.do("POST", path+query, strings.NewReader(body), http.Header{"Content-Type": {"application/json"}})
		if resp.StatusCode != http.StatusOK || sent != "fieldValidation=Ignore" {
			t.Errorf("%q: %d, the API server is asked with %q", query, resp.StatusCode, sent)
		}
	}
}
