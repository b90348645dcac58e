package kinds

import (
	"maps"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kith.dev/core/api/v1alpha1"
)

// The provider allows its guests that are healthy less minAvailable.
func TestABudgetAbroadAllowsNoMoreThanHome(t *testing.T) {
	for name, c := range map[string]struct {
		desired, allowed  int32 // at home
		guests, elsewhere int32 // healthy
		uncounted         bool
		want              int
	}{
		"all guests, none may go":                      {desired: 2, guests: 2, want: 2},
		"all guests, one may go":                       {desired: 1, allowed: 1, guests: 2, want: 1},
		"two at home and one there, none may go":       {desired: 3, guests: 1, elsewhere: 2, want: 1},
		"two at home and one there, one may go":        {desired: 2, allowed: 1, guests: 1, elsewhere: 2, want: 0},
		"home has enough without them":                 {desired: 1, allowed: 3, guests: 2, elsewhere: 2, want: 0},
		"a guest went, home has not counted yet":       {desired: 2, allowed: 1, guests: 2, elsewhere: 0, want: 2},
		"a pod at home went, home has not counted yet": {desired: 2, allowed: 1, guests: 1, elsewhere: 1, want: 1},
		"home counted before it was seen":              {desired: 2, allowed: 0, guests: 2, elsewhere: 1, want: 2},
		"home cannot count: pods without a controller": {desired: 0, allowed: 0, guests: 2, elsewhere: 1, want: 2},
		"the budget changed, and home has not counted": {desired: 1, allowed: 1, guests: 2, uncounted: true, want: 2},
		"no guests": {desired: 2, allowed: 1, elsewhere: 3, want: 0},
	} {
		home := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromString("30%")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
			},
			Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DesiredHealthy: c.desired, DisruptionsAllowed: c.allowed},
		}
		if c.uncounted {
			home.Status.ObservedGeneration = 1
		}
		got, why := mapBudget(home, &There{Twin: "shop-abc", Healthy: func(selector labels.Selector) (int32, int32) {
			if !selector.Matches(labels.Set{"app": "web"}) || selector.Matches(labels.Set{"app": "api"}) {
				t.Errorf("%s: it asks for %s", name, selector)
			}
			return c.guests, c.elsewhere
		}})
		if why != "" || got.Spec.MinAvailable.IntValue() != c.want || got.Spec.MaxUnavailable != nil {
			t.Errorf("%s: %v %+v, want %d", name, why, got.Spec, c.want)
		}
		if got.Namespace != "shop-abc" || got.Name != "web" || !maps.Equal(got.Labels, managed) || got.Annotations != nil || got.Generation != 0 || got.Status.DesiredHealthy != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if !maps.Equal(got.Spec.Selector.MatchLabels, map[string]string{"app": "web", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}) || *got.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
			t.Errorf("%s: %+v", name, got.Spec)
		}
		if len(home.Spec.Selector.MatchLabels) != 1 {
			t.Fatal("the home object, which caches share, was changed")
		}
	}
}
