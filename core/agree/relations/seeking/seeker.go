package seeking

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/trust/identity"
)

const (
	// gap is the least time between two questions, of all policies together: thirty an hour, whatever policies and peers there are.
	gap = 2 * time.Minute
	// pace is the least time between two looks at what pods need: many come and go at once.
	pace = 5 * time.Second
	// look is when to look again for what nobody tells of: a stranger who comes along, the end of a tether.
	look = time.Minute
)

// Nearby is a cluster that was found, can be reached, and is no Peer here.
type Nearby struct {
	Name      string
	Endpoints []string
	Source    v1alpha1.Source
}

// Config is what a Seeker needs.
type Config struct {
	Client    *ledger.Ledger
	Directory link.Directory
	Nearby    func(identity.ID) (found Nearby, ok bool)
	Pods      Pods
	Mode      consumer.Mode
	Events    events.EventRecorder
	Log       *slog.Logger
}

// Seeker carries out PeeringPolicies.
type Seeker struct {
	Config
	pokes chan event.GenericEvent
	last  time.Time // that it asked somebody; of one worker
}

// New makes a Seeker.
func New(cfg Config) *Seeker { return &Seeker{Config: cfg, pokes: make(chan event.GenericEvent, 1)} }

// SetupWithManager registers what reacts to policies, and to what they depend on.
func (s *Seeker) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(s.policies)
	return ctrl.NewControllerManagedBy(mgr).Named("peering-policies").
		For(&v1alpha1.PeeringPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peer{}, all).
		Watches(&v1alpha1.Contract{}, all).
		Watches(&corev1.Pod{}, AtPace(s.growing), builder.WithPredicates(Matters)).
		WatchesRawSource(source.Channel(s.pokes, all)).
		WithOptions(controller.Options{NewQueue: queue.New}). // one worker: the gap is that of all policies
		Complete(s)
}

// Poke has the policies looked at, because somebody's contact changed.
func (s *Seeker) Poke() {
	select {
	case s.pokes <- event.GenericEvent{Object: &v1alpha1.Peer{}}:
	default: // that is to come already
	}
}

func (s *Seeker) policies(ctx context.Context, _ client.Object) (all []ctrl.Request) {
	var list v1alpha1.PeeringPolicyList
	if err := s.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		s.Log.Warn("the peering policies cannot be listed", "err", err)
	}
	for i := range list.Items {
		all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

// Reconcile looks at one policy. Its status is written before somebody is asked: a restart in between asks too late, and never twice. A cache that
// is behind shows in a conflict then, before anybody is asked.
func (s *Seeker) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return record.Calm(s.reconcile(ctx, req))
}

func (s *Seeker) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.PeeringPolicy
	if err := s.Client.Get(ctx, req.NamespacedName, &policy); err != nil || policy.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	amounts, r, state, why := s.may(&policy)
	if state != "" {
		is := policy.Status
		is.ObservedGeneration, is.State, is.Message = policy.Generation, state, clip(why) // of peers it goes on to say what it did
		if state == v1alpha1.SeekingTethered {
			return ctrl.Result{RequeueAfter: look}, s.say(ctx, &policy, is)
		}
		return ctrl.Result{}, s.say(ctx, &policy, is)
	}
	strangers, err := s.meet(ctx, &policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	known, now := s.Client.Now(), time.Now()
	var selected []facts
	for _, peer := range known.Peers {
		if selects(&policy, peer) {
			selected = append(selected, observe(known, peer, s.Directory.Contact(peer).Presence))
		}
	}
	if err := s.need(ctx, r, selected); err != nil {
		return ctrl.Result{}, err
	}
	p := decide(&policy, selected, r, now, s.next(known, now))
	if strangers && (p.again == 0 || p.again > look) {
		p.again = look
	}
	if err := s.say(ctx, &policy, p.status); err != nil {
		return ctrl.Result{}, err
	}
	for _, peer := range p.lost {
		if err := s.takeBack(ctx, peer); err != nil {
			return ctrl.Result{}, err
		}
	}
	if p.end != nil {
		return ctrl.Result{RequeueAfter: p.again}, s.end(ctx, p.end)
	}
	if p.ask == nil {
		return ctrl.Result{RequeueAfter: p.again}, nil
	}
	s.last = now
	if p.amounts != nil {
		amounts = p.amounts
	}
	return ctrl.Result{RequeueAfter: patience}, s.ask(ctx, &policy, p.ask, v1alpha1.ResourceRequest{
		Resources: amounts, Attempt: p.attempt, MaxPrices: policy.Spec.MaxPrices, Network: consumer.Network(p.ask),
	})
}

