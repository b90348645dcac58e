package door

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/trust/wire/wiretest"
)

// What the API server decodes of a body, and this daemon reads of it after.
func TestCost(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, k := range kinds.Written() {
		types[k.Resource.Resource] = reflect.TypeOf(k.Type).Elem()
	}
	most := int(apiproxy.DefaultLimits().Body)
	row := func(what, resource, method string, of reflect.Type, decode func([]byte)) {
		wiretest.Row{
			What: what, From: "consumer", Max: most, Type: of,
			Taken: func(text []byte) error {
				_, err := checkBody(apiproxy.Info{Resource: resource}, method, "application/json", text)
				if resource == "endpointslices" { // whose two lists come together only
					return contents[resource].shapes[0].Check(text, BodyBound)
				}
				return err
			},
			Decode: decode,
		}.Check(t)
	}
	for _, resource := range slices.Sorted(maps.Keys(contents)) {
		row(contents[resource].kind+" (the API server's decoding)", resource, http.MethodPost, types[resource], func(text []byte) {
			if resource == "offloadedpods" {
				_ = Read(text, new(map[string]any)) // open in its schema
				return
			}
			_ = Read(text, reflect.New(types[resource]).Interface())
		})
	}
	row("OffloadedPod, any fields (the API server's decoding)", "offloadedpods", http.MethodPost, reflect.TypeFor[struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}](), func(text []byte) { _ = Read(text, new(map[string]any)) })
	row("DeleteOptions", "secrets", http.MethodDelete, reflect.TypeFor[metav1.DeleteOptions](), func(text []byte) { _ = Read(text, new(metav1.DeleteOptions)) })
	row("EndpointSlice (the door's own look)", "endpointslices", http.MethodPost, types["endpointslices"], func(text []byte) {
		_, _ = checkBody(apiproxy.Info{Resource: "endpointslices"}, http.MethodPost, "application/json", text)
	})
}

// An apply is read as YAML, which costs more than JSON: so it counts as more bodies under way.
func TestAnApplyCostsWhatItCountsAs(t *testing.T) {
	_ = yaml.Unmarshal([]byte(`{"a":0}`), new(map[string]any)) // what is made once only
	one := httptest.NewRequest(http.MethodPatch, "/", strings.NewReader("1"))
	one.Header.Set("Content-Type", "application/apply-patch+yaml")
	applied := int(apiproxy.DefaultLimits().Weight(one))
	for resource, of := range map[string]reflect.Type{"configmaps": reflect.TypeFor[corev1.ConfigMap](), "endpointslices": reflect.TypeFor[discoveryv1.EndpointSlice]()} {
		for _, text := range wiretest.Worst(of, 100<<10, func(text []byte) error {
			for _, shape := range append(slices.Clone(contents[resource].shapes), open) {
				if err := shape.Check(text, BodyBound); err != nil {
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
		resp := l.Do("POST", path+query, strings.NewReader(body), http.Header{"Content-Type": {"application/json"}})
		if resp.StatusCode != http.StatusOK || sent != "fieldValidation=Ignore" {
			t.Errorf("%q: %d, the API server is asked with %q", query, resp.StatusCode, sent)
		}
	}
}
