package hosting

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/door"
	"kith.dev/core/remote"
)

// GetMachine answers GET /kith/v2/machine?contract=ID: of several nodes, with what is true of all. Errors are problems as peering
// has them. consumerID is the caller's, proved by its key (identity.ID.String).
func (h *Host) GetMachine(w http.ResponseWriter, r *http.Request, consumerID string) {
	_, err := h.Contracts.Held(r.Context(), r.URL.Query().Get("contract"), consumerID)
	var all remote.Machine
	if err == nil {
		all, err = h.machine(r.Context())
	}
	door.Answer(h.log, w, all, err)
}

func (h *Host) machine(ctx context.Context) (remote.Machine, error) {
	var nodes corev1.NodeList
	if err := h.client.List(ctx, &nodes); err != nil {
		return remote.Machine{}, fmt.Errorf("reading nodes: %w", err)
	}
	return machineOf(nodes.Items), nil
}

// machineOf is what is true of all nodes that are no virtual ones. The pods there could see the most of it.
func machineOf(nodes []corev1.Node) (all remote.Machine) {
	first := true
	for i := range nodes {
		if _, virtual := nodes[i].Labels[v1alpha1.LabelPeer]; virtual {
			continue
		}
		s := &nodes[i].Status
		one := remote.Machine{
			KernelVersion: s.NodeInfo.KernelVersion, BootID: s.NodeInfo.BootID,
			ContainerRuntimeVersion: s.NodeInfo.ContainerRuntimeVersion, DeclaredFeatures: s.DeclaredFeatures,
		}
		if first {
			all, first = one, false
			continue
		}
		for has, also := range map[*string]string{&all.KernelVersion: one.KernelVersion, &all.BootID: one.BootID, &all.ContainerRuntimeVersion: one.ContainerRuntimeVersion} {
			if *has != also {
				*has = ""
			}
		}
		all.DeclaredFeatures = slices.DeleteFunc(slices.Clone(all.DeclaredFeatures), func(name string) bool { return !slices.Contains(one.DeclaredFeatures, name) })
	}
	return all
}
