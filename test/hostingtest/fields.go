package hostingtest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// What becomes of a field of a pod's spec on its way.
const (
	Same    = "the same"
	Other   = "another"
	LeftOut = "left out"
	Refused = "refused"
)

// PodFields sets each field that Kubernetes has in a pod's spec, alone, and compares what becomes of it with want, which has those that do not stay the
// same: none is dropped without somebody having said so. A field that a later Kubernetes has, too, fails or needs a line. refusal is not empty when the
// pod is refused, which must name the field.
func PodFields(t *testing.T, want map[string]string, becomes func(home *corev1.PodSpec) (abroad *corev1.PodSpec, refusal string)) {
	t.Helper()
	want = maps.Clone(want)
	kind := reflect.TypeFor[corev1.PodSpec]()
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		home := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		fill(t, name, reflect.ValueOf(home).Elem().Field(i))
		was := reflect.ValueOf(home.DeepCopy()).Elem().Field(i)
		abroad, refusal := becomes(home)
		became := Other
		switch {
		case refusal != "":
			if became = Refused; !strings.Contains(refusal, name) {
				t.Errorf("%s is refused without its name: %s", name, refusal)
			}
		case reflect.ValueOf(abroad).Elem().Field(i).IsZero():
			became = LeftOut
		case reflect.DeepEqual(reflect.ValueOf(abroad).Elem().Field(i).Interface(), was.Interface()):
			became = Same
		}
		says, special := want[name]
		if !special {
			says = Same
		}
		if became != says {
			t.Errorf("%s: %s, want %s", name, became, says)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("a pod has no %v", slices.Sorted(maps.Keys(want)))
	}
}

// fill gives a field a value that is not the zero one, and such as it can have.
func fill(t *testing.T, name string, v reflect.Value) {
	special := map[string]any{
		"volumes":          []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		"resources":        &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		"overhead":         corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		"resourceClaims":   []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}},
		"nodeSelector":     map[string]string{corev1.LabelArchStable: "amd64", "disk": "fast"},
		"securityContext":  &corev1.PodSecurityContext{FSGroup: ptr.To[int64](7)},
		"preemptionPolicy": ptr.To(corev1.PreemptNever),
	}
	if value, ok := special[name]; ok {
		v.Set(reflect.ValueOf(value))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, name+"*", v.Elem())
	case reflect.String:
		v.SetString("x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, name+"[]", v.Index(0))
	case reflect.Struct:
		fill(t, fmt.Sprint(name, ".0"), v.Field(0))
	default:
		t.Fatalf("%s: a %s", name, v.Kind())
	}
}
