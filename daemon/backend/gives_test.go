package backend

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api"
)

func TestWhatIsLessThanAskedIsSaid(t *testing.T) {
	amounts := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	some := &api.Gives{State: api.GivesSome, Resources: api.Resources{"cpu": "1", "memory": "4Gi", "pods": "55"}}
	for _, c := range []struct {
		asked corev1.ResourceList
		gives *api.Gives
		want  string
	}{
		{amounts("cpu", "1000", "memory", "1Gi"), some, "cpu 1 (asked 1000), memory 1Gi"},
		{amounts("cpu", "1", "memory", "4Gi"), some, ""},
		{amounts("nvidia.com/gpu", "1"), some, "nvidia.com/gpu 0 (asked 1)"},
		{amounts("cpu", "1000"), nil, ""},
		{amounts("cpu", "1000"), &api.Gives{State: api.GivesPaused, Why: "sharing is paused"}, ""},
	} {
		if got := less(c.asked, c.gives); got != c.want {
			t.Errorf("%v of %v: %q, want %q", c.asked, c.gives, got, c.want)
		}
	}
}
