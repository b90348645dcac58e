package relations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/queue"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
)

// resync is the pause after books and link could not be brought in step with a peer that can be reached: its
// Kubernetes is starting, most often, and pauses that grow would outlast that.
const resync = time.Second

// PeerReconciler drives each Peer to what its spec asks for, and keeps the state of both directions.
type PeerReconciler struct {
	client    client.Client
	fresh     client.Reader // past the cache
	me        *identity.Identity
	name      string          // of this cluster
	endpoints func() []string // of this cluster's peer API, told to those we ask
	directory link.Directory
	fleet     Fleet
	homes     Homes
	linker    *link.Linker
	announce  func(api.Event)
	log       *slog.Logger

	pokes chan event.GenericEvent

	closing sync.Mutex // held while a request is ended

	mu      sync.Mutex
	waiting map[string]*waiter   // by Peer name
	asked   map[string]question  // by Peer name: what was put to the peer last
	synced  map[string]time.Time // Contact.Since of the connection over which books and link were brought in step
	// renewals are by Peer name; one that is lost with this process begins anew, and the provider sees to it that no more come of it.
	renewals map[string]*renewal

	countersigned func(context.Context, *v1alpha1.Peer, *contract.Document) (contract.Signed, error) // signedBy, but in tests
}

// PeerConfig is what a PeerReconciler needs.
type PeerConfig struct {
	Client    client.Client
	Fresh     client.Reader // past the cache
	Identity  *identity.Identity
	Name      string
	Endpoints func() []string
	Directory link.Directory
	Fleet     Fleet
	Homes     Homes
	Linker    *link.Linker
	Announce  func(api.Event)
	Log       *slog.Logger
}

// NewPeerReconciler makes a PeerReconciler.
func NewPeerReconciler(cfg PeerConfig) *PeerReconciler {
	r := &PeerReconciler{
		client: cfg.Client, fresh: cfg.Fresh, me: cfg.Identity, name: cfg.Name, endpoints: cfg.Endpoints, directory: cfg.Directory,
		fleet: cfg.Fleet, homes: cfg.Homes, linker: cfg.Linker, announce: cfg.Announce, log: cfg.Log,
		pokes:   make(chan event.GenericEvent, 1024),
		waiting: map[string]*waiter{}, asked: map[string]question{}, synced: map[string]time.Time{}, renewals: map[string]*renewal{},
	}
	r.countersigned = r.signedBy
	return r
}

// SetupWithManager registers the reconciler.
func (r *PeerReconciler) SetupWithManager(mgr ctrl.Manager) error {
	ofContract := func(_ context.Context, obj client.Object) []ctrl.Request {
		return named(obj.(*v1alpha1.Contract).Spec.Peer)
	}
	ofNode := func(_ context.Context, obj client.Object) []ctrl.Request {
		return named(obj.GetLabels()[v1alpha1.LabelPeer])
	}
	return ctrl.NewControllerManagedBy(mgr).Named("peer").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(ofContract)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(ofNode)).
		WatchesRawSource(source.Channel(r.pokes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			NewQueue:                queue.New,
			MaxConcurrentReconciles: 8,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](200*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}

func named(peer string) []ctrl.Request {
	if peer == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: peer}}}
}

// Poke has a Peer looked at again, because its contact changed.
func (r *PeerReconciler) Poke(peer string) {
	r.pokes <- event.GenericEvent{Object: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: peer}}}
}

// Told acts on a peer's word that a contract ended, and has the books compared in any case.
func (r *PeerReconciler) Told(ctx context.Context, peer string, notice peering.Notice) {
	for _, role := range []v1alpha1.Role{v1alpha1.RoleConsumer, v1alpha1.RoleProvider} {
		contracts, err := record.Contracts(ctx, r.client, peer, role)
		ctr := record.Live(contracts)
		if notice.Type != peering.NoticeContractEnded || err != nil || ctr == nil || ctr.Spec.ID != notice.Contract {
			continue
		}
		if err := record.EndContract(ctx, r.client, ctr, record.EndedBy(peer)); err != nil {
			r.log.Warn("contract could not be ended", "peer", peer, "contract", notice.Contract, "err", err)
		}
	}
	r.mu.Lock()
	delete(r.synced, peer)
	r.mu.Unlock()
	r.Poke(peer)
}

