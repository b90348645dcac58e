package remote

import (
	"fmt"
	"regexp"

	"kith.dev/core/trust/wire"
)

// Line is one line of a view, see the package comment.
type Line struct {
	Kind   string `json:"kind"`
	Gone   bool   `json:"gone,omitempty"`
	Object any    `json:"object,omitempty"`
}

// Kinds of lines besides those of objects in twins.
const (
	KindNamespace = "Namespace"
	KindSynced    = "Synced"
	KindClosed    = "Closed" // none of the peer's nodes takes pods now
	// KindOtherEvent is that of Events about what is not a pod. Those who do not know it would take them for events of pods of that name.
	KindOtherEvent = "OtherEvent"
)

// Forms in which a peer is asked what guests use. They are also the paths under which a kubelet tells it.
const (
	UsageMetrics = "metrics/resource" // Prometheus text: cpu and memory of containers and pods (KEP-1206)
	UsageSummary = "stats/summary"    // JSON: {"pods": [PodStats]}, besides these disk and network
)

// Machine is what a peer says of the machines that guests run on, in the form of GET /kith/v2/machine (core/provide/hosting). Nothing here
// depends on its truth: it is shown, and a pod that needs a feature which is not there fails at the peer.
type Machine struct {
	KernelVersion           string `json:"kernelVersion,omitempty"`
	BootID                  string `json:"bootID,omitempty"`
	ContainerRuntimeVersion string `json:"containerRuntimeVersion,omitempty"`
	// DeclaredFeatures are those of kubelets (KEP-5328).
	DeclaredFeatures []string `json:"declaredFeatures,omitempty"`
}

const (
	maxMachineWord = 128 // bytes
	maxFeatures    = 64
)

// featureName is what the API server takes (validateNodeDeclaredFeatureName in k8s.io/kubernetes/pkg/apis/core/validation): it would
// refuse the whole status of the node for one other.
var featureName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,126}(/[A-Za-z][A-Za-z0-9]{0,62})?$`)

// Validate checks a Machine that was received.
func (m *Machine) Validate() error {
	for field, text := range map[string]string{"kernelVersion": m.KernelVersion, "bootID": m.BootID, "containerRuntimeVersion": m.ContainerRuntimeVersion} {
		if len(text) > maxMachineWord || !wire.Printable(text) {
			return fmt.Errorf("%s: longer than %d bytes, or not a line of text", field, maxMachineWord)
		}
	}
	if len(m.DeclaredFeatures) > maxFeatures {
		return fmt.Errorf("declaredFeatures: %d entries, at most %d are allowed", len(m.DeclaredFeatures), maxFeatures)
	}
	for _, name := range m.DeclaredFeatures {
		if !featureName.MatchString(name) {
			return fmt.Errorf("declaredFeatures: %.40q is not the name of a feature", name)
		}
	}
	return nil
}
