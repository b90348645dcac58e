package consumer

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/clusterset"
	"kith.dev/core/consume/custom"
	"kith.dev/core/consume/kubelet"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/reflection"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/virtualnode"
)

// member is a peer that provides, and what is kept there of this cluster.
type member struct {
	contract  string
	guests    atomic.Pointer[ranges] // of this cluster's pods there; never nil
	node      *virtualnode.Node
	endpoint  *kubelet.Node // of the peer's own node
	all       *kubelet.Node // of no endpoint: it tells what pods use on all nodes that stand for the peer, or for a provider behind it
	reflector *reflection.Reflector
	policies  *netpolicy.Peer
	custom    *custom.Peer
	services  *clusterset.Peer
	remote    *remote.Client
	events    record.EventRecorder
	cancel    context.CancelFunc
	done      chan struct{}
}

// ranges are those of guests, of IPv4 and of IPv6; the zero value where there is none.
type ranges [2]netip.Prefix

// readdress takes the ranges of its guests over, and reports whether they are others.
func (m *member) readdress(peer *v1alpha1.Peer) (changed bool) {
	pair, _ := peer.Status.Network.Pair(netip.Prefix{}) // what cannot be read is agreed on anew
	are := ranges{pair.There, pair.IPv6.There}
	was := m.guests.Swap(&are)
	return was == nil || *was != are
}

func (m *member) stop() {
	m.cancel()
	<-m.done
}

func (f *Fleet) start(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (*member, error) {
	if f.Load != nil {
		if err := f.Load(ctx); err != nil {
			return nil, fmt.Errorf("see which namespaces are other clusters': %w", err)
		}
	}
	to, err := f.Directory.Client(peer)
	if err != nil {
		return nil, err
	}
	labels, err := f.labels(ctx, peer, ctr)
	if err != nil {
		return nil, err
	}
	peer = peer.DeepCopy()
	there, err := remote.NewClient(remote.ClientConfig{
		Peer: peer.Name, Contract: ctr.Spec.ID, To: to, Log: f.Log,
		Since: func() time.Time { return f.Directory.Contact(peer).Since },
		Older: func(since time.Time) { f.Older(peer, since) },
	})
	if err != nil {
		return nil, err
	}
	m := &member{contract: ctr.Spec.ID, remote: there, done: make(chan struct{})}
	m.readdress(peer)
	nodeName := v1alpha1.VirtualNodePrefix + peer.Name
	recorder := f.events.NewRecorder(kubescheme.Scheme, corev1.EventSource{Component: "kith", Host: nodeName})
	m.events = recorder
	noNetwork, apiServer := sharing.NoNetwork(ctr), f.APIServer
	if noNetwork { // which pods there do not reach
		apiServer = netip.Addr{}
	}
	permitted := func(namespace string) bool {
		permit, _, err := f.Permits.Of(f.ctx, namespace, peer.Name)
		return err == nil && permit == offloading.Granted
	}
	m.reflector, err = reflection.New(reflection.Config{
		Home: f.Reflected, Abroad: there.API, View: there.View, APIServer: apiServer, NoNetwork: noNetwork, NodeIP: f.NodeIP,
		PeerName: peer.Name, NodeName: nodeName,
		Permit:     permitted,
		Onward:     func(namespace string) bool { _, is := f.onward(namespace, peer.Spec.ID); return is },
		DNS:        f.DNS,
		Reaches:    f.reaches,
		IPv6:       func() bool { return m.guests.Load()[1].IsValid() },
		GuestNode:  func(namespace, pod string) string { return m.node.GuestNode(namespace, pod) },
		Apart:      func() bool { return m.node.TunnelDown() != "" },
		GuestReady: func(namespace, pod string) bool { return m.node.GuestReady(namespace, pod) },
		Problems:   func(namespace string, problems []string) { f.showProblems(peer.Name, namespace, problems) },
		Recorder:   recorder,
		Log:        f.Log,
	})
	if err != nil {
		return nil, err
	}
	m.policies = f.Policies.Peer(netpolicy.Config{
		Name: peer.Name, Put: there.PutPolicies, Final: noPolicies, Recorder: recorder, Log: f.Log,
	})
	m.custom = f.Custom.Peer(custom.PeerConfig{
		Name: peer.Name,
		Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return there.Upgrade(ctx, custom.Path, custom.Protocol)
		},
		Abroad: func(namespace string) bool { return m.node.Twin(namespace) != "" },
		Permit: func(namespace string) bool {
			permit, _, err := f.Permits.Of(f.ctx, namespace, peer.Name)
			return err == nil && (permit == offloading.Granted || permit == offloading.Reflected)
		},
		Ensure: func(ctx context.Context, namespace string) error { return m.node.Open(ctx, namespace) },

		Recorder: recorder, Log: f.Log,
	})
	m.services = f.Services.Peer(clusterset.PeerConfig{
		Name: peer.Name, ID: peer.Spec.ID,
		Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return there.Upgrade(ctx, clusterset.Path, clusterset.Protocol)
		},
		Guests: func() netip.Prefix { return m.guests.Load()[0] },
		Log:    f.Log,
	})
	port, err := f.Kubelet.Port(nodeName)
	if err != nil {
		return nil, err
	}
	twins := &twins{Reflector: m.reflector, policies: m.policies, custom: m.custom, remote: there, fleet: f, peer: peer.Name, id: peer.Spec.ID}
	m.node, err = virtualnode.New(virtualnode.Config{
		Home: f.Home, Abroad: there.API, View: there.View, Twins: twins, Companions: twins,
		Permit: func(ctx context.Context, namespace string) (offloading.Permit, string, error) {
			return f.Permits.Of(ctx, namespace, peer.Name)
		},
		Moves:    f.Permits.Moves,
		Reflects: func() []string { return f.reflects() },
		Avoid: func(ctx context.Context, namespace string, controller types.UID) (time.Time, error) {
			return offloading.Avoid(ctx, f.Client, namespace, controller, peer.Name)
		},
		Taking:   func(image string) bool { return f.Taking != nil && f.Taking(peer.Name, image) },
		PeerName: peer.Name, PeerID: peer.Spec.ID, NodeName: nodeName,
		NodeIP: f.NodeIP, NoTunnel: f.NoTunnel, NoNetwork: noNetwork, KubeletPort: port, Machine: there.Machine,
		Resources: ctr.Grants(time.Now()), Labels: labels,
		Endpoint: func(node string, pods virtualnode.HomePods) (int32, func(), error) {
			return f.serve(m, peer.Name, node, pods)
		},
		Keep:     f.keep,
		Guests:   func() (ipv4, ipv6 netip.Prefix) { now := m.guests.Load(); return now[0], now[1] },
		Onward:   func(namespace string) (remote.Onward, bool) { return f.onward(namespace, peer.Spec.ID) },
		Recorder: recorder,
		Log:      f.Log,
	})
	if err != nil {
		return nil, err
	}
	own := m.node.OwnPods()
	m.endpoint = &kubelet.Node{
		Name: nodeName, Peer: peer.Name, API: there.API, Pod: own.Get, Pods: own.All, Twin: m.node.Twin,
		Usage: there.Usage, Log: f.Log.With("peer", peer.Name),
	}
	m.all = &kubelet.Node{Pod: m.node.Pod, Usage: there.Usage, Log: m.endpoint.Log}
	f.run(m, peer.Name, noNetwork)
	return m, nil
}

