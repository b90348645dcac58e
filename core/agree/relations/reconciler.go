package relations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

// resync is the pause after books and link could not be brought in step with a peer that can be reached: its
// Kubernetes is starting, most often, and pauses that grow would outlast that.
const resync = time.Second

// otherVersion is the pause after a peer said that its Kith is of another version. Another one comes with a new connection.
const otherVersion = time.Minute

// Config is what a Reconciler needs.
type Config struct {
	Client    *ledger.Ledger
	Fresh     client.Reader // the API server, before a contract is ended for want of its Peer
	Directory link.Directory
	Linker    *link.Linker
	Consumer  *consumer.Consumer
	Provider  *provider.Provider
	Fleet     consumer.Fleet
	Announce  func(api.Event)
	Log       *slog.Logger
}

// Reconciler drives each Peer to what its spec asks for, and keeps the state of both directions; of a Contract that ends it clears
// everything away.
type Reconciler struct {
	Config
	pokes chan event.GenericEvent

	mu     sync.Mutex
	synced map[string]step // by Peer name
	round  time.Time       // when the last round of looking at all Peers begins, since this cluster's address space changed
}

// step is in what books and link are in step with a peer, or are being brought.
type step struct {
	since time.Time  // Contact.Since, of the connection over which it was done
	space link.Space // of this cluster, that the peer was told; none of who gives it nothing
	lets  bool       // this cluster's owner has the peer's guests here meet those elsewhere directly
}

// New makes a Reconciler.
func New(cfg Config) *Reconciler {
	return &Reconciler{Config: cfg, pokes: make(chan event.GenericEvent, 1024), synced: map[string]step{}}
}

// SetupWithManager registers what reacts to Peers and Contracts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ofContract := func(ctx context.Context, obj client.Object) []ctrl.Request {
		ctr := obj.(*v1alpha1.Contract)
		if ctr.Spec.Role == v1alpha1.RoleConsumer && sharing.MayReoffer(ctr) { // others' guests may go on by it
			return append(r.consumers(ctx, obj), named(ctr.Spec.Peer)...)
		}
		return named(ctr.Spec.Peer)
	}
	ofOffer := func(_ context.Context, obj client.Object) []ctrl.Request {
		return named(obj.(*v1alpha1.Advertisement).Spec.Peer)
	}
	ofNode := func(_ context.Context, obj client.Object) []ctrl.Request {
		return named(obj.GetLabels()[v1alpha1.LabelPeer])
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("peer").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(ofContract)).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(ofOffer)). // the node's labels
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(ofNode)).
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(r.consumers), builder.WithPredicates(sharesMoved)). // what is left to each: notices have to go by it
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.consumers), builder.WithPredicates(supplyMoved)).
		Watches(&v1alpha1.Peer{}, r.others(), builder.WithPredicates(guestsMoved)).
		Watches(&v1alpha1.SharingPolicy{}, handler.EnqueueRequestsFromMapFunc(r.consumers)). // whether guests may meet directly
		WatchesRawSource(source.Channel(r.pokes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			NewQueue:                queue.New,
			MaxConcurrentReconciles: 8,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](200*time.Millisecond, 30*time.Second),
		}).
		Complete(r); err != nil {
		return err
	}
	forgotten := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})
	return ctrl.NewControllerManagedBy(mgr).Named("contract").
		For(&v1alpha1.Contract{}).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.contractsOf), forgotten).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, NewQueue: queue.New}).
		Complete(reconcile.Func(r.contract))
}

// consumers are the Peers that have a contract here.
func (r *Reconciler) consumers(context.Context, client.Object) (all []ctrl.Request) {
	for _, ctr := range r.Client.Now().Contracts {
		if ctr.Spec.Role == v1alpha1.RoleProvider {
			all = append(all, named(ctr.Spec.Peer)...)
		}
	}
	return all
}

func named(peer string) []ctrl.Request {
	if peer == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: peer}}}
}

// Poke queues a Peer, because its contact changed.
func (r *Reconciler) Poke(peer string) {
	r.pokes <- event.GenericEvent{Object: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: peer}}}
}

// Told handles a peer's notice that a contract ended, then compares the contracts that both sides hold.
func (r *Reconciler) Told(ctx context.Context, peer string, notice peering.Notice) {
	for _, role := range []v1alpha1.Role{v1alpha1.RoleConsumer, v1alpha1.RoleProvider} {
		ctr := r.Client.Now().InForce(peer, role)
		if ctr == nil || ctr.Spec.ID != notice.Contract {
			continue
		}
		if err := record.EndContract(ctx, r.Client, ctr, v1alpha1.EndedByPeer); err != nil {
			r.Log.Warn("contract could not be ended", "peer", peer, "contract", notice.Contract, "err", err)
		}
	}
	r.Compare(peer)
}