// may says why the policy asks nobody at all, whatever peers there are; state is "" when it may. The room is nil without spec.grow.
func (s *Seeker) may(policy *v1alpha1.PeeringPolicy) (amounts corev1.ResourceList, r *room, state v1alpha1.SeekingState, why string) {
	if policy.Spec.Paused {
		return nil, nil, v1alpha1.SeekingPaused, "its owner paused it"
	}
	if s.Mode != nil {
		if company, _ := s.Mode.Company(); company != "" {
			return nil, nil, v1alpha1.SeekingTethered, "this laptop is tethered, and another cluster decides what it uses (`kith untether`)"
		}
	}
	amounts, err := quantities("spec.amounts", policy.Spec.Amounts)
	if err != nil {
		return nil, nil, v1alpha1.SeekingInvalid, err.Error()
	}
	grow := policy.Spec.Grow
	if grow == nil {
		return amounts, nil, "", ""
	}
	r = &room{amounts: amounts, after: giveBack}
	if r.limits, err = quantities("spec.grow.maxAmounts", grow.MaxAmounts); err != nil {
		return nil, nil, v1alpha1.SeekingInvalid, err.Error()
	}
	if grow.MaxPeers != nil {
		r.peers = int(*grow.MaxPeers)
	}
	if grow.GiveBackAfter != nil {
		r.after = grow.GiveBackAfter.Duration
	}
	return amounts, r, "", ""
}