// Overlaps has the links of these peers, by ID, made anew: their aliases are in use for something else on the network that
// this laptop came to.
func (r *PeerReconciler) Overlaps(ctx context.Context, ids []string) {
	var peers v1alpha1.PeerList
	if err := r.client.List(ctx, &peers); err != nil {
		r.log.Warn("aliases that are in use are not chosen anew yet", "err", err)
		return // the gateway says it again
	}
	for _, peer := range peers.Items {
		if !slices.Contains(ids, peer.Spec.ID) {
			continue
		}
		r.mu.Lock()
		delete(r.synced, peer.Name)
		r.mu.Unlock()
		r.Poke(peer.Name)
	}
}

// Reconcile looks at one Peer. Somebody else's write in between is no error: it is looked at again.
func (r *PeerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return record.Calm(r.reconcile(ctx, req))
}

// reconcile looks first at what the peer provides to us, then at what we provide to it.
func (r *PeerReconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var peer v1alpha1.Peer
	if err := r.client.Get(ctx, req.NamespacedName, &peer); err != nil {
		r.stopWaiting(req.Name)
		r.mu.Lock()
		delete(r.renewals, req.Name)
		r.mu.Unlock()
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	consuming, err := record.Contracts(ctx, r.client, peer.Name, v1alpha1.RoleConsumer)
	if err != nil {
		return ctrl.Result{}, err
	}
	providing, err := record.Contracts(ctx, r.client, peer.Name, v1alpha1.RoleProvider)
	if err != nil {
		return ctrl.Result{}, err
	}
	anothers := func(ctr v1alpha1.Contract) bool { return record.OfAnotherKey(&ctr, &peer) } // its own reconciler ends it
	consuming, providing = slices.DeleteFunc(consuming, anothers), slices.DeleteFunc(providing, anothers)
	contact := r.directory.Contact(&peer)
	again, syncErr := r.sync(ctx, &peer, contact, record.Live(consuming), record.Live(providing))
	if syncErr != nil {
		r.log.Debug("not in step with the peer yet", "peer", peer.Name, "err", syncErr)
		again = resync
	}
	renew, outErr := r.outgoing(ctx, &peer, contact, consuming, syncErr)
	tunnel, tunnelErr := r.showTunnel(ctx, &peer, contact)
	err = errors.Join(outErr, tunnelErr, r.incoming(ctx, &peer, contact, providing, syncErr))
	return ctrl.Result{RequeueAfter: soonest(again, renew, tunnel, look(peer.Status.Outgoing, time.Now()), untilOver(record.Live(consuming)), untilOver(record.Live(providing)))}, err
}

// untilOver is how long a contract runs; a moment more, so that it is over then.
func untilOver(ctr *v1alpha1.Contract) time.Duration {
	if ctr == nil || ctr.Spec.NotAfter == nil {
		return 0
	}
	return time.Until(ctr.Spec.NotAfter.Time) + time.Second
}

// soonest is the least of those that are more than nothing; nothing when there is none.
func soonest(all ...time.Duration) (least time.Duration) {
	for _, d := range all {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// outgoing is the table of what to do in the direction in which this cluster consumes.
// again is when a contract has to be renewed, zero when nothing is known of that.
func (r *PeerReconciler) outgoing(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, contracts []v1alpha1.Contract, syncErr error) (again time.Duration, err error) {
	ctr, out := record.Live(contracts), peer.Status.Outgoing
	switch wants := peer.Spec.Request != nil; {
	case ctr != nil && !wants:
		r.withdraw(ctx, peer, out.RequestID)
		return 0, r.end(ctx, peer, ctr, "ended here")
	case ctr != nil && time.Now().After(ctr.Spec.NotAfter.Time):
		return 0, r.end(ctx, peer, ctr, "the contract ran out")
	case ctr != nil:
		return r.keep(ctx, peer, contact, ctr, syncErr)
	case len(contracts) > 0: // the contract's own reconciler goes on
		return 0, r.set(ctx, peer, peering.EventEnded, contracts[0].Status.Why)
	case !wants:
		r.stopWaiting(peer.Name)
		r.withdraw(ctx, peer, out.RequestID)
		return 0, r.set(ctx, peer, peering.EventCleared, "")
	case peer.Spec.Request.Attempt > out.Attempt:
		return 0, r.ask(ctx, peer)
	case record.StateOf(out) == v1alpha1.StateRequested:
		return 0, r.pend(ctx, peer)
	}
	return 0, nil
}

// keep runs a contract: node, link, state, and its renewal in time.
func (r *PeerReconciler) keep(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, ctr *v1alpha1.Contract, syncErr error) (again time.Duration, err error) {
	if peer.Status.Network != nil {
		if err := r.fleet.Ensure(ctx, peer, ctr); err != nil {
			return 0, err
		}
	}
	if !contact.Reachable || syncErr != nil || contact.Ailing != "" {
		why := contact.Why
		switch {
		case syncErr != nil:
			why = syncErr.Error()
		case contact.Ailing != "":
			why = contact.Ailing
		}
		r.fleet.SetLost(peer.Name, why, contact.Heard)
		return 0, r.lost(ctx, peer, ctr, why)
	}
	r.fleet.SetReachable(peer.Name)
	if again, err = r.revise(ctx, peer, ctr); err != nil {
		return 0, err
	}
	node := v1alpha1.VirtualNodePrefix + peer.Name
	if !r.nodeReady(ctx, node) {
		return again, nil // its next change comes back here
	}
	was := record.StateOf(peer.Status.Outgoing)
	if err := record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) {
		if record.Finished(s.Outgoing) { // what stands there is of a contract before this one
			s.Outgoing.State = v1alpha1.StateNone
			record.Step(&s.Outgoing, peering.EventAsked, "")
		}
		if was != v1alpha1.StateConnected { // else what is said of it stands, such as that more was declined
			record.Step(&s.Outgoing, peering.EventSigned, "")
			record.Step(&s.Outgoing, peering.EventLinkUp, "")
		}
		s.Outgoing.Contract, s.Node, s.Endpoint = ctr.Name, node, contact.Address.String()
	}); err != nil {
		return 0, err
	}
	if was != v1alpha1.StateConnected {
		r.log.Info("peer connected", "peer", peer.Name, "contract", ctr.Spec.ID, "node", node)
		r.announce(api.Event{Type: api.EventPeerConnected, Severity: api.SeverityInfo, Peer: peer.Name, Object: "node/" + node,
			Message: fmt.Sprintf("%s is a node of this cluster, with %s", peer.Name, record.Granted(ctr.Spec.Resources))})
	}
	return again, record.SetContract(ctx, r.client, ctr, v1alpha1.StateConnected, "")
}

// nodeReady tells whether the scheduler may use a node: it goes by the taint that the node controller takes off a moment
// after the condition says Ready. Pods made in between would all stay at home.
func (r *PeerReconciler) nodeReady(ctx context.Context, name string) bool {
	var node corev1.Node
	if r.client.Get(ctx, client.ObjectKey{Name: name}, &node) != nil {
		return false
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	}) {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (r *PeerReconciler) lost(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, why string) error {
	was := record.StateOf(peer.Status.Outgoing)
	if err := r.set(ctx, peer, peering.EventLinkLost, why); err != nil {
		return err
	}
	if was == v1alpha1.StateConnected {
		r.log.Warn("peer unreachable", "peer", peer.Name, "why", why)
		r.announce(api.Event{Type: api.EventPeerUnreachable, Severity: api.SeverityWarning, Peer: peer.Name,
			Message: peer.Name + " cannot be reached: " + why})
	}
	return record.SetContract(ctx, r.client, ctr, v1alpha1.StateUnreachable, why)
}

// set takes the outgoing direction one step.
func (r *PeerReconciler) set(ctx context.Context, peer *v1alpha1.Peer, e peering.Event, why string) error {
	return record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) {
		record.Step(&s.Outgoing, e, why)
		if e == peering.EventCleared || e == peering.EventEnded {
			settle(&s.Outgoing)
		}
		if e == peering.EventCleared {
			s.Outgoing.Contract = ""
		}
	})
}

