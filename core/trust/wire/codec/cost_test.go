package codec

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/wire/wiretest"
)

func someScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Event{}, &corev1.EventList{},
		&corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, discoveryv1.SchemeGroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func of(t testing.TB, c *Codec) runtime.Decoder {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(c.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	return info.Serializer
}

func TestCost(t *testing.T) {
	scheme, types := someScheme(t), Types()
	objects, reader := of(t, New(scheme)), NewReader(&corev1.Pod{}, &corev1.Event{}, &v1alpha1.OffloadedPod{}, &metav1.PartialObjectMetadata{})
	for _, m := range []struct {
		what string
		into runtime.Object
	}{
		{"Pod, of a view", &corev1.Pod{}},
		{"Event, of a view", &corev1.Event{}},
		{"OffloadedPod, of a view", &v1alpha1.OffloadedPod{}},
		{"metadata, of a view", &metav1.PartialObjectMetadata{}},
		{"OffloadedPod, as written", &v1alpha1.OffloadedPod{}},
		{"EndpointSlice, as written", &discoveryv1.EndpointSlice{}},
		{"Service, as written", &corev1.Service{}},
		{"ConfigMap, as written", &corev1.ConfigMap{}},
		{"Secret, as written", &corev1.Secret{}},
		{"Status", &metav1.Status{}},
	} {
		kinds, _, err := scheme.ObjectKinds(m.into)
		if err != nil {
			t.Fatal(err)
		}
		of := reflect.TypeOf(m.into).Elem()
		shape, viewed := types.Of(of), strings.HasSuffix(m.what, "of a view")
		wiretest.Row{
			What: m.what, From: "provider", Max: MaxFrame, Type: of,
			Taken: func(text []byte) error { return shape.Check(text, Bound) },
			Decode: func(text []byte) {
				into := reflect.New(of).Interface().(runtime.Object)
				// Some is of a wrong form in the end, which does not make it cheaper.
				if viewed {
					_ = reader.Read(text, into)
				} else {
					_, _, _ = objects.Decode(text, &kinds[0], into)
				}
			},
		}.Check(t)
	}
}
