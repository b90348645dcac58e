package virtualnode

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// Machine is what a peer says of the machines that guests run on, in the form of GET /kith/v2/machine (core/hosting). Nothing here
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
		if len(text) > maxMachineWord || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
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

// ofEndpoint are features of the endpoint for logs and exec, which is not the peer's: ours is.
var ofEndpoint = []string{"ExtendWebSocketsToKubelet"}

// features are sorted, each there once, as the API server wants them.
func (m *Machine) features() []string {
	names := slices.DeleteFunc(slices.Clone(m.DeclaredFeatures), func(name string) bool { return slices.Contains(ofEndpoint, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// shownBy is what an earlier run wrote on the node.
func shownBy(node *corev1.Node) Machine {
	info := node.Status.NodeInfo
	return Machine{KernelVersion: info.KernelVersion, BootID: info.BootID, ContainerRuntimeVersion: info.ContainerRuntimeVersion, DeclaredFeatures: node.Status.DeclaredFeatures}
}

// maxMachineDelay bounds how seldom a peer that gives no answer is asked again.
const maxMachineDelay = 5 * time.Minute

// learnMachine asks the peer for its machine: at the start, whenever it is back, and until it has said it.
func (n *Node) learnMachine(ctx context.Context) error {
	for delay := time.Second; n.cfg.Machine != nil; {
		timed, cancel := context.WithTimeout(ctx, callTimeout)
		machine, err := n.cfg.Machine(timed)
		cancel()
		n.mu.Lock()
		reachable := n.state.reachable
		if err == nil {
			n.state.machine = machine
		}
		n.mu.Unlock()
		var again <-chan time.Time
		switch {
		case err == nil:
			n.poke()
		case reachable: // else its return is waited for
			n.log.Debug("the peer does not say what machine it is, will be asked again", "err", err)
			again = time.After(delay)
			delay = min(2*delay, maxMachineDelay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.back:
			delay = time.Second
		case <-again:
		}
	}
	return nil
}