// end deletes the contract; its own reconciler does the rest.
func (r *PeerReconciler) end(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, why string) error {
	if err := r.set(ctx, peer, peering.EventEnded, why); err != nil {
		return err
	}
	return record.EndContract(ctx, r.client, ctr, why)
}

// incoming keeps the direction in which this cluster provides.
func (r *PeerReconciler) incoming(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, contracts []v1alpha1.Contract, syncErr error) error {
	ctr := record.Live(contracts)
	switch {
	case ctr == nil && len(contracts) > 0: // the contract's own reconciler goes on
		return record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) { record.Step(&s.Incoming, peering.EventEnded, contracts[0].Status.Why) })
	case ctr == nil:
		return nil
	}
	if time.Now().After(ctr.Spec.NotAfter.Time) {
		return record.EndContract(ctx, r.client, ctr, "the contract ran out")
	}
	linked := peer.Status.Network != nil && len(peer.Status.Network.Ours) > 0
	if linked {
		r.homes.SetHome(peer, contact.Reachable)
	}
	state, event, why := v1alpha1.StateContracted, peering.EventSigned, "signed, the link is being made"
	switch {
	case linked && contact.Reachable && syncErr == nil:
		state, event, why = v1alpha1.StateConnected, peering.EventLinkUp, ""
	case linked && !contact.Reachable:
		state, event, why = v1alpha1.StateUnreachable, peering.EventLinkLost, contact.Why
	}
	if err := record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) {
		if s.Incoming.Contract != ctr.Name || record.Finished(s.Incoming) { // what stands there is of a contract before this one
			s.Incoming = v1alpha1.DirectionStatus{}
			record.Step(&s.Incoming, peering.EventAsked, "")
			record.Step(&s.Incoming, peering.EventSigned, "")
		}
		record.Step(&s.Incoming, event, why)
		s.Incoming.Contract = ctr.Name
	}); err != nil {
		return err
	}
	return record.SetContract(ctx, r.client, ctr, state, why)
}