// Compare compares the contracts with a Peer, and proposes the link, once more over the existing connection.
func (r *Reconciler) Compare(peer string) {
	r.mark(peer, step{})
	r.Poke(peer)
}

// mark notes in what books and link of a Peer are in step, and gives what was noted before.
func (r *Reconciler) mark(peer string, now step) (before step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.synced[peer] = r.synced[peer], now
	return before
}

// sharesMoved passes what changes how much other consumers may be left: contracts under which this cluster provides come, go, or are revised.
var sharesMoved = predicate.And(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(obj client.Object) bool {
	return obj.(*v1alpha1.Contract).Spec.Role == v1alpha1.RoleProvider
}))

// supplyMoved passes what changes how much there is of the nodes that guests run on.
var supplyMoved = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return v1alpha1.Fenced(e.Object.(*corev1.Node)) },
	DeleteFunc: func(e event.DeleteEvent) bool { return v1alpha1.Fenced(e.Object.(*corev1.Node)) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return v1alpha1.Fenced(was) != v1alpha1.Fenced(is) || v1alpha1.Fenced(is) && !equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable)
	},
}

// guestsMoved passes what changes the address space of this cluster: the range of its guests at a peer.
var guestsMoved = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, _ := e.ObjectOld.(*v1alpha1.Peer).Status.Network.Pair(netip.Prefix{})
		is, _ := e.ObjectNew.(*v1alpha1.Peer).Status.Network.Pair(netip.Prefix{})
		return was.There != is.There || toIntroduce(e.ObjectOld) != toIntroduce(e.ObjectNew) ||
			!slices.Equal(was.Relayed, is.Relayed) || len(is.Relayed) > 0 && (!slices.Equal(was.Space, is.Space) || was.Services != is.Services)
	},
}

// toIntroduce is what other providers are told of a peer, if anything.
func toIntroduce(peer client.Object) string {
	n := peer.(*v1alpha1.Peer).Status.Network
	if n == nil || !n.Direct {
		return ""
	}
	return n.PublicKey + " " + n.Endpoint
}

