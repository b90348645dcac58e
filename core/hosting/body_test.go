package hosting

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
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
		{"its kind in protobuf", "POST", "application/vnd.kubernetes.protobuf", protobufOf(t, &corev1.ConfigMap{}), true},
		{"an apply", "PATCH", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap"}`, true},
		{"a merge", "PATCH", "application/merge-patch+json; charset=utf-8", `{"metadata":{"annotations":{}}}`, true},
		{"a delete", "DELETE", "application/json", `{"apiVersion":"v1","kind":"DeleteOptions"}`, true},
		{"a delete in protobuf", "DELETE", "application/vnd.kubernetes.protobuf", protobufOf(t, &metav1.DeleteOptions{}), true},
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
		resp := l.do(tt.method, path, strings.NewReader(tt.body), http.Header{"Content-Type": {tt.media}})
		if passed := came.Load() == 1; passed != tt.passes {
			t.Errorf("%s: passed %t", tt.what, passed)
		}
		if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[tt.passes]; resp.StatusCode != want {
			t.Errorf("%s: %s", tt.what, resp.Status)
		}
	}
}
