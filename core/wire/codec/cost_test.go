package codec

import (
	"reflect"
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

func TestCost(t *testing.T) {
	table := wiretest.NewTable(t)
	scheme := someScheme(t)
	types := Types()
	objects, frames := of(t, New(scheme))
	for _, m := range []struct {
		what string
		into runtime.Object
		list bool
	}{
		{"Pods", &corev1.PodList{}, true},
		{"Pod", &corev1.Pod{}, false},
		{"OffloadedPod", &v1alpha1.OffloadedPod{}, false},
		{"Event", &corev1.Event{}, false},
		{"EndpointSlice", &discoveryv1.EndpointSlice{}, false},
		{"Service", &corev1.Service{}, false},
		{"Secret", &corev1.Secret{}, false},
		{"PartialObjectMetadata", &metav1.PartialObjectMetadata{}, false},
		{"Status", &metav1.Status{}, false},
	} {
		kinds, _, err := scheme.ObjectKinds(m.into)
		if err != nil {
			t.Fatal(err)
		}
		shape, one := types.Of(reflect.TypeOf(m.into).Elem()), reflect.TypeOf(m.into).Elem()
		texts := wiretest.Worst(one, 128<<10, func(text []byte) error { return shape.Check(text, Bound) })
		table.Row(m.what, "provider", "", texts, func(data []byte) {
			into := reflect.New(one).Interface().(runtime.Object)
			if _, _, err := objects.Decode(data, &kinds[0], into); err != nil && !m.list {
				t.Errorf("%.200s: %v", data, err)
			}
		})
	}
	_ = frames
}
