package virtualnode

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/consume/remote"
)

// ofEndpoint are features of the endpoint for logs and exec, which is not the peer's: ours is.
var ofEndpoint = []string{"ExtendWebSocketsToKubelet"}

// features are sorted, each there once, as the API server wants them.
func features(m remote.Machine) []string {
	names := slices.DeleteFunc(slices.Clone(m.DeclaredFeatures), func(name string) bool { return slices.Contains(ofEndpoint, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// shownBy is what an earlier run wrote on the node.
func shownBy(node *corev1.Node) remote.Machine {
	info := node.Status.NodeInfo
	return remote.Machine{KernelVersion: info.KernelVersion, BootID: info.BootID, ContainerRuntimeVersion: info.ContainerRuntimeVersion, DeclaredFeatures: node.Status.DeclaredFeatures}
}

// maxMachineDelay bounds how seldom a peer that gives no answer is asked again.
const maxMachineDelay = 5 * time.Minute

// learnMachine asks the peer for its machine: at the start, whenever it is back, and until it has said it.
func (n *Node) learnMachine(ctx context.Context) error {
	growing := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: maxMachineDelay}
	for delay := growing; n.cfg.Machine != nil; {
		timed, cancel := context.WithTimeout(ctx, callTimeout)
		machine, err := n.cfg.Machine(timed)
		cancel()
		n.mu.Lock()
		works := n.state.there.Works()
		if err == nil {
			n.state.machine = machine
		}
		n.mu.Unlock()
		var again <-chan time.Time
		switch {
		case err == nil:
			n.changed.Notify()
		case works: // else its return is waited for
			n.log.Debug("the peer does not say what machine it is, will be asked again", "err", err)
			again = time.After(delay.Step())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.back:
			delay = growing
		case <-again:
		}
	}
	return nil
}
