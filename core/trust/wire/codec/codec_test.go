package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/wiretest"
)

// absurd takes a second to parse; with one digit more it would take minutes.
const absurd = "1e-9999999"

// amounts that can be told from each other, as long in bytes as those that must not pass.
func amountOf(n int) string { return fmt.Sprintf("123%07d", n) }
func absurdOf(n int) string { return fmt.Sprintf("1e-9999%03d", n) }

var amountType = reflect.TypeFor[apiresource.Quantity]()

// fill sets all that a value can hold, with another amount wherever there is one.
func fill(v reflect.Value, amounts *int) {
	switch {
	case v.Type() == amountType:
		*amounts++
		v.Set(reflect.ValueOf(apiresource.MustParse(amountOf(*amounts))))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), amounts)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), amounts)
	case v.Kind() == reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		fill(element, amounts)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("12e45678").Convert(v.Type().Key()), element)
	case v.Kind() == reflect.String:
		v.SetString("12e45678") // may be a name
	case v.Kind() == reflect.Struct:
		for f, field := range v.Fields() {
			if f.IsExported() {
				fill(field, amounts)
			}
		}
	}
}

func TestAmountsOfThePeerAreLookedAtBeforeTheyAreParsed(t *testing.T) {
	objects := of(t, New(someScheme(t)))
	for kind, o := range map[schema.GroupVersionKind]runtime.Object{
		corev1.SchemeGroupVersion.WithKind("Pod"):       &corev1.Pod{},
		v1alpha1.GroupVersion.WithKind("OffloadedPod"):  &v1alpha1.OffloadedPod{},
		v1alpha1.GroupVersion.WithKind("Advertisement"): &v1alpha1.Advertisement{},
	} {
		amounts := 0
		fill(reflect.ValueOf(o).Elem(), &amounts)
		if amounts == 0 || amounts > 999 {
			t.Fatalf("%s: %d amounts", kind.Kind, amounts)
		}
		o.GetObjectKind().SetGroupVersionKind(kind)
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		into := reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object)
		if _, _, err := objects.Decode(data, nil, into); err != nil {
			t.Errorf("%s, all honest: %v", kind.Kind, err)
		}
		for n := range amounts {
			bad := strings.Replace(string(data), amountOf(n+1), absurdOf(n+1), 1)
			if bad == string(data) {
				t.Fatalf("%s: amount %d is not there", kind.Kind, n+1)
			}
			if _, _, err := objects.Decode([]byte(bad), nil, into); err == nil || !strings.Contains(err.Error(), "amount") {
				t.Errorf("%s: an absurd amount, the %d. of %d, was parsed: %v", kind.Kind, n+1, amounts, err)
			}
		}
	}
}

func TestAnswersThatLieAreNotDecoded(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","resources":{"limits":%s}}]}}`
	objects := of(t, New(someScheme(t)))
	for what, data := range map[string]string{
		"as text":                 fmt.Sprintf(pod, `{"cpu":"`+absurd+`"}`),
		"as a number":             fmt.Sprintf(pod, `{"cpu":`+absurd+`}`),
		"hidden behind another":   fmt.Sprintf(pod, `{"cpu":"`+absurd+`"},"limits":{"cpu":"1"}`),
		"for ever when compared":  fmt.Sprintf(pod, `{"cpu":"1e2000000000"}`),
		"of many digits":          fmt.Sprintf(pod, `{"cpu":"`+strings.Repeat("7", 1<<20)+`"}`),
		"written with escapes":    fmt.Sprintf(pod, `{"cpu":"1\u0065-9999999"}`),
		"deep":                    fmt.Sprintf(pod, strings.Repeat("[", 1<<20)),
		"of a kind not asked for": strings.Replace(fmt.Sprintf(pod, `{"cpu":"1"}`), "Pod", "Node", 1),
		"of another kind":         strings.Replace(fmt.Sprintf(pod, `{"cpu":"1"}`), "Pod", "Event", 1),
		"of containers":           strings.Replace(fmt.Sprintf(pod, `{}`), `}]`, `}`+strings.Repeat(",{}", 100_000)+`]`, 1),
		"of text for containers":  `{"apiVersion":"v1","kind":"Pod","spec":{"containers":"all"}}`,
		"of nothing":              ``,
	} {
		if _, _, err := objects.Decode([]byte(data), nil, &corev1.Pod{}); err == nil {
			t.Errorf("%s: decoded", what)
		}
	}
	refusal := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	if o, _, err := objects.Decode([]byte(refusal), nil, &corev1.Pod{}); err != nil || o.(*metav1.Status).Reason != metav1.StatusReasonForbidden {
		t.Errorf("a refusal: %v %v", o, err)
	}
	media := New(someScheme(t)).SupportedMediaTypes()
	if len(media) != 1 || media[0].MediaType != runtime.ContentTypeJSON {
		t.Errorf("decoded are %+v", media)
	}
}

