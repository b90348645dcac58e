package frontdoor

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// BenchmarkWays is what the front door adds: a request of 2 kB and lists of a thousand pods, by it and directly, from a stand-in that
// takes no time to answer.
func BenchmarkWays(b *testing.B) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1", Annotations: map[string]string{"a": strings.Repeat("x", 2000)}}}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "4711"}}
	for range 1000 {
		list.Items = append(list.Items, pod)
	}
	bodies := map[string]string{}
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		encode := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
		bodies[info.MediaType+"/api/v1/pods"] = runtime.EncodeOrDie(encode, list)
		bodies[info.MediaType+"/api/v1/namespaces/x/pods/web"] = runtime.EncodeOrDie(encode, &pod)
	}
	// As the API server writes a list of custom resources: what is looked for stands behind the items.
	sorted := bodies["application/json/api/v1/pods"]
	items := sorted[strings.Index(sorted, `"items"`) : strings.LastIndex(sorted, "]")+1]
	bodies["application/json/apis/kith.dev/v1alpha1/peers"] = `{"apiVersion":"kith.dev/v1alpha1",` + items + `,"kind":"PeerList","metadata":{"resourceVersion":"4711"}}`
	d := open(b, nil)
	to := behind(b, d, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		io.WriteString(w, bodies[r.Header.Get("Accept")+r.URL.Path])
	})
	front, direct := dial(b, d, alice, false), &http.Client{Transport: to.Transport}
	for _, c := range []struct{ name, accept, path string }{
		{"object", "application/vnd.kubernetes.protobuf", "/api/v1/namespaces/x/pods/web"},
		{"list in protobuf", "application/vnd.kubernetes.protobuf", "/api/v1/pods"},
		{"list in JSON", "application/json", "/api/v1/pods"},
		{"list of custom resources", "application/json", "/apis/kith.dev/v1alpha1/peers"},
	} {
		for way, client := range map[string]*http.Client{"direct": direct, "front": front} {
			url := to.Base.Scheme + "://" + to.Base.Host + c.path
			if way == "front" {
				url = d.url(c.path)
			}
			b.Run(c.name+"/"+way, func(b *testing.B) {
				for b.Loop() {
					r, _ := http.NewRequest("GET", url, nil)
					r.Header.Set("Accept", c.accept)
					answer, err := client.Do(r)
					if err != nil {
						b.Fatal(err)
					}
					n, _ := io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					b.SetBytes(n)
				}
			})
		}
	}
}
