package virtualnode

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"kith.dev/core/api/v1alpha1"
)

// absurd takes a second to parse; with one digit more it would take minutes.
const absurd = "1e-9999999"

// amounts that can be told from each other, as long in bytes as those that must not pass.
func amountOf(n int) string { return fmt.Sprintf("123%07d", n) }
func absurdOf(n int) string { return fmt.Sprintf("1e-9999%03d", n) }

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

func decoder(t testing.TB, media string) runtime.Decoder {
	t.Helper()
	codecs, err := newCareful()
	if err != nil {
		t.Fatal(err)
	}
	d, err := runtime.NewClientNegotiator(codecs, corev1.SchemeGroupVersion).Decoder(media, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func protobufOf(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAmountsOfThePeerAreLookedAtBeforeTheyAreParsed(t *testing.T) {
	for kind, o := range map[schema.GroupVersionKind]runtime.Object{
		corev1.SchemeGroupVersion.WithKind("Pod"):       &corev1.Pod{},
		corev1.SchemeGroupVersion.WithKind("PodList"):   &corev1.PodList{},
		v1alpha1.GroupVersion.WithKind("OffloadedPod"):  &v1alpha1.OffloadedPod{},
		v1alpha1.GroupVersion.WithKind("Advertisement"): &v1alpha1.Advertisement{},
	} {
		amounts := 0
		fill(reflect.ValueOf(o).Elem(), &amounts)
		if amounts == 0 || amounts > 999 {
			t.Fatalf("%s: %d amounts", kind.Kind, amounts)
		}
		o.GetObjectKind().SetGroupVersionKind(kind)
		inJSON, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string][]byte{runtime.ContentTypeJSON: inJSON}
		if kind.Group == "" {
			forms[runtime.ContentTypeProtobuf] = protobufOf(t, o)
		}
		for media, data := range forms {
			d := decoder(t, media)
			if _, _, err := d.Decode(data, nil, nil); err != nil {
				t.Errorf("%s %s, all honest: %v", media, kind.Kind, err)
			}
			for n := range amounts {
				bad := bytes.Replace(data, []byte(amountOf(n+1)), []byte(absurdOf(n+1)), 1)
				if bytes.Equal(bad, data) {
					t.Fatalf("%s %s: amount %d is not there", media, kind.Kind, n+1)
				}
				if _, _, err := d.Decode(bad, nil, nil); err == nil || !strings.Contains(err.Error(), "amount") {
					t.Errorf("%s %s: an absurd amount, the %d. of %d, was parsed: %v", media, kind.Kind, n+1, amounts, err)
				}
			}
		}
	}
}

// message is a field of protobuf with what it holds.
func message(tag byte, content string) string {
	return string(binary.AppendUvarint([]byte{tag}, uint64(len(content)))) + content
}

// podWith is a Pod in protobuf with one limit, whose map entry is made of these fields.
func podWith(t testing.TB, entry string) string {
	t.Helper()
	const limits, resources, containers, spec = 1<<3 | 2, 8<<3 | 2, 2<<3 | 2, 2<<3 | 2
	pod := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Raw: []byte(message(spec, message(containers, message(resources, message(limits, entry)))))}
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return protobufPrefix + string(data)
}

func TestAnswersThatLieAreNotDecoded(t *testing.T) {
	const (
		pod       = `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","resources":{"limits":%s}}]}}`
		name      = "\x0a\x03cpu"
		value     = 2<<3 | 2
		anyLength = 2 << 3 // a number, says the tag
	)
	amount := message(1<<3|2, absurd)
	for what, tt := range map[string]struct{ media, data string }{
		"as text":                   {runtime.ContentTypeJSON, fmt.Sprintf(pod, `{"cpu":"`+absurd+`"}`)},
		"as a number":               {runtime.ContentTypeJSON, fmt.Sprintf(pod, `{"cpu":`+absurd+`}`)},
		"hidden behind another":     {runtime.ContentTypeJSON, fmt.Sprintf(pod, `{"cpu":"`+absurd+`"},"limits":{"cpu":"1"}`)},
		"for ever when compared":    {runtime.ContentTypeJSON, fmt.Sprintf(pod, `{"cpu":"1e2000000000"}`)},
		"of many digits":            {runtime.ContentTypeJSON, fmt.Sprintf(pod, `{"cpu":"`+strings.Repeat("7", 1<<20)+`"}`)},
		"deep":                      {runtime.ContentTypeJSON, fmt.Sprintf(pod, strings.Repeat("[", 1<<20))},
		"of a kind not asked for":   {runtime.ContentTypeJSON, strings.Replace(fmt.Sprintf(pod, `{"cpu":"1"}`), "Pod", "Node", 1)},
		"in protobuf":               {runtime.ContentTypeProtobuf, podWith(t, name+message(value, amount))},
		"twice":                     {runtime.ContentTypeProtobuf, podWith(t, name+message(value, amount+message(1<<3|2, "1")))},
		"of a length that is none":  {runtime.ContentTypeProtobuf, podWith(t, name+message(anyLength, amount))},
		"with a number cut off":     {runtime.ContentTypeProtobuf, podWith(t, name+message(value, "\x8a\x80\x80\x80\x80\x01"+amount[1:]))},
		"longer than what it is in": {runtime.ContentTypeProtobuf, podWith(t, name+message(value, amount)[:2]) + amount},
	} {
		if _, _, err := decoder(t, tt.media).Decode([]byte(tt.data), nil, nil); err == nil {
			t.Errorf("%s %s: decoded", tt.media, what)
		}
	}
	if _, _, err := decoder(t, runtime.ContentTypeProtobuf).Decode([]byte(podWith(t, name+message(value, message(1<<3|2, "1500m")))), nil, nil); err != nil {
		t.Errorf("an honest one: %v", err)
	}
	if _, _, err := decoder(t, runtime.ContentTypeProtobuf).Decode(protobufOf(t, &metav1.Status{Reason: metav1.StatusReasonForbidden}), nil, nil); err != nil {
		t.Errorf("a refusal: %v", err)
	}
	codecs, err := newCareful()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.NewClientNegotiator(codecs, corev1.SchemeGroupVersion).Decoder(runtime.ContentTypeYAML, nil); err == nil {
		t.Error("YAML, which nobody asks for, would be decoded")
	}
}

func TestClientsAbroadDecodeWithCare(t *testing.T) {
	bad := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":%q}}}]}}`, absurd)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "den") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		if r.URL.Query().Has("watch") && !strings.Contains(r.URL.Path, "frames") {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, bad)
			return
		}
		fmt.Fprint(w, bad)
	}))
	defer s.Close()
	a, err := newAbroad(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "no amount of anything") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = a.core.Pods("shop").List(t.Context(), metav1.ListOptions{})
	refused("list", err)
	_, err = a.core.Events("shop").List(t.Context(), metav1.ListOptions{})
	refused("list of events", err)
	if _, err = a.core.Pods("den").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is not understood: %v", err)
	}
	if _, err = a.offloaded.get(t.Context(), "den", "web"); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is not understood: %v", err)
	}
	_, err = a.offloaded.get(t.Context(), "shop", "web")
	refused("get", err)
	for what, watch := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"pods": a.core.Pods("shop").Watch, "pods without frames": a.core.Pods("frames").Watch,
		"offloaded": a.offloaded.listWatch("shop").WatchFuncWithContext,
	} {
		w, err := watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		event := <-w.ResultChan()
		w.Stop()
		refused("watch of "+what, apierrors.FromObject(event.Object))
	}
}