// sync brings books and link in step over a connection that is new: what one side ended while the other was
// away ends now, and addresses that changed are told. It does nothing on a connection it was done over before.
func (r *PeerReconciler) sync(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, consuming, providing *v1alpha1.Contract) (again time.Duration, err error) {
	if consuming == nil && providing == nil {
		return 0, nil
	}
	r.mu.Lock()
	done := r.synced[peer.Name]
	r.mu.Unlock()
	if !contact.Reachable || done.Equal(contact.Since) && peer.Status.Network != nil {
		return 0, nil
	}
	to, err := r.directory.Client(peer)
	if err != nil {
		return 0, err
	}
	if again, err = r.compareBooks(ctx, peer, to, consuming, providing); err != nil {
		return 0, err
	}
	// The consumer proposes, so that the two do not cross; but a provider's new aliases are for it to tell.
	if consuming != nil && consuming.DeletionTimestamp == nil || r.linker.Overlapped(peer) {
		if err := r.linker.Propose(ctx, peer, to, contact.Address.Addr()); err != nil {
			return 0, err
		}
	} else if err := r.linker.Restore(ctx, peer); err != nil {
		return 0, err
	}
	if again == 0 {
		r.mu.Lock()
		r.synced[peer.Name] = contact.Since
		r.mu.Unlock()
	}
	return again, nil
}

// compareBooks ends the contracts that the peer no longer has.
func (r *PeerReconciler) compareBooks(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, contracts ...*v1alpha1.Contract) (again time.Duration, err error) {
	refs, err := to.Contracts(ctx)
	if err != nil {
		return 0, fmt.Errorf("compare the contracts with %s: %w", peer.Name, err)
	}
	has := map[string]peering.State{}
	for _, ref := range refs {
		has[ref.ID] = ref.State
	}
	for _, ctr := range contracts {
		if ctr == nil {
			continue
		}
		switch state, known := has[ctr.Spec.ID]; {
		case known && state != peering.Ending:
			continue
		case known && ctr.Spec.Role == v1alpha1.RoleProvider: // it is bringing its pods home, and needs the door for that
			again = max(again, resync)
			continue
		}
		if left := record.Young - time.Since(ctr.CreationTimestamp.Time); ctr.Spec.Role == v1alpha1.RoleProvider && left > 0 {
			again = max(again, left)
			continue
		}
		r.log.Info("peer ended the contract", "peer", peer.Name, "contract", ctr.Spec.ID)
		if err := record.EndContract(ctx, r.client, ctr, record.EndedBy(peer.Name)); err != nil {
			return 0, err
		}
		now := metav1.Now()
		ctr.DeletionTimestamp = &now // as the next to read it will see it
	}
	return again, nil
}
