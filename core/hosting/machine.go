package hosting

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/door"
)

// machine is what consumers are told of the nodes their guests run on. The pods there could see the most of it.
type machine struct {
	KernelVersion           string   `json:"kernelVersion,omitempty"`
	BootID                  string   `json:"bootID,omitempty"`
	ContainerRuntimeVersion string   `json:"containerRuntimeVersion,omitempty"`
	DeclaredFeatures        []string `json:"declaredFeatures,omitempty"` // of kubelets (KEP-5328)
}

// GetMachine answers GET /kith/v2/machine?contract=ID: of several nodes, with what is true of all. Errors are problems as peering
// has them. consumerID is the caller's, proved by its key (identity.ID.String).
func (h *Host) GetMachine(w http.ResponseWriter, r *http.Request, consumerID string) {
	_, err := h.Contracts.Held(r.Context(), r.URL.Query().Get("contract"), consumerID)
	var all machine
	if err == nil {
		all, err = h.machine(r.Context())
	}
	door.Answer(h.log, w, all, err)
}

func (h *Host) machine(ctx context.Context) (machine, error) {
	var nodes corev1.NodeList
	if err := h.client.List(ctx, &nodes); err != nil {
		return machine{}, fmt.Errorf("reading nodes: %w", err)
	}
	return machineOf(nodes.Items), nil
}

// machineOf is what is true of all nodes that are no virtual ones.
func machineOf(nodes []corev1.Node) (all machine) {
	first := true
	for i := range nodes {
		if _, virtual := nodes[i].Labels[v1alpha1.LabelPeer]; virtual {
			continue
		}
		s := &nodes[i].Status
		one := machine{s.NodeInfo.KernelVersion, s.NodeInfo.BootID, s.NodeInfo.ContainerRuntimeVersion, s.DeclaredFeatures}
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
