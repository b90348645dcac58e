package backend

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/daemon/metrics"
)

// Snapshot gives all that a desktop shows. Without a cluster that is the status and who is nearby.
func (b *Backend) Snapshot(ctx context.Context) (s api.Snapshot, err error) {
	if s.Status, err = b.Status(ctx); err != nil {
		return s, err
	}
	if s.Peers, err = b.Peers(ctx); err != nil {
		return s, err
	}
	if b.Cluster() == nil {
		return s, nil
	}
	var failed [3]error
	s.Requests, failed[0] = b.Requests(ctx)
	s.Policies, failed[1] = b.Policies(ctx)
	s.Guests, failed[2] = b.Guests(ctx)
	if err := errors.Join(failed[:]...); err != nil && b.Cluster() != nil { // else it went just now
		return s, internal(err)
	}
	return s, nil
}

// Changed is closed when something that a desktop shows may have changed: an object that it is made of (TellDesktops), who is
// nearby (directory.Report), the engine, the disk, a part that fails, a tunnel that comes up or goes down, one that does not come up
// in time (problems), a refused guest, an event.
func (b *Backend) Changed() <-chan struct{} { return b.News.Wait() }

// WatchEngine notifies when the state of the engine changes.
func (b *Backend) WatchEngine(ctx context.Context) error {
	for {
		changed := b.Engine.Changed()
		b.News.Notify()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// diskEvery is how often the disk is looked at: nothing tells that one fills. What cannot wait, that so little is left that pods are
// ended, the engine's node says at once.
const diskEvery = time.Minute

// WatchDisk notifies when the disk fills, or has room again.
func (b *Backend) WatchDisk(ctx context.Context) error { return watchDisk(ctx, b.disk, b.News.Notify) }

// watchDisk notifies when what disk says changes.
func watchDisk(ctx context.Context, disk func() (room, trouble string), ring func()) error {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for _, was := disk(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if _, is := disk(); is != was { // how much room there is alone is no news
			was = is
			ring()
		}
	}
}

// TellDesktops notifies those who follow the snapshot when an object changes that it is made of.
func (b *Backend) TellDesktops(ctx context.Context, mgr manager.Manager) error {
	return Watch(ctx, mgr, toolscache.ResourceEventHandlerFuncs{
		AddFunc: b.notifyFor,
		UpdateFunc: func(was, obj any) {
			if !heartbeat(was, obj) {
				b.notifyFor(obj)
			}
		},
		DeleteFunc: b.notifyFor,
	}, &v1alpha1.Peer{}, &v1alpha1.Contract{}, &v1alpha1.PeeringRequest{}, &v1alpha1.Advertisement{}, &v1alpha1.SharingPolicy{}, &corev1.Node{}, &corev1.Pod{})
}

// Watch has events of objects of these kinds handled, from the cache that the controllers share.
func Watch(ctx context.Context, mgr manager.Manager, handler toolscache.ResourceEventHandler, kinds ...client.Object) error {
	for _, kind := range kinds {
		informer, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

// heartbeat tells whether of two states of a node the second says no more than that it lives, as each virtual node does every minute.
func heartbeat(was, is any) bool {
	before, ok := was.(*corev1.Node)
	after, ok2 := is.(*corev1.Node)
	if !ok || !ok2 {
		return false
	}
	still := func(n *corev1.Node) *corev1.Node {
		n = n.DeepCopy()
		n.ResourceVersion, n.Annotations = "", nil // one of which repeats the status
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		return n
	}
	return equality.Semantic.DeepEqual(still(before), still(after))
}

// notifyFor notifies of an object, except for pods that stay at home.
func (b *Backend) notifyFor(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok && pod.Labels[v1alpha1.LabelConsumer] == "" && !offloading.Abroad(pod) {
		return
	}
	b.News.Notify()
}

// Facts are what the metrics show.
func (b *Backend) Facts(ctx context.Context) metrics.Facts {
	status, err := b.Status(ctx)
	f := metrics.Facts{Status: status, Contacts: map[string]int{}}
	for _, c := range b.Contacts.Snapshot() {
		f.Contacts[string(c.State)]++
	}
	if b.Gateway != nil {
		f.Drops = b.Gateway.Drops()
	}
	c := b.Cluster()
	if err != nil || c == nil {
		return f
	}
	seen, err := b.gather(ctx)
	if err != nil {
		return f
	}
	f.Readable = true
	for _, ctr := range seen.agreed.Contracts {
		f.Contracts = append(f.Contracts, c.contract(ctr, seen))
	}
	tunnels := b.tunnels()
	for _, k := range b.Directory.All() {
		if k.Peer != nil { // what is merely nearby is only counted
			tunnel, has := tunnels[k.ID.String()]
			f.Peers = append(f.Peers, metrics.Peer{Peer: b.view(k, seen), RTT: k.Contact.RTT, Clock: k.Contact.Clock, HasTunnel: has, MTU: tunnel.MTU})
		}
	}
	f.Guests, _ = c.guests(ctx) // what cannot be read is left out
	return f
}
