package virtualnode

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
)

const (
	leaseSeconds = 80 // as the built-in kubelet's; renewed four times as often, each time a write to the disk
	// statusEvery is how often a status that did not change is written: as seldom as a kubelet does beside its lease, since a node
	// is 8 kB, and each time a write to the disk.
	statusEvery = 5 * time.Minute
	retryEvery  = time.Second
)

// serverVersion is what the node gives as its kubelet's version, since nothing here lags behind the API server.
func (n *face) serverVersion(ctx context.Context) (string, error) {
	var version string
	return version, n.untilDone(ctx, "ask the home API server for its version", func() error {
		v, err := n.cfg.Home.Discovery().ServerVersion()
		if err == nil {
			version = v.GitVersion
		}
		return err
	})
}

// untilDone tries until it works or ctx ends.
func (n *face) untilDone(ctx context.Context, what string, try func() error) error {
	said := false
	return wait.PollUntilContextCancel(ctx, retryEvery, true, func(context.Context) (bool, error) {
		err := try()
		if err != nil && !said {
			n.log.Warn("cannot "+what+", will be tried again", "node", n.cfg.NodeName, "err", err)
			said = true
		}
		return err == nil, nil
	})
}

// adopt goes on where an earlier run ended: with the node's conditions.
func (n *face) adopt(ctx context.Context) error {
	return n.untilDone(ctx, "read the virtual node", func() error {
		node, err := n.cfg.Home.CoreV1().Nodes().Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
		n.mu.Lock()
		defer n.mu.Unlock()
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		n.state.old, n.state.machine = node.Status.Conditions, shownBy(node)
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && !n.state.there.Works() {
				n.state.there.Heard = time.Time{} // it was NotReady already, so no second grace
			}
		}
		return nil
	})
}

// node is the Node object as it should be now.
func (n *face) node(version string) *corev1.Node {
	labels := map[string]string{
		corev1.LabelArchStable: runtime.GOARCH,
		corev1.LabelOSStable:   "linux",
	}
	maps.Copy(labels, n.now().labels)
	n.learn()
	maps.Copy(labels, map[string]string{
		corev1.LabelHostname:             n.hostname(),
		"type":                           "virtual-kubelet",
		v1alpha1.LabelPeer:               n.cfg.PeerName,
		corev1.LabelNodeExcludeBalancers: "true",
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state.old = n.state.conditions(n.state.old, time.Now())
	annotations := map[string]string{"kith.dev/peer-id": n.cfg.PeerID}
	if n.behind != "" {
		annotations[v1alpha1.AnnotationBehind] = n.behind
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.cfg.NodeName, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: n.taints()},
		Status: corev1.NodeStatus{
			Capacity:        n.state.resources.DeepCopy(),
			Allocatable:     n.state.resources.DeepCopy(),
			Conditions:      slices.Clone(n.state.old), // virtual-kubelet writes the time into what it is given
			Addresses:       n.addresses(),
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.cfg.KubeletPort}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: n.cfg.PeerID, SystemUUID: n.cfg.PeerID, BootID: n.state.machine.BootID,
				KernelVersion: n.state.machine.KernelVersion, ContainerRuntimeVersion: n.state.machine.ContainerRuntimeVersion,
				KubeletVersion:  version,
				OperatingSystem: "linux", OSImage: "Kith peer " + n.cfg.PeerName,
				Architecture: labels[corev1.LabelArchStable],
			},
			DeclaredFeatures: features(n.state.machine),
		},
	}
}

// addresses are where the API server finds the node's endpoint. API servers dial the address whose type they prefer, upstream the Hostname; so
// that one is an address too, since nothing resolves the node's name. K3s' asks for a tunnel to whatever is an InternalIP of a node
// (github.com/liqotech/liqo issue 3099), and takes a Hostname that is an address for what it is.
func (n *face) addresses() []corev1.NodeAddress {
	hostname := corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.cfg.NodeIP.String()}
	if n.cfg.NoTunnel {
		return []corev1.NodeAddress{hostname}
	}
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.cfg.NodeIP.String()}, hostname}
}

