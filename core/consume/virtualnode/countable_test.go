package virtualnode

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// A peer chose these names and amounts; a node's status with one that the API server refuses would be refused whole.
func TestANodeShowsWhatNodesCanHave(t *testing.T) {
	got := countable(corev1.ResourceList{
		"cpu": quantity.MustParse("1500m"), "memory": quantity.MustParse("4Gi"), "nvidia.com/gpu": quantity.MustParse("2"),
		"example.com/half": quantity.MustParse("1500m"), "example.com/less": quantity.MustParse("1m"), "example.com/many": quantity.MustParse("9E"),
		"odd": quantity.MustParse("1"), "x.kubernetes.io/odd": quantity.MustParse("1"), "requests.example.com/odd": quantity.MustParse("1"), "storage": quantity.MustParse("1Gi"),
	})
	want := map[corev1.ResourceName]int64{"cpu": 2, "memory": 4 << 30, "nvidia.com/gpu": 2, "example.com/half": 1, "example.com/less": 0, "example.com/many": 9e18}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for name, n := range want {
		if q, there := got[name]; !there || q.Value() != n || name == "cpu" && q.MilliValue() != 1500 {
			t.Errorf("%s: %s", name, q.String())
		}
	}
}