// FuzzCareful looks for amounts that pass and take long.
func FuzzCareful(f *testing.F) {
	f.Add(true, []byte(podWith(f, "\x0a\x03cpu"+message(2<<3|2, message(1<<3|2, "1e-99"))))[len(protobufPrefix):])
	f.Add(false, []byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-99"}}}]}}`))
	decoders := map[bool]runtime.Decoder{true: decoder(f, runtime.ContentTypeProtobuf), false: decoder(f, runtime.ContentTypeJSON)}
	f.Fuzz(func(t *testing.T, inProtobuf bool, data []byte) {
		if inProtobuf {
			data = append([]byte(protobufPrefix), data...)
		}
		began := time.Now()
		_, _, _ = decoders[inProtobuf].Decode(data, nil, nil) // most is no object
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q took %s", data, took)
		}
	})
}

func TestHonestWatchesAreDecoded(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1500m")}}}}}}
	frame, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: protobufOf(t, pod)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	offloaded := `{"type":"ADDED","object":{"apiVersion":"kith.dev/v1alpha1","kind":"OffloadedPod","metadata":{"name":"web"}}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "offloadedpods") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, offloaded)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	}))
	defer s.Close()
	a, err := newAbroad(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, watch := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"pods": a.core.Pods("shop").Watch, "offloaded": a.offloaded.listWatch("shop").WatchFuncWithContext,
	} {
		w, err := watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		event := <-w.ResultChan()
		w.Stop()
		if o, ok := event.Object.(metav1.Object); !ok || event.Type != "ADDED" || o.GetName() != "web" {
			t.Errorf("%s: %v", what, event)
		}
	}
}