// quantities reads amounts that a peer may be asked for.
func quantities(field string, amounts map[string]v1alpha1.Amount) (corev1.ResourceList, error) {
	words := api.Resources{}
	for name, amount := range amounts {
		words[name] = string(amount)
	}
	if err := api.CheckAsked(field, words); err != nil {
		return nil, err
	}
	list := corev1.ResourceList{}
	for name, amount := range words {
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %q is no quantity", field, name, amount)
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

// need adds to what is known of the peers what pods need of them, for a policy that goes by it.
func (s *Seeker) need(ctx context.Context, r *room, selected []facts) error {
	if r == nil {
		return nil
	}
	places := make([]Place, len(selected))
	for i, f := range selected {
		places[i] = Place{Peer: f.peer, There: f.there, Most: r.most(f), Grants: f.granted()}
		if f.ctr == nil {
			places[i].Grants = r.amounts
		}
	}
	needs, waiting, err := s.Pods.Needs(ctx, places)
	if err != nil {
		return fmt.Errorf("see what pods need of peers: %w", err)
	}
	for i := range selected {
		selected[i].need = needs[i]
	}
	r.waiting = waiting
	return nil
}

// meet makes Peers of those whom the policy names by their whole ID and who were found. more reports that some were not.
func (s *Seeker) meet(ctx context.Context, policy *v1alpha1.PeeringPolicy) (more bool, err error) {
	now := s.Client.Now()
	for _, entry := range policy.Spec.Peers {
		id, err := identity.ParseID(entry)
		if err != nil || now.Peer(id.String()) != nil {
			continue
		}
		found, ok := s.Nearby(id)
		if !ok {
			more = true
			continue
		}
		if _, err := record.EnsurePeer(ctx, s.Client, id, found.Name, found.Endpoints, found.Source); err != nil {
			return false, err
		}
	}
	return more, nil
}

// next is when the next question may be put. The ledger knows of those before a restart; one of the future is of a clock that was put back.
func (s *Seeker) next(known *ledger.Snapshot, now time.Time) time.Time {
	last := s.last
	for _, peer := range known.Peers {
		if t := lastAsked(peer); t.After(last) && !t.After(now) {
			last = t
		}
	}
	if last.After(now) {
		return now
	}
	return last.Add(gap)
}

// ask puts a question as `kith peer` does. Whom the policy names by the whole ID needs no code to compare.
func (s *Seeker) ask(ctx context.Context, policy *v1alpha1.PeeringPolicy, peer *v1alpha1.Peer, request v1alpha1.ResourceRequest) error {
	id := ""
	if named(policy, peer) {
		id = peer.Spec.ID
	}
	if err := consumer.Want(ctx, s.Client, peer.DeepCopy(), request, id); err != nil {
		return err
	}
	s.Log.Info("a peering policy asks", "policy", policy.Name, "peer", peer.Name)
	return nil
}

// takeBack ends a question, unless something became of it meanwhile. A contract stays as it is.
func (s *Seeker) takeBack(ctx context.Context, peer *v1alpha1.Peer) error {
	if s.Client.Now().InForce(peer.Name, v1alpha1.RoleConsumer) == nil {
		return s.end(ctx, peer)
	}
	back := peer.DeepCopy()
	if request, out := back.Spec.Request, peer.Status.Outgoing; request.Attempt > out.Attempt { // not put to the peer yet
		request.Attempt = out.Attempt
	} else {
		request.Confirm = &v1alpha1.Confirm{Attempt: request.Attempt, Withdraw: true}
	}
	return s.patch(ctx, peer, back)
}

// end ends the question that is out at a peer, or the contract with it.
func (s *Seeker) end(ctx context.Context, peer *v1alpha1.Peer) error {
	without := peer.DeepCopy()
	without.Spec.Request = nil
	return s.patch(ctx, peer, without)
}

func (s *Seeker) patch(ctx context.Context, peer, to *v1alpha1.Peer) error {
	if err := s.Client.Patch(ctx, to, client.MergeFromWithOptions(peer, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("take back what %s was asked: %w", peer.Name, err)
	}
	return nil
}

// say writes the status, and says as events what is new in it.
func (s *Seeker) say(ctx context.Context, policy *v1alpha1.PeeringPolicy, is v1alpha1.PeeringPolicyStatus) error {
	was := policy.Status
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	policy.Status = is
	if err := s.Client.Status().Update(ctx, policy); err != nil {
		return fmt.Errorf("write the status of the peering policy %s: %w", policy.Name, err)
	}
	if was.State != is.State && (is.State == v1alpha1.SeekingPaused || is.State == v1alpha1.SeekingInvalid || is.State == v1alpha1.SeekingTethered) {
		s.Events.Eventf(policy, nil, corev1.EventTypeNormal, string(is.State), "Seek", "%s", is.Message)
	}
	before := map[string]v1alpha1.SoughtPeer{}
	for _, p := range was.Peers {
		before[p.ID] = p
	}
	for _, p := range is.Peers {
		s.sayGrowth(policy, before[p.ID], p)
		if p.Reason == before[p.ID].Reason || p.Reason == v1alpha1.SoughtNext || p.Reason == v1alpha1.SoughtUnreachable {
			continue // whether somebody may be asked is no step
		}
		s.Events.Eventf(policy, nil, corev1.EventTypeNormal, string(p.Reason), "Seek", "%s", told(p))
	}
	return nil
}

// sayGrowth says as an event what is new of room beyond what a peer was asked for first.
func (s *Seeker) sayGrowth(policy *v1alpha1.PeeringPolicy, was, is v1alpha1.SoughtPeer) {
	g := is.Growth
	if g == nil || was.Growth != nil && was.Growth.Reason == g.Reason {
		return
	}
	s.Events.Eventf(policy, nil, corev1.EventTypeNormal, string(g.Reason), "Seek", "%s", told(v1alpha1.SoughtPeer{Peer: is.Peer, Message: g.Message, Until: g.Until}))
}

// told says of a peer what its reason does not.
func told(p v1alpha1.SoughtPeer) string {
	text := p.Peer
	if p.Message != "" {
		text += ": " + p.Message
	}
	if p.Until != nil {
		text += "; it is asked again after " + p.Until.UTC().Format(time.DateTime+" UTC")
	}
	return text
}