// register keeps the node and its lease in the home cluster.
func (n *face) register(ctx context.Context, version string) error {
	ctx = vklog.WithLogger(ctx, vkLogger{n.log})
	nodes := ownNodes{n.cfg.Home.CoreV1().Nodes()}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx) // a failed attempt leaves nothing behind
		defer cancel()
		controller, err := vknode.NewNodeController(nodeStatus{n, version}, n.node(version), nodes,
			vknode.WithNodeEnableLeaseV1(n.cfg.Home.CoordinationV1().Leases(corev1.NamespaceNodeLease), leaseSeconds),
			vknode.WithNodeStatusUpdateInterval(statusEvery),
			vknode.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, err error) error {
				if !apierrors.IsNotFound(err) || n.leaving.Load() {
					return err
				}
				n.log.Warn("somebody deleted the virtual node; making it again", "node", n.cfg.NodeName)
				_, err = nodes.Create(ctx, n.node(version), metav1.CreateOptions{})
				return err
			}))
		if err == nil {
			err = controller.Run(ctx)
		}
		if ctx.Err() == nil {
			n.log.Warn("cannot register the virtual node, will be tried again", "node", n.cfg.NodeName, "err", err)
		}
	}, retryEvery)
	return nil
}

// Leave says that the node, and those of providers behind the peer, are about to be retired, so that they are not recreated after their deletion.
func (n *Node) Leave() {
	n.leaving.Store(true)
	for _, p := range n.allParts() {
		p.leaving.Store(true)
	}
}

// ownNodes writes the node's status for virtual-kubelet. That retries by client-go's retry.OnError, which takes a context that ended
// for retries that are used up, and gives no error when none was made (v0.36.3); virtual-kubelet then reads the node that it did not
// get, and panics. So the end of a context is an error like any other here.
type ownNodes struct{ typedcorev1.NodeInterface }

func (o ownNodes) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error) {
	node, err := o.NodeInterface.Get(ctx, name, opts)
	return node, opaque(err)
}

func (o ownNodes) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*corev1.Node, error) {
	node, err := o.NodeInterface.Patch(ctx, name, pt, data, opts, sub...)
	return node, opaque(err)
}

func opaque(err error) error {
	if wait.Interrupted(err) {
		return errors.New(err.Error())
	}
	return err
}

// watchOwnNode recreates the Node object at once when somebody deletes it, by triggering a write of its status.
func (n *face) watchOwnNode(ctx context.Context) error {
	own := newInformer(func(_, is *corev1.Node) {
		if is == nil && !n.leaving.Load() {
			n.changed.Notify()
		}
	})
	nodes := n.cfg.Home.CoreV1().Nodes()
	itself := fields.OneTermEqualSelector(metav1.ObjectNameField, n.cfg.NodeName)
	return own.run(ctx, selected(n.cfg.Home, itself, nodes.List, nodes.Watch), &corev1.Node{})
}

// watchLink publishes NotReady when the grace of a lost link is over.
func (n *Node) watchLink(ctx context.Context) error {
	for was := false; ; {
		changed := n.changed.Wait()
		left, runs := presence.Node.Left(n.now().there, time.Now())
		over := runs && left <= 0
		if over && !was {
			n.log.Warn("peer unreachable for too long; its node is NotReady", "node", n.cfg.NodeName)
			n.show()
			n.enqueue(n.Pods())
		}
		was = over
		var expired <-chan time.Time
		if runs && !over {
			expired = time.After(left)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-expired:
		}
	}
}

// frozen says that the node counts as NotReady: what is known of its pods is old.
func (n *Node) frozen() bool { return presence.Node.Over(n.now().there, time.Now()) }

// nodeStatus answers virtual-kubelet's NodeController. The daemon is alive as long as this process is; what
// became of the peer is in the conditions.
type nodeStatus struct {
	n       *face
	version string
}

func (nodeStatus) Ping(ctx context.Context) error { return ctx.Err() }

func (s nodeStatus) NotifyNodeStatus(ctx context.Context, tell func(*corev1.Node)) {
	changed := s.n.changed.Wait()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				changed = s.n.changed.Wait() // before it is looked at: what changes meanwhile is told too
				tell(s.n.node(s.version))
			}
		}
	}()
}