// others has the other Peers looked at: they know this cluster's address space as it was.
func (r *Reconciler) others() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	add := func(moved client.Object, q queue) {
		peers := r.Client.Now().Peers
		wait := r.nextRound(len(peers), time.Now())
		for _, peer := range peers {
			if peer.Name != moved.GetName() {
				q.AddAfter(named(peer.Name)[0], wait)
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// tellOne is the time given to telling one peer of a change of the address space. Each change concerns all of them: those of a hub whose hundred
// peers come at once would be told ten thousand times.
const tellOne = 50 * time.Millisecond

// nextRound is how long the next round of telling so many peers has to wait: not at all if the one before is long past.
func (r *Reconciler) nextRound(peers int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.round.After(now) { // else it is still to come, and this change is in it
		r.round = r.round.Add(time.Duration(peers) * tellOne)
		if r.round.Before(now) {
			r.round = now
		}
	}
	return r.round.Sub(now)
}

// Reconcile looks at one Peer. Somebody else's write in between is no error: it is looked at again.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return record.Calm(r.reconcile(ctx, req))
}

// reconcile looks first at what the peer provides to us, then at what we provide to it.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var peer v1alpha1.Peer
	if err := r.Client.Get(ctx, req.NamespacedName, &peer); err != nil {
		r.Consumer.Forget(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	with := func(role v1alpha1.Role) []*v1alpha1.Contract { // one of another key is ended by its own reconciler
		return slices.DeleteFunc(r.Client.Now().With(peer.Name, role), func(ctr *v1alpha1.Contract) bool { return record.OfAnotherKey(ctr, &peer) })
	}
	if err := r.unmix(ctx, ledger.Live(with(v1alpha1.RoleConsumer)), ledger.Live(with(v1alpha1.RoleProvider))); err != nil {
		return ctrl.Result{}, err
	}
	contact := r.Directory.Contact(&peer)
	again, syncErr := r.sync(ctx, &peer, contact, ledger.Live(with(v1alpha1.RoleConsumer)), ledger.Live(with(v1alpha1.RoleProvider)))
	consuming, providing := with(v1alpha1.RoleConsumer), with(v1alpha1.RoleProvider)
	if syncErr != nil {
		r.Log.Debug("not in step with the peer yet", "peer", peer.Name, "err", syncErr)
		again = resync
		if errors.Is(syncErr, &peering.Problem{Code: peering.CodeVersion}) {
			again = otherVersion
		}
	}
	renew, outErr := r.Consumer.Outgoing(ctx, &peer, contact, consuming, syncErr)
	tunnel, tunnelErr := r.showTunnel(ctx, &peer, contact.Presence)
	err := errors.Join(outErr, tunnelErr, r.showOverlap(ctx, &peer), r.relay(ctx, &peer, ledger.Live(providing)), r.Provider.Incoming(ctx, &peer, contact.Presence, providing, syncErr))
	return ctrl.Result{RequeueAfter: soonest(again, renew, tunnel, consumer.Look(peer.Status.Outgoing, time.Now()), untilOver(ledger.Live(consuming)), untilOver(ledger.Live(providing)), untilLowered(ledger.Live(consuming)), untilLowered(ledger.Live(providing)))}, err
}

// unmix ends one of the contracts of both directions where one has a network and the other none, as may be when both were signed at the same moment: there is
// one tunnel for both, or none. The other side chooses the same.
func (r *Reconciler) unmix(ctx context.Context, ctr, other *v1alpha1.Contract) error {
	if ctr == nil || other == nil || sharing.NoNetwork(ctr) == sharing.NoNetwork(other) {
		return nil
	}
	if ctr.Spec.ID < other.Spec.ID {
		ctr = other
	}
	now := ctr.DeepCopy()
	now.Status.State, now.Status.EndReason = v1alpha1.StateEnding, v1alpha1.EndedHere
	now.Status.Why = "ended here, for the contract of the other direction says otherwise of the network between the clusters"
	if err := r.Client.Status().Patch(ctx, now, client.MergeFrom(ctr)); err != nil {
		return client.IgnoreNotFound(err)
	}
	return record.EndContract(ctx, r.Client, now, v1alpha1.EndedHere)
}

// relay has guests of the peer go on to the providers from which it is offered something.
func (r *Reconciler) relay(ctx context.Context, peer *v1alpha1.Peer, providing *v1alpha1.Contract) error {
	if r.Linker == nil {
		return nil
	}
	now, to := r.Client.Now(), []string(nil)
	if providing != nil && !sharing.NoNetwork(providing) {
		for _, ctr := range sharing.Reoffered(sharing.Select(now.Policies, peer), peer, now.Peers, now.Contracts, time.Now()) {
			if provider := now.PeerNamed(ctr.Spec.Peer); provider != nil {
				to = append(to, provider.Spec.ID)
			}
		}
	}
	return r.Linker.Relay(ctx, peer, to)
}

// untilOver is how long a contract runs; a moment more, so that it is over then.
func untilOver(ctr *v1alpha1.Contract) time.Duration {
	if ctr == nil || ctr.Spec.NotAfter == nil {
		return 0
	}
	return time.Until(ctr.Spec.NotAfter.Time) + time.Second
}

// untilLowered is how long until less than was signed is granted, by a notice.
func untilLowered(ctr *v1alpha1.Contract) time.Duration {
	if ctr == nil || ctr.Status.Lowering == nil {
		return 0
	}
	return time.Until(ctr.Status.Lowering.From.Time)
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

// sync brings books and link in step over a connection that is new: what one side ended while the other was
// away ends now, and addresses that changed are told. On a connection it was done over before it tells a provider of guests that this cluster got
// or lost elsewhere, has other addresses agreed on in place of those that this laptop's network has too, unless guests have them, and does nothing else.
func (r *Reconciler) sync(ctx context.Context, peer *v1alpha1.Peer, contact peering.Contact, consuming, providing *v1alpha1.Contract) (again time.Duration, err error) {
	if consuming == nil && providing == nil {
		return 0, nil
	}
	apart := consuming != nil && sharing.NoNetwork(consuming) || providing != nil && sharing.NoNetwork(providing)
	if apart { // whether the peer is there or not
		guests := len(r.Client.Now().With(peer.Name, v1alpha1.RoleProvider)) > 0 // those of a contract that ends still run
		err = r.Linker.Apart(ctx, peer, guests)
	} else {
		err = r.Linker.Keep(peer)
	}
	if err != nil || !contact.Reachable() {
		return 0, err
	}
	lap := r.Linker.Overlap(ctx, peer)
	renew := len(lap.Ranges) > 0 && !lap.Kept && !apart
	consumes := consuming != nil && consuming.DeletionTimestamp == nil && !apart
	// It is noted before the work: whoever asks for it once more meanwhile is not forgotten.
	now := step{since: contact.Since, lets: providing != nil && !apart && r.Linker.Lets(peer)}
	if consumes {
		now.space = r.Linker.Space(peer)
	}
	before := r.mark(peer.Name, now)
	met := before.since.Equal(now.since) && (apart || peer.Status.Network.Linked()) // over this connection
	told := before.lets == now.lets
	if met && !renew && told && (!consumes || before.space.Equal(now.space)) {
		return 0, nil
	}
	defer func() {
		if again != 0 || err != nil {
			r.mark(peer.Name, step{})
		}
	}()
	to, err := r.Directory.Client(peer)
	if err != nil {
		return 0, err
	}
	if !met {
		if again, err = r.compareBooks(ctx, peer, to, consuming, providing); err != nil {
			return 0, err
		}
	}
	if apart { // there is nothing to agree on
		return again, nil
	}
	// The consumer proposes; but that a provider needs other ranges, or changed its mind, is for it to say.
	if consumes || renew || met && !told {
		err := r.Linker.Propose(ctx, peer, to, contact.At.Addr())
		if errors.Is(err, &peering.Problem{Code: peering.CodeRateLimited}) && peer.Status.Network != nil { // meanwhile that holds
			return resync, nil
		}
		return again, err
	}
	return again, r.Linker.Restore(ctx, peer)
}

// compareBooks ends the contracts that the peer no longer has.
func (r *Reconciler) compareBooks(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, contracts ...*v1alpha1.Contract) (again time.Duration, err error) {
	refs, err := to.Contracts(ctx)
	if err != nil {
		return 0, fmt.Errorf("compare the contracts with %s: %w", peer.Name, err)
	}
	has := map[string]peering.ContractRef{}
	for _, ref := range refs {
		has[ref.ID] = ref
	}
	for _, ctr := range contracts {
		if ctr == nil {
			continue
		}
		switch ref, known := has[ctr.Spec.ID]; {
		case known && ref.State != api.StateEnding:
			if err := r.Consumer.Told(ctx, peer, ctr, ref); err != nil {
				return 0, err
			}
			continue
		case known && ctr.Spec.Role == v1alpha1.RoleProvider: // it is bringing its pods home, and needs the door for that
			again = max(again, resync)
			continue
		}
		if left := record.Young - time.Since(ctr.CreationTimestamp.Time); ctr.Spec.Role == v1alpha1.RoleProvider && left > 0 {
			again = max(again, left)
			continue
		}
		r.Log.Info("peer ended the contract", "peer", peer.Name, "contract", ctr.Spec.ID)
		if err := record.EndContract(ctx, r.Client, ctr, v1alpha1.EndedByPeer); err != nil {
			return 0, err
		}
	}
	return again, nil
}

// showTunnel keeps the condition of the Peer, and its node in step. That a tunnel is down shows in what packets are needed for;
// the relation is what it was, and nothing is evicted.
func (r *Reconciler) showTunnel(ctx context.Context, peer *v1alpha1.Peer, there presence.Presence) (again time.Duration, err error) {
	if r.Linker == nil {
		return 0, nil
	}
	if !peer.Status.Network.Linked() {
		return 0, record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionTunnel) })
	}
	why, known, again := r.Linker.Tunnel(peer, there, time.Now())
	if !known {
		return again, nil
	}
	r.Fleet.SetTunnel(peer.Name, why)
	condition := metav1.Condition{Type: v1alpha1.ConditionTunnel, Status: metav1.ConditionTrue, Reason: "Answers", Message: "the peer answers through it"}
	if why != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "NoAnswer", why
	}
	if was := meta.FindStatusCondition(peer.Status.Conditions, condition.Type); was != nil && was.Status == condition.Status {
		return 0, nil // how long it is down was said once, and goes on
	}
	if why != "" {
		r.Log.Warn("nothing passes the tunnel", "peer", peer.Name, "why", why)
	}
	return 0, record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { meta.SetStatusCondition(&s.Conditions, condition) })
}

// showOverlap keeps the condition of the Peer while guests have addresses that are also those of a network around this laptop.
func (r *Reconciler) showOverlap(ctx context.Context, peer *v1alpha1.Peer) error {
	if r.Linker == nil {
		return nil
	}
	lap := r.Linker.Overlap(ctx, peer)
	return record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		if len(lap.Ranges) == 0 {
			meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionAddressesFree)
			return
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAddressesFree, Status: metav1.ConditionFalse, Reason: "InUseHere", Message: overlapWords(peer.Name, lap),
		})
	})
}

// overlapWords say what an overlap means, and how long.
func overlapWords(peer string, lap link.Overlap) string {
	ranges := strings.ReplaceAll(strings.Trim(fmt.Sprint(lap.Ranges), "[]"), " ", " and ")
	text := "the network that this laptop is on has addresses of guests of or at " + peer + ", " + ranges
	if !lap.Kept {
		return text + ": others are agreed on when " + peer + " answers"
	}
	return text + ": pods go on with these; this laptop itself reaches its network there, and others are agreed on when the last of the pods has ended"
}
