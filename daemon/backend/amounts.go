package backend

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"kith.dev/core/api"
)

// quantities shows a list of resources as the local API does.
func quantities(list corev1.ResourceList) api.Resources {
	out := api.Resources{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

// add adds to a sum in place.
func add(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

// requestsOf is what a pod counts for against a contract.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	one := list[corev1.ResourcePods]
	one.Set(1)
	list[corev1.ResourcePods] = one
	return list
}

func named(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
