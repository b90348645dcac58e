package door

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/provide/hosting/grants"
)

func protobufOf(t *testing.T, o runtime.Object) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), o)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The API server would decode each of the refused ones as a Pod, whatever the path.
func TestBodiesAreOfKindsThatConsumersWrite(t *testing.T) {
	var came atomic.Int32
	l := newLane(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			came.Add(1)
		}
	})
	const limits = `"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-999999999"}}}]}`
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}}}
	const path = "/kube/api/v1/namespaces/lair/configmaps"
	for _, tt := range []struct {
		what, method, media, body string
		passes                    bool
	}{
		{"its kind", "POST", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","data":{"kind":"Pod"}}`, true},
		{"no kind", "POST", "", `{"data":{"a":"b"}}`, true},
		{"its kind in protobuf", "POST", "application/vnd.kubernetes.protobuf", protobufOf(t, &corev1.ConfigMap{}), false},
		{"an apply", "PATCH", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap"}`, true},
		{"a merge", "PATCH", "application/merge-patch+json; charset=utf-8", `{"metadata":{"annotations":{}}}`, true},
		{"a delete", "DELETE", "application/json", `{"apiVersion":"v1","kind":"DeleteOptions"}`, true},
		{"a delete in protobuf", "DELETE", "application/vnd.kubernetes.protobuf", protobufOf(t, &metav1.DeleteOptions{}), false},
		{"another kind that is written", "POST", "", `{"apiVersion":"v1","kind":"Secret"}`, false},
		{"no object", "POST", "", `[{"kind":"ConfigMap"}]`, false},
		{"garbage", "POST", "", `{"data":`, false},
		{"a Pod", "POST", "application/json", `{"apiVersion":"v1","kind":"Pod",` + limits + `}`, false},
		{"a Pod, no media type", "POST", "", `{"apiVersion":"v1","kind":"Pod",` + limits + `}`, false},
		{"a Pod behind a ConfigMap", "PUT", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","KIND":"Pod",` + limits + `}`, false},
		{"a Pod before a ConfigMap", "PUT", "application/json", `{"apiVersion":"v1","kind":"Pod","kind":"ConfigMap",` + limits + `}`, false},
		{"a Pod, spelled otherwise", "PUT", "application/json", `{"apiVersion":"v1","\u006bind":"P\u006fd",` + limits + `}`, false},
		{"a Pod in protobuf", "POST", "application/vnd.kubernetes.protobuf", protobufOf(t, pod), false},
		{"a Pod in YAML", "POST", "application/yaml", "apiVersion: v1\nkind: Pod\n", false},
		{"a Pod in CBOR", "POST", "application/cbor", "\xd9\xd9\xf7\xa1", false},
		{"made a Pod by a merge", "PATCH", "application/merge-patch+json", `{"kind":"Pod",` + limits + `}`, false},
		{"made a Pod by operations", "PATCH", "application/json-patch+json", `[{"op":"replace","path":"/kind","value":"Pod"}]`, false},
		{"a Pod applied", "PATCH", "application/apply-patch+yaml", "apiVersion: v1\nkind: Pod\n", false},
		{"two media types", "POST", "application/json, application/yaml", "{}", false},
	} {
		came.Store(0)
		resp := l.Do(tt.method, path, strings.NewReader(tt.body), http.Header{"Content-Type": {tt.media}})
		if passed := came.Load() == 1; passed != tt.passes {
			t.Errorf("%s: passed %t", tt.what, passed)
		}
		if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[tt.passes]; resp.StatusCode != want {
			t.Errorf("%s: %s", tt.what, resp.Status)
		}
	}
}

// TestEndpointsHaveTheAddressesOfThisSide where a provider knows a consumer's ranges by other names: whatever is not one of those is refused, for it
// would mean something else here. All else of a slice, and other kinds, pass as they are.
func TestEndpointsHaveTheAddressesOfThisSide(t *testing.T) {
	var came string
	l := newLane(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		came = string(body)
	})
	translated := &grants.Terms{Network: grants.Network{Guests: "198.18.0.0/16", Space: "10.42.0.0/16", GuestsHere: "10.42.0.0/16", SpaceHere: "10.71.0.0/16"}}
	const slices, apply = "/kube/apis/discovery.k8s.io/v1/namespaces/lair/endpointslices", "application/apply-patch+yaml"
	slice := func(addresses string) string {
		return `{"addressType":"IPv4","endpoints":[{"addresses":` + addresses + `,"conditions":{"ready":true},"hostname":"web-0"}],"ports":[{"port":8080}]}`
	}
	for what, c := range map[string]struct {
		terms              *grants.Terms
		method, path, body string
		want               string // what the API server gets; empty: nothing
	}{
		"as they are":         {&grants.Terms{Network: grants.Network{Guests: "198.18.0.0/16", Space: "10.42.0.0/16"}}, "PATCH", slices + "/web", slice(`["10.42.0.9"]`), slice(`["10.42.0.9"]`)},
		"without terms":       {nil, "PATCH", slices + "/web", slice(`["10.42.0.9"]`), slice(`["10.42.0.9"]`)},
		"home's, applied":     {translated, "PATCH", slices + "/web", slice(`["10.42.0.9"]`), slice(`["10.71.0.9"]`)},
		"a guest's, made":     {translated, "POST", slices, slice(`["198.18.0.9"]`), slice(`["10.42.0.9"]`)},
		"both, in its place":  {translated, "PUT", slices + "/web", slice(`["198.18.0.9","10.42.0.9"]`), slice(`["10.42.0.9","10.71.0.9"]`)},
		"none":                {translated, "PATCH", slices + "/web", `{"endpoints":[],"ports":[]}`, `{"endpoints":[],"ports":[]}`},
		"by another name":     {translated, "PATCH", slices + "/web", slice(`["10.71.0.9"]`), ""},
		"the host's":          {translated, "PATCH", slices + "/web", slice(`["192.0.2.12"]`), ""},
		"no address":          {translated, "PATCH", slices + "/web", slice(`["web"]`), ""},
		"twice":               {translated, "PATCH", slices + "/web", slice(`["192.0.2.12"],"addresses":["10.42.0.9"]`), slice(`["10.71.0.9"]`)},
		"without any":         {translated, "PATCH", slices + "/web", `{"endpoints":[{}],"ports":[]}`, ""},
		"nothing":             {translated, "PATCH", slices + "/web", `{"endpoints":[null],"ports":[]}`, ""},
		"of another kind":     {translated, "POST", "/kube/api/v1/namespaces/lair/configmaps", `{"data":{"endpoints":"10.42.0.9"}}`, `{"data":{"endpoints":"10.42.0.9"}}`},
		"a deletion of these": {translated, "DELETE", slices + "/web", `{"propagationPolicy":"Background"}`, `{"propagationPolicy":"Background"}`},
	} {
		came, l.list.terms = "", c.terms
		media := map[bool]string{true: apply, false: "application/json"}[c.method == "PATCH"]
		resp := l.Do(c.method, c.path, strings.NewReader(c.body), http.Header{"Content-Type": {media}})
		var got, want any
		_ = json.Unmarshal([]byte(came), &got) // nothing: nil
		_ = json.Unmarshal([]byte(c.want), &want)
		if !reflect.DeepEqual(got, want) || (resp.StatusCode == http.StatusOK) != (c.want != "") {
			t.Errorf("%s: %s, the API server got %s", what, resp.Status, came)
		}
	}
}

// body of a kind, sent by hand.
type body struct{ what, method, resource, media, text, says string }

// repeated is a JSON list of n elements.
func repeated(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

// entries is a JSON object of n fields.
func entries(value string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":%s`, i, value)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// What these cost the API server or this daemon is many times their size; none may come that far.
func TestBodiesThatCostTooMuchStopAtTheDoor(t *testing.T) {
	var came atomic.Int32
	l := newLane(t, func(http.ResponseWriter, *http.Request) { came.Add(1) })
	const merge, apply, operations = "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"
	key := strings.Repeat("k", 200)
	nested := func(depth int) string {
		return `{"spec":{"homeNamespace":"a","homeUID":"b","template":{"spec":` + strings.Repeat(`{"`+key+`":`, depth) + "0" + strings.Repeat("}", depth) + `}}}`
	}
	pod := func(spec string) string {
		return `{"spec":{"homeNamespace":"a","homeUID":"b","template":{"spec":` + spec + `}}}`
	}
	slice := func(addresses, ports int) string {
		return `{"addressType":"IPv4","endpoints":` + repeated(`{"addresses":["10.0.0.1"]}`, addresses) + `,"ports":` + repeated(`{"name":"a","port":1}`, ports) + `}`
	}
	for _, tt := range []body{
		{"a pod", "POST", "offloadedpods", "", pod(`{"containers":[{"name":"c","image":"x","env":` + repeated(`{"name":"A","value":"b"}`, 300) + `}]}`), ""},
		{"3000 deep", "POST", "offloadedpods", "", nested(3000), "nested more than 64 deep"},
		{"100 000 empty containers", "POST", "offloadedpods", "", pod(`{"containers":` + repeated("{}", 100_000) + `}`), "too costly"},
		{"100 000 fields of nothing", "POST", "offloadedpods", "", pod(entries("0", 100_000)), "too costly"},
		{"text for containers", "POST", "offloadedpods", "", pod(`{"containers":"all"}`), "spec.template.spec.containers: must be a list"},
		{"an absurd amount", "POST", "offloadedpods", "", pod(`{"containers":[{"resources":{"limits":{"cpu":"1e-999999999"}}}]}`), `limits.cpu: "1e-999999999" is no amount`},
		{"a number of a million digits", "POST", "offloadedpods", "", pod(`{"x":` + strings.Repeat("1", 1<<20) + `}`), "a number of more than 64"},
		{"an owner", "POST", "offloadedpods", "", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"bob","uid":"x"}]}}`, "ownerReferences"},
		{"as it came, with its writers", "PUT", "offloadedpods/a", "", `{"metadata":{"managedFields":[{"manager":"me","fieldsV1":{"f:spec":{"f:template":{}}}}]}}`, ""},
		{"17 writers", "PUT", "offloadedpods/a", "", `{"metadata":{"managedFields":` + repeated(`{"manager":"me"}`, 17) + `}}`, "17 writers"},
		{"a writer of crumbs", "PUT", "offloadedpods/a", "", `{"metadata":{"managedFields":[{"fieldsV1":` + entries("{}", 50_000) + `}]}}`, "managedFields[0].fieldsV1"},
		{"five finalizers", "POST", "offloadedpods", "", `{"metadata":{"finalizers":["a/a","a/b","a/c","a/d","a/e"]}}`, "finalizers: 5"},
		{"labels", "POST", "offloadedpods", "", `{"metadata":{"labels":` + entries(`"a"`, 33) + `}}`, "33 labels"},
		{"annotations", "POST", "configmaps", "", `{"metadata":{"annotations":` + entries(`"a"`, 33) + `}}`, "33 annotations"},
		{"long annotations", "PATCH", "offloadedpods/a", merge, `{"metadata":{"annotations":{"kith.dev/grace-seconds":"` + strings.Repeat("1", 2000) + `"}}}`, "has 2000 bytes"},
		{"a grace period", "PATCH", "offloadedpods/a", merge, `{"metadata":{"uid":"x","annotations":{"kith.dev/grace-seconds":"7"}}}`, ""},
		{"a template bit by bit", "PATCH", "offloadedpods/a", merge, `{"spec":{"template":{"spec":{"a":0}}}}`, "write it whole"},
		{"a template applied", "PATCH", "offloadedpods/a", apply, `{"spec":{"template":{"spec":{"a":0}}}}`, "write it whole"},
		{"copies of copies", "PATCH", "offloadedpods/a", operations, `[]`, "content type"},

		{"a slice", "POST", "endpointslices", "", slice(100, 25), ""},
		{"a slice applied", "PATCH", "endpointslices/a", apply, slice(100, 3), ""},
		{"200 addresses with 5000 ports", "POST", "endpointslices", "", slice(200, 5000), "1000000 pairs"},
		{"so applied", "PATCH", "endpointslices/a", apply, slice(200, 5000), "too costly"},
		{"addresses in one endpoint", "POST", "endpointslices", "", `{"endpoints":[{"addresses":` + repeated(`"10.0.0.1"`, 100) + `}],"ports":` + repeated(`{}`, 26) + `}`, "2600 pairs"},
		{"fields that no slice has", "PATCH", "endpointslices/a", apply, `{"endpoints":[],"ports":[],"x":` + entries("{}", 50_000) + `}`, "too costly"},
		{"ports alone", "PATCH", "endpointslices/a", apply, `{"ports":` + repeated(`{"port":1}`, 25) + `}`, "written together"},
		{"ports by a merge", "PATCH", "endpointslices/a", merge, `{"ports":` + repeated(`{"port":1}`, 25) + `}`, "written together"},

		{"a service", "POST", "services", "", `{"spec":{"ports":` + repeated(`{"port":1}`, 100) + `}}`, ""},
		{"101 ports", "PATCH", "services/a", merge, `{"spec":{"ports":` + repeated(`{"port":1}`, 101) + `}}`, "spec.ports: 101"},
		{"101 addresses from outside", "POST", "services", "application/json", `{"spec":{"externalIPs":` + repeated(`null`, 101) + `}}`, "spec.externalIPs: 101"},
		{"101 ranges", "PATCH", "services/a", merge, `{"spec":{"loadBalancerSourceRanges":` + repeated(`""`, 101) + `}}`, "spec.loadBalancerSourceRanges: 101"},
		{"a ConfigMap", "POST", "configmaps", "", `{"data":` + entries(`"`+strings.Repeat("x", 1000)+`"`, 1000) + `}`, ""},
		{"a ConfigMap of crumbs", "POST", "configmaps", "", `{"data":` + entries(`""`, 50_000) + `}`, "too costly"},
		{"a Secret of crumbs", "POST", "secrets", "", `{"data":` + entries(`""`, 50_000) + `}`, "too costly"},
		{"a status", "PATCH", "offloadedpods/a/status", merge, `{}`, "nothing can be written here"},
		{"a Pod", "POST", "pods", "", `{}`, "nothing can be written here"},
		{"options", "DELETE", "secrets/a", "", `{"preconditions":{"uid":"x"}}`, ""},
		{"options of many", "DELETE", "secrets/a", "", `{"dryRun":` + repeated(`""`, 200_000) + `}`, "too costly"},
	} {
		group := map[string]string{"offloadedpods": "apis/kith.dev/v1alpha1", "endpointslices": "apis/discovery.k8s.io/v1"}[strings.Split(tt.resource, "/")[0]]
		if group == "" {
			group = "api/v1"
		}
		came.Store(0)
		resp := l.Do(tt.method, "/kube/"+group+"/namespaces/lair/"+tt.resource, strings.NewReader(tt.text), http.Header{"Content-Type": {tt.media}})
		if tt.says == "" {
			if resp.StatusCode != 200 || came.Load() != 1 {
				t.Errorf("%s: %s", tt.what, resp.Status)
			}
			continue
		}
		if s := l.Status(resp); s.Code != 403 || came.Load() != 0 || !strings.Contains(s.Message, tt.says) {
			t.Errorf("%s: %d, came %d, %s", tt.what, s.Code, came.Load(), s.Message)
		}
	}
}

// Twenty containers with sixty variables each, all from a Secret, are many small objects in few bytes.
func TestAPodOfManyVariablesIsTaken(t *testing.T) {
	pod := v1alpha1.OffloadedPod{}
	for i := range 20 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/team/app:1.2.3"}
		for j := range 60 {
			from := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}, Key: fmt.Sprint("k", j)}
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("ENV_", j), ValueFrom: &corev1.EnvVarSource{SecretKeyRef: from}})
		}
		for j := range 10 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprint("v", j), MountPath: fmt.Sprint("/v", j), ReadOnly: true})
		}
		pod.Spec.Template.Spec.Containers = append(pod.Spec.Template.Spec.Containers, c)
	}
	body, err := json.Marshal(&pod)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkBody(apiproxy.Info{Resource: "offloadedpods"}, http.MethodPost, "application/json", body); err != nil {
		t.Error(err)
	}
}
