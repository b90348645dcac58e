package backend

import (
	"context"
	"maps"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
)

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
