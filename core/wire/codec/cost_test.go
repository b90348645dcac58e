package codec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/wire/wiretest"
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

func of(t testing.TB, c *Codec) (objects, frames runtime.Decoder) {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(c.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	return info.Serializer, info.StreamSerializer.Serializer
}

// sample is how long lists are here: the longest that are read, of 64 MiB, may cost Bound.Most.
const sample = 8 << 20

func TestCost(t *testing.T) {
	scheme, types := someScheme(t), Types()
	objects, frames := of(t, New(scheme))
	for _, m := range []struct {
		what string
		into runtime.Object
		max  int
	}{
		{"list of Pods", &corev1.PodList{}, sample},
		{"list of Events", &corev1.EventList{}, sample},
		{"list of metadata", &metav1.PartialObjectMetadataList{}, sample},
		{"Event, watched", &corev1.Event{}, MaxFrame},
		{"OffloadedPod, watched", &v1alpha1.OffloadedPod{}, MaxFrame},
		{"metadata, watched", &metav1.PartialObjectMetadata{}, MaxFrame},
		{"EndpointSlice, as written", &discoveryv1.EndpointSlice{}, MaxFrame},
		{"Service, as written", &corev1.Service{}, MaxFrame},
		{"ConfigMap, as written", &corev1.ConfigMap{}, MaxFrame},
		{"Secret, as written", &corev1.Secret{}, MaxFrame},
		{"Status", &metav1.Status{}, MaxFrame},
	} {
		kinds, _, err := scheme.ObjectKinds(m.into)
		if err != nil {
			t.Fatal(err)
		}
		of := reflect.TypeOf(m.into).Elem()
		shape, watched, bound := types.Of(of), strings.HasSuffix(m.what, "watched"), Bound
		if m.max == sample {
			bound.Factor-- // one by one they cost a little more than at once
		}
		wiretest.Row{
			What: m.what, From: "provider", Max: m.max, Type: of,
			Taken: func(text []byte) error { return shape.Check(text, bound) },
			Decode: func(text []byte) {
				if watched {
					var frame metav1.WatchEvent
					if _, _, err := frames.Decode(slices.Concat([]byte(`{"type":"ADDED","object":`), text, []byte("}")), nil, &frame); err != nil {
						t.Errorf("%.80s: %v", text, err)
					}
					text = frame.Object.Raw
				}
				// Some is of a wrong form in the end, which does not make it cheaper.
				_, _, _ = objects.Decode(text, &kinds[0], reflect.New(of).Interface().(runtime.Object))
			},
		}.Check(t)
	}
}
