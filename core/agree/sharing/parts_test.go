package sharing

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api/v1alpha1"
)

func amountsOf(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func by(id string, pairs ...string) *v1alpha1.Contract {
	return &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{ID: id, Resources: amountsOf(pairs...)}}
}

// TestWhatIsGrantedIsDividedAmongThoseWhoHaveIt: the same of each, as far as each has it, and what one grants is there once.
func TestWhatIsGrantedIsDividedAmongThoseWhoHaveIt(t *testing.T) {
	own := amountsOf("cpu", "4", "memory", "8Gi", "pods", "110", "nvidia.com/gpu", "1")
	carol, dave := by("c", "cpu", "400m", "memory", "256Mi", "pods", "10"), by("d", "cpu", "2", "memory", "4Gi", "pods", "10")
	ask := amountsOf("cpu", "800m", "memory", "400Mi", "pods", "21")
	for what, c := range map[string]struct {
		own    corev1.ResourceList
		shares []Share
		want   string
	}{
		"of one":              {own, []Share{{ask, []*v1alpha1.Contract{carol}}}, "cpu 400m 400m, memory 200Mi 200Mi, pods 11 10; "},
		"of two":              {own, []Share{{ask, []*v1alpha1.Contract{carol, dave}}}, "cpu 267m 266m 267m, memory 134Mi 133Mi 133Mi, pods 7 7 7; "},
		"more than one has":   {own, []Share{{amountsOf("cpu", "3"), []*v1alpha1.Contract{carol, dave}}}, "cpu 1300m 400m 1300m; "},
		"it is there once":    {own, []Share{{ask, []*v1alpha1.Contract{carol}}, {ask, []*v1alpha1.Contract{carol}}}, "cpu 400m 400m, memory 200Mi 200Mi, pods 11 10; cpu 800m 0, memory 344Mi 56Mi, pods 21 0; "},
		"the broker has none": {amountsOf("cpu", "0"), []Share{{amountsOf("cpu", "300m"), []*v1alpha1.Contract{carol}}}, "cpu 0 300m; "},
		"nobody has it":       {amountsOf("cpu", "100m"), []Share{{amountsOf("cpu", "900m"), []*v1alpha1.Contract{carol}}}, "cpu 500m 400m; "},
		"what does not go on": {own, []Share{{amountsOf("nvidia.com/gpu", "1"), []*v1alpha1.Contract{by("g", "nvidia.com/gpu", "4")}}}, "nvidia.com/gpu 1 0; "},
		"less than a unit":    {own, []Share{{amountsOf("cpu", "1500u", "memory", "1500m"), []*v1alpha1.Contract{carol}}}, "cpu 1500u 0, memory 1500m 0; "},
	} {
		got := ""
		for i, parts := range Divide(c.own, c.shares, time.Now()) {
			for _, name := range []corev1.ResourceName{"cpu", "memory", "pods", "nvidia.com/gpu"} {
				if _, granted := c.shares[i].Granted[name]; !granted {
					continue
				}
				if got != "" && got[len(got)-2] != ';' {
					got += ", "
				}
				got += string(name)
				for _, part := range parts {
					q := part[name]
					got += " " + q.String()
				}
			}
			got += "; "
		}
		if got != c.want {
			t.Errorf("%s:\n%s\n%s", what, got, c.want)
		}
	}
}

// TestDividedIsNeverMoreThanGranted: whoever has what, the parts are the whole, and together take of nobody more than he has.
func TestDividedIsNeverMoreThanGranted(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 2000 {
		some := func() corev1.ResourceList {
			return amountsOf("cpu", fmt.Sprintf("%dm", rnd.Intn(5000)), "memory", fmt.Sprintf("%d", rnd.Int63n(1<<33)), "pods", fmt.Sprint(rnd.Intn(50)))
		}
		providers := []*v1alpha1.Contract{{Spec: v1alpha1.ContractSpec{ID: "a", Resources: some()}}, {Spec: v1alpha1.ContractSpec{ID: "b", Resources: some()}}}
		var shares []Share
		for range 1 + rnd.Intn(4) {
			shares = append(shares, Share{some(), providers[rnd.Intn(2):]})
		}
		taken := map[string]corev1.ResourceList{"a": {}, "b": {}}
		for i, parts := range Divide(some(), shares, time.Now()) {
			for name, granted := range shares[i].Granted {
				sum := resource.Quantity{}
				for j, part := range parts {
					q := part[name]
					if sum.Add(q); q.Sign() < 0 {
						t.Fatalf("%s: a part is %s", name, q.String())
					}
					if j > 0 {
						id := shares[i].By[j-1].Spec.ID
						all := taken[id][name].DeepCopy()
						all.Add(q)
						taken[id][name] = all
					}
				}
				if sum.Cmp(granted) != 0 {
					t.Fatalf("%s: %s is divided into %s", name, granted.String(), sum.String())
				}
			}
		}
		for _, p := range providers {
			for name, all := range taken[p.Spec.ID] {
				if has := p.Spec.Resources[name]; all.Cmp(has) > 0 {
					t.Fatalf("%s: of %s, %s are given away", name, has.String(), all.String())
				}
			}
		}
	}
}