// serve serves the API of the node of a provider behind the peer.
func (f *Fleet) serve(m *member, peer, node string, pods virtualnode.HomePods) (port int32, stop func(), err error) {
	if port, err = f.Kubelet.Port(node); err != nil {
		return 0, nil, err
	}
	endpoint := &kubelet.Node{
		Name: node, Peer: peer, API: m.remote.API, Pod: pods.Get, Pods: pods.All, Twin: m.node.Twin,
		Usage: m.remote.Usage, Log: f.Log.With("peer", peer),
	}
	f.Kubelet.Add(endpoint)
	return port, func() { f.Kubelet.Remove(endpoint); f.Kubelet.Close(node) }, nil
}

// run has the parts of a member run until it is stopped.
func (f *Fleet) run(m *member, peer string, noNetwork bool) {
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(f.ctx)
	f.Kubelet.Add(m.endpoint)
	f.running.Go(func() {
		defer close(m.done)
		defer f.Kubelet.Remove(m.endpoint)
		f.Keep(ctx, "virtual node "+m.node.Name(), m.node.Run)
	})
	f.running.Go(func() { m.policies.Run(ctx) })
	f.running.Go(func() { m.custom.Run(ctx) })
	if !noNetwork { // else there is no way to services in common
		f.running.Go(func() { m.services.Run(ctx) })
	}
	f.running.Go(func() { m.reflector.Run(ctx) })
}

// labels are those of the peer's node: where it is, and what it may say of itself and of the devices that it lends.
func (f *Fleet) labels(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (map[string]string, error) {
	var adv v1alpha1.Advertisement
	if err := f.Client.Get(ctx, client.ObjectKey{Name: peer.Name}, &adv); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	var granted []string
	for name := range ctr.Spec.Resources {
		granted = append(granted, string(name))
	}
	labels := api.DeviceLabels(adv.Spec.NodeLabels, granted)
	maps.Copy(labels, f.Place(peer))
	maps.Copy(labels, priceLabels(ctr))
	labels[offloading.LabelVirtual] = "true"
	if sharing.NoNetwork(ctr) {
		labels[v1alpha1.LabelNetwork] = v1alpha1.WithoutNetwork
	}
	// What describes the machine, and nothing that schedulers and operators of this cluster rely on.
	if arch, ok := adv.Spec.NodeLabels[corev1.LabelArchStable]; ok {
		labels[corev1.LabelArchStable] = arch
	}
	for _, name := range []string{v1alpha1.LabelIngress, v1alpha1.LabelEgress} {
		if bits, err := strconv.ParseUint(adv.Spec.NodeLabels[name], 10, 63); err == nil {
			labels[name] = strconv.FormatUint(bits, 10)
		}
	}
	return labels, nil
}
