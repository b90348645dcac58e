package codec

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// inProtobuf is an object as client-go sends it.
func inProtobuf(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// elements are those of all lists and maps in a value.
func elements(v reflect.Value) (n int64) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = elements(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += elements(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			n = int64(v.Len())
			for i := range v.Len() {
				n += elements(v.Index(i))
			}
		}
	case reflect.Map:
		n = int64(v.Len())
		for _, key := range v.MapKeys() {
			n += elements(v.MapIndex(key))
		}
	}
	return n
}

var counted = []runtime.Object{
	&corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 1<<20), "b": ""}, BinaryData: map[string][]byte{"c": make([]byte, 100)}},
	&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: make([]string, 1000)}},
	&corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroups: make([]int64, 300)}, Containers: []corev1.Container{{
		Env: make([]corev1.EnvVar, 200), Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": apiresource.MustParse("1")}}}}}},
	&authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{User: authenticationv1.UserInfo{Extra: map[string]authenticationv1.ExtraValue{"a": make([]string, 500)}}}},
	&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}},
}

func TestElementsOfProtobufAreCounted(t *testing.T) {
	for _, object := range counted {
		body, has := inProtobuf(t, object), elements(reflect.ValueOf(object))
		if has > 0 && ProtobufElements(body, scheme.Scheme, has-1) {
			t.Errorf("%T: has %d, and fewer were counted", object, has)
		}
		if most := 3*has + 50; !ProtobufElements(body, scheme.Scheme, most) {
			t.Errorf("%T: has %d, and more than %d were counted", object, has, most)
		}
	}
	hours := inProtobuf(t, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": apiresource.MustParse("1234567890")}}}}}})
	groups := inProtobuf(t, &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}}})
	for what, body := range map[string][]byte{
		"nothing": {}, "JSON": []byte(`{"kind":"Pod"}`), "no kind": []byte("k8s\x00\x12\x00"), "half of one": groups[:len(groups)-3],
		"an amount of hours":       bytes.Replace(hours, []byte("1234567890"), []byte("1e-9999999"), 1),
		"a kind that nobody knows": append([]byte("k8s\x00\x0a\x0b\x0a\x02v1\x12\x05Nobod"), 0x12, 0),
	} {
		if ProtobufElements(body, scheme.Scheme, math.MaxInt64) {
			t.Errorf("%s was counted", what)
		}
	}
}

// What the decoder makes of a body is never more than was counted.
func FuzzProtobufElements(f *testing.F) {
	for _, object := range counted[1:] {
		f.Add(inProtobuf(f, object))
	}
	// Numbers in one field, as no client of Kubernetes writes them, and its decoder reads them.
	f.Add([]byte("k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x0b\x12\x09\x72\x07\x22\x05\x01\x02\x03\x04\x05"))
	decoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	f.Fuzz(func(t *testing.T, data []byte) {
		if !ProtobufElements(data, scheme.Scheme, math.MaxInt64) {
			return // with an amount of hours, which this decoder would parse
		}
		object, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return
		}
		if has := elements(reflect.ValueOf(object)); has > 0 && ProtobufElements(data, scheme.Scheme, has-1) {
			t.Errorf("%T has %d, and fewer were counted", object, has)
		}
	})
}