// One that cannot be decoded does not take the others along.
func TestOneUnreadablePodIsPassedOver(t *testing.T) {
	reader := NewReader(&corev1.Pod{})
	for what, bad := range map[string]string{
		"a wrong type":     `{"metadata":{"name":"bad","namespace":"shop","resourceVersion":"7"},"spec":{"containers":"all"}}`,
		"an absurd amount": `{"metadata":{"name":"bad","namespace":"shop","resourceVersion":"7"},"spec":{"overhead":{"cpu":"1e-999999999"}}}`,
		"a wrong time":     `{"metadata":{"name":"bad","namespace":"shop","resourceVersion":"7","creationTimestamp":"yesterday"}}`,
		"depth":            `{"metadata":{"name":"bad","namespace":"shop","resourceVersion":"7"},"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
	} {
		pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: "of an earlier one"}}
		if err := reader.Read([]byte(bad), &pod); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if pod.Name != "bad" || pod.Namespace != "shop" || pod.ResourceVersion != "7" || Unreadable(&pod) == "" || pod.Spec.NodeName != "" {
			t.Errorf("%s: %+v", what, pod)
		}
	}
	var pod corev1.Pod
	if err := reader.Read([]byte(`{"metadata":{"name":"good"},"spec":{"nodeName":"bob"}}`), &pod); err != nil || Unreadable(&pod) != "" || pod.Spec.NodeName != "bob" {
		t.Errorf("%+v %v", pod, err)
	}
	if err := reader.Read([]byte(`{"spec":7}`), &pod); err == nil {
		t.Error("nobody could say which one it is")
	}
}

// What a provider answers must not cost the consumer gigabytes.
func TestManyOfNothingAreRefused(t *testing.T) {
	objects, reader := of(t, New(someScheme(t))), NewReader(&corev1.Pod{})
	text := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"spec":{"containers":[{}` + strings.Repeat(",{}", 1<<20) + `]}}`)
	for what, do := range map[string]func() error{
		"an answer": func() error { _, _, err := objects.Decode(text, nil, &corev1.Pod{}); return err },
		"a line of view": func() error {
			var pod corev1.Pod
			return errors.Join(reader.Read(text, &pod), errors.New(Unreadable(&pod)))
		},
	} {
		var err error
		used := wiretest.Measure(func() { err = do() })
		if err == nil || !strings.Contains(err.Error(), "too costly") || used.Allocated > 3*16<<20 {
			t.Errorf("%s: cost %d MB, %v", what, used.Allocated>>20, err)
		}
	}
}

func TestHonestObjectsAreFarFromTheBound(t *testing.T) {
	always, when := corev1.ContainerRestartPolicyAlways, metav1.Now()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-5d8f7c9b4-x2x4z", Namespace: "shop", UID: "0b6f0c0e-9a3e-4a53-9f53-0a2c1f0e7a11", CreationTimestamp: when,
		Labels: map[string]string{"app": "web", "pod-template-hash": "5d8f7c9b4"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &when,
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{}}}}}`)}}}}
	for i := range 3 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example/web:1", RestartPolicy: &always, Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": apiresource.MustParse("1"), "memory": apiresource.MustParse("1Gi")}}}
		for n := range 40 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("A", n), Value: "b"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: when}}})
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	data, err := json.Marshal(&pod)
	if err != nil {
		t.Fatal(err)
	}
	objects := of(t, New(someScheme(t)))
	var back corev1.Pod
	if _, _, err := objects.Decode(data, nil, &back); err != nil || !reflect.DeepEqual(back.Spec, pod.Spec) {
		t.Fatalf("%d bytes: %v", len(data), err)
	}
	if err := Types().Of(reflect.TypeFor[corev1.Pod]()).Check(data, wire.Bound{Factor: 12}); err != nil {
		t.Errorf("%d bytes: %v", len(data), err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestAnswersAreBounded(t *testing.T) {
	far := Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Error("packed answers are asked for")
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(endless{})}, nil
	}))
	resp, err := far.RoundTrip(httptest.NewRequest("GET", "https://bob/api/v1/namespaces/shop/configmaps/x", nil))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > MaxFrame {
		t.Errorf("%d bytes were read, then %v", n, err)
	}
}

// Nobody watches, or lists: what is bounded is one object.
func TestAWatchIsNoPartOfTheCodec(t *testing.T) {
	info := New(someScheme(t)).SupportedMediaTypes()
	if len(info) != 1 || info[0].StreamSerializer != nil {
		t.Errorf("%+v", info)
	}
}

// FuzzDecode: no answer takes long, or costs more than sixteen times its bytes.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-99"}}}]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Event","count":7,"lastTimestamp":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","spec":{"template":{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1"}}]}}}}`))
	f.Add([]byte(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","endpoints":[{"addresses":["a"]}],"ports":[{"port":1}]}`))
	f.Add([]byte(`{"kind":"Status","apiVersion":"v1","details":{"causes":[{"reason":"a"}]}}`))
	scheme := someScheme(f)
	objects := of(f, New(scheme))
	f.Fuzz(func(t *testing.T, data []byte) {
		apiVersion, kind := wire.Kind(data)
		into, err := scheme.New(schema.FromAPIVersionAndKind(apiVersion, kind))
		if err != nil {
			into = &corev1.Pod{} // most is no object
		}
		began := time.Now()
		wiretest.Within(t, len(data), func() { _, _, _ = objects.Decode(data, nil, into) })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q took %s", data, took)
		}
	})
}
