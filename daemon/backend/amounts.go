package backend

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
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

// nameGPU names the GPU that is asked for: the one that the peer lends already, or would give.
func (b *Backend) nameGPU(ctx context.Context, k directory.Known, inForce *v1alpha1.Contract, asked api.Resources) (api.Resources, error) {
	if _, gpu := asked[api.GPU]; !gpu {
		return asked, nil
	}
	has := api.Resources{}
	if inForce != nil {
		maps.Copy(has, quantities(inForce.Spec.Resources))
	}
	ctx, cancel := context.WithTimeout(ctx, givesTime)
	defer cancel()
	if gives := b.wouldGive(ctx, k); gives != nil {
		maps.Copy(has, gives.Resources)
	}
	return api.NameGPU(asked, has.Names(), "that "+k.Name+" shares")
}

// nameGPU names the GPU that is shared: the one that the nodes here have, or, to share it no longer, the one that was shared.
func (c *Cluster) nameGPU(ctx context.Context, amounts, was api.Resources) (api.Resources, error) {
	amount, gpu := amounts[api.GPU]
	if !gpu {
		return amounts, nil
	}
	if amount == "" {
		return api.NameGPU(amounts, was.Names(), "shared here")
	}
	there, err := c.Provider.Supply(ctx)
	if err != nil {
		return nil, internal(err)
	}
	var names []string
	for name, q := range there.Nodes {
		if q.Sign() > 0 {
			names = append(names, string(name))
		}
	}
	return api.NameGPU(amounts, names, "on the nodes here")
}

// parse reads amounts.
func parse(field string, amounts api.Resources) (corev1.ResourceList, error) {
	if err := api.CheckResources(field, amounts, false); err != nil {
		return nil, err
	}
	list := corev1.ResourceList{}
	for name, amount := range amounts {
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return nil, api.Invalid(field+"."+name, amount, "a Kubernetes quantity such as 2, 500m or 4Gi")
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}
