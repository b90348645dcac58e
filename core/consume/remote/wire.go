package remote

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
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
	KindParts     = "Parts"  // a Parts: among whom the contract is divided now
	// KindOtherEvent is that of Events about what is not a pod. Those who do not know it would take them for events of pods of that name.
	KindOtherEvent = "OtherEvent"
)

// Part is what a peer says of one of the clusters that run pods by its contract: the peer itself, or a provider of its. Only one that is a broker, and tells
// of each provider, says so.
type Part struct {
	ID   string `json:"id"`             // of the cluster
	Name string `json:"name,omitempty"` // by which the peer knows it, a hint; "" for the peer itself
	// Resources are what of the contract is there, by Kubernetes resource name, as quantities.
	Resources map[string]string `json:"resources,omitempty"`
	Arch      string            `json:"arch,omitempty"` // kubernetes.io/arch
	Why       string            `json:"why,omitempty"`  // why no pod starts there now; empty when they do
}

// Parts are all of them; empty when the peer tells of none.
type Parts struct {
	Parts []Part `json:"parts"`
}

// MaxParts bounds how many parts a peer may tell of: it is more than any pods go on to.
const MaxParts = 16

const (
	maxPartName = 253 // bytes
	maxPartWhy  = 512
)

// Validate checks Parts that were received.
func (p *Parts) Validate() error {
	if len(p.Parts) > MaxParts {
		return fmt.Errorf("parts: %d entries, at most %d are allowed", len(p.Parts), MaxParts)
	}
	known := map[string]bool{}
	for i := range p.Parts {
		part := &p.Parts[i]
		id, err := identity.ParseID(part.ID)
		if err != nil {
			return fmt.Errorf("parts: %.80q is not the ID of a cluster", part.ID)
		}
		if part.ID = id.String(); known[part.ID] {
			return fmt.Errorf("parts: %s is there twice", part.ID)
		}
		known[part.ID] = true
		if len(part.Name) > maxPartName || len(part.Why) > maxPartWhy || !wire.Printable(part.Name) || !wire.Printable(part.Why) {
			return fmt.Errorf("parts: the name of %s, or why it is not there, is too long or not a line of text", part.ID)
		}
		if len(validation.IsValidLabelValue(part.Arch)) > 0 {
			return fmt.Errorf("parts: %.80q is no architecture", part.Arch)
		}
		if err := contract.CheckResources(part.Resources); err != nil {
			return fmt.Errorf("parts: %w", err)
		}
	}
	return nil
}

var partsShape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Parts]())

// readParts reads what a peer says, with care.
func readParts(text []byte) (p Parts, err error) {
	if err := partsShape.Check(text, wire.Bound{Factor: 12, Slack: 64 << 10}); err != nil {
		return p, fmt.Errorf("parts: %w", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("parts: %w", err)
	}
	return p, p.Validate()
}

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
