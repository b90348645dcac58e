package hosting

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/wire/wiretest"
)

// What the API server decodes of a body, and this daemon reads of it after.
func TestCost(t *testing.T) {
	types := map[string]reflect.Type{
		"offloadedpods": reflect.TypeFor[v1alpha1.OffloadedPod](), "services": reflect.TypeFor[corev1.Service](),
		"configmaps": reflect.TypeFor[corev1.ConfigMap](), "secrets": reflect.TypeFor[corev1.Secret](),
		"endpointslices": reflect.TypeFor[discoveryv1.EndpointSlice](),
	}
	most := int(DefaultLimits().Body)
	row := func(what, resource, method string, of reflect.Type, decode func([]byte)) {
		wiretest.Row{
			What: what, From: "consumer", Max: most, Type: of,
			Taken: func(text []byte) error {
				_, err := way{resource: resource}.checkBody(method, "application/json", text)
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
		_, _ = way{resource: "endpointslices"}.checkBody(http.MethodPost, "application/json", text)
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
