package seeking

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// settle is for how long a pod waits before more is asked for it: those that are made with it are on their way, and the scheduler may yet find room.
const settle = 10 * time.Second

// giveBack is the spec.grow.giveBackAfter of a policy that does not say it.
const giveBack = 30 * time.Minute

// Place is a peer as far as room for pods goes.
type Place struct {
	Peer  *v1alpha1.Peer
	There presence.Presence
	Most  corev1.ResourceList // all that it may grant
	// Grants is what it grants, or is asked for first. Storage is no more than that: pods request none.
	Grants corev1.ResourceList
	// Asleep: it would be there if it were woken, and its node ready; only what fits then counts.
	Asleep bool
}

// Need is what pods of this cluster need of a Place.
type Need struct {
	Pods   int                 // that are there
	Waits  int                 // that wait for a node, may go there, and fit into Most, or are there and have no room
	Beyond int                 // that wait, may go there, and do not fit
	Since  time.Time           // that the first of those that fit waits
	Held   int                 // volumes that are there, or on their way there or away
	Who    []*corev1.Pod       // those that wait for a node and fit, the oldest first
	All    corev1.ResourceList // what those request that are there, and those that wait and fit
}

// Pods tells what pods of this cluster need of peers.
type Pods interface {
	// Needs are those of each place. waiting are how many pods wait that may go to one of them at least.
	Needs(ctx context.Context, places []Place) (needs []Need, waiting int, err error)
}

// room is what a policy with spec.grow goes by, beside what it knows of each peer.
type room struct {
	amounts, limits corev1.ResourceList // spec.amounts, spec.grow.maxAmounts
	peers           int                 // spec.grow.maxPeers
	after           time.Duration       // spec.grow.giveBackAfter
	waiting         int                 // pods
}

// anyAmount stands for what is up to the peer.
var anyAmount = resource.MustParse("1Ei")

// most is all that a peer may come to grant.
func (r *room) most(f facts) corev1.ResourceList {
	all := f.granted().DeepCopy()
	if all == nil {
		all = corev1.ResourceList{}
	}
	if f.ctr == nil {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage} {
			all[name] = anyAmount
		}
		for name, amount := range r.amounts {
			all[name] = amount
		}
	}
	for name, limit := range r.limits {
		_, named := r.amounts[name]
		if is := all[name]; limit.Cmp(is) > 0 || f.ctr == nil && !named {
			all[name] = limit
		}
	}
	return all
}

// more is what a peer that grants so much has to be asked for, so that the pods fit that wait: of what the limits name what is beyond that.
func (r *room) more(granted corev1.ResourceList, need Need) corev1.ResourceList {
	more := corev1.ResourceList{}
	if need.Waits == 0 {
		return more
	}
	for name, limit := range r.limits {
		wanted, is := need.All[name], granted[name]
		if wanted.Cmp(limit) > 0 { // by what was granted before there was a limit
			wanted = limit
		}
		if wanted.Cmp(is) > 0 {
			more[name] = wanted
		}
	}
	return more
}

// less is what is left of what was granted beyond the base when all is given back that pods do not need. Nobody can be asked for nothing of a resource.
func less(g *v1alpha1.Growth, granted corev1.ResourceList, need Need) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name, base := range g.Base {
		if _, storage := api.StorageClass(string(name)); storage {
			continue // volumes hold it, whatever pods request
		}
		keep, is := need.All[name], granted[name]
		if keep.Cmp(base) < 0 {
			keep = base
		}
		if is.Cmp(keep) > 0 && keep.Sign() > 0 {
			left[name] = keep
		}
	}
	return left
}

// granted is what the contract grants now; nothing without one.
func (f facts) granted() corev1.ResourceList {
	if f.ctr == nil {
		return nil
	}
	return f.ctr.Grants(time.Now())
}

// lowered reports whether the peer gave notice that it lowers what it grants.
func (f facts) lowered() bool { return f.ctr != nil && f.ctr.Status.Lowering != nil }

// lowers notes of a peer that lowers what it grants that it is not asked for more before the pause after that: it is what it takes back.
func lowers(was *v1alpha1.Growth, f facts, now time.Time) *v1alpha1.Growth {
	if !f.lowered() || pending(was) {
		return was
	}
	is := &v1alpha1.Growth{Attempt: f.peer.Spec.Request.Attempt}
	if was != nil {
		is = was.DeepCopy()
	}
	if is.Until = notBefore(f.ctr.Status.Lowering.From.Add(first), now); is.Reason != v1alpha1.GrowthNotGranted {
		is.Reason, is.Since = v1alpha1.GrowthNotGranted, rounded(now)
	}
	is.Message = clip("it lowers what it grants: " + record.Lowered(f.ctr))
	return is
}

// pending reports whether a question for more, or less, is out.
func pending(g *v1alpha1.Growth) bool {
	return g != nil && (g.Reason == v1alpha1.GrowthAsked || g.Reason == v1alpha1.GrowthConfirm || g.Reason == v1alpha1.GrowthGivingBack)
}

// follow says what became of a question for more, or less; nil where there was none, or nothing is left of it.
func follow(was *v1alpha1.Growth, f facts, now time.Time) *v1alpha1.Growth {
	request, out := f.peer.Spec.Request, f.peer.Status.Outgoing
	if was == nil || request == nil || f.ctr == nil && !f.open {
		return nil
	}
	is := was.DeepCopy()
	if is.Until != nil && !now.Before(is.Until.Time) {
		is.Until = nil
	}
	switch {
	case request.Attempt > was.Attempt: // what the owner, or another policy, asked for since is not this one's to give back
		is.Base, is.Needed, is.NeededSince, is.Extra = nil, nil, nil, false
		if pending(is) {
			is.Reason, is.Message = v1alpha1.GrowthNotGranted, "something else was asked of it since"
		}
	case request.Attempt < was.Attempt: // it was not put, or was taken back before: what had grown until then did
		if is.Attempt = request.Attempt; pending(is) {
			is.Reason, is.Message = v1alpha1.GrowthNotGranted, "it was not asked after all"
		}
	case !pending(is):
	case f.asking || f.ctr == nil:
		if out.Confirm != nil {
			is.Message = out.Why
		}
		if out.Confirm != nil && is.Reason == v1alpha1.GrowthAsked {
			is.Reason = v1alpha1.GrowthConfirm
		}
	case is.Reason == v1alpha1.GrowthGivingBack && record.Exceeds(only(f.granted(), request.Resources), request.Resources) == "":
		is.Reason, is.Message, is.Tries, is.Until, is.Needed, is.NeededSince = v1alpha1.GrowthGaveBack, "it grants "+record.Granted(f.granted()), 0, nil, nil, nil
	case is.Reason != v1alpha1.GrowthGivingBack && record.Exceeds(request.Resources, f.granted()) == "":
		is.Reason, is.Message, is.Tries, is.Until = v1alpha1.GrowthGranted, "it grants "+record.Granted(f.granted()), 0, nil
	default:
		notGranted(is, cmp.Or(out.Why, sharing.Less(request.Resources, f.granted())), now)
	}
	if is.Message = clip(is.Message); is.Reason != was.Reason {
		is.Since = rounded(now)
	}
	return is
}

// notGranted notes that a question did not come to what was asked for: it is put again after the pause.
func notGranted(g *v1alpha1.Growth, why string, now time.Time) {
	g.Reason, g.Message, g.Since = v1alpha1.GrowthNotGranted, clip(why), rounded(now)
	g.Tries++
	g.Until = notBefore(now.Add(pause(g.Tries)), now)
}

// pauses reports whether a peer is not asked for more yet. A no to a question for less, which is for no more than is granted, says nothing of that.
func (f facts) pauses(g *v1alpha1.Growth) bool {
	if g == nil || g.Until == nil {
		return false
	}
	request := f.peer.Spec.Request
	return request.Attempt != g.Attempt || record.Exceeds(request.Resources, f.granted()) != ""
}

// hinders reports whether the question for less that is out at a peer is in the way: pods need more of what that would leave by now, there is nothing to
// be given back any more, or others may be asked for what pods wait for. There are most contracts at most then.
func (p *plan) hinders(r *room, selected []facts, out, contracts, most int) bool {
	asks := selected[out]
	for name, asked := range asks.peer.Spec.Request.Resources {
		if need := asks.need.All[name]; need.Cmp(asked) > 0 {
			return true
		}
	}
	if request := asks.peer.Spec.Request.Resources; record.Exceeds(only(asks.granted(), request), request) == "" {
		return true
	}
	for i, f := range selected {
		is := p.status.Peers[i]
		switch {
		case f.asking || f.open || f.ending || !f.there.Works():
		case f.contract && len(r.more(f.granted(), f.need)) > 0 && !f.pauses(is.Growth):
			return true
		case !f.contract && is.Until == nil && f.need.Waits > 0 && contracts < most:
			return true
		}
	}
	return false
}

// only is of a list what another one names.
func only(list, named corev1.ResourceList) corev1.ResourceList {
	some := corev1.ResourceList{}
	for name := range named {
		some[name] = list[name]
	}
	return some
}

// pods are how many wait.
func (r *room) pods() int32 {
	if r == nil {
		return 0
	}
	return int32(r.waiting)
}

// grow has more asked for where pods wait: of a peer with which there is a contract or, as far as there may be more of them then, of another. It reports
// whether pods wait for that.
func (p *plan) grow(r *room, selected []facts, contracts int, now, next time.Time, soon func(time.Time)) bool {
	if r == nil {
		return false
	}
	at, other, lacking := -1, -1, false
	for i, f := range selected {
		is := &p.status.Peers[i]
		switch {
		case !f.contract && !f.open && !f.ending && f.there.Works() && is.Until == nil && f.need.Waits > 0:
			if other < 0 || order(*is, p.status.Peers[other]) < 0 {
				other = i
			}
		case !f.contract:
		case len(r.more(f.granted(), f.need)) == 0:
			lacking = lacking || f.need.Beyond > 0
		default:
			lacking = true
			switch {
			case f.asking || !f.there.Works() || f.lowered(): // the answer, or its coming, brings us back
			case f.pauses(is.Growth):
				soon(is.Growth.Until.Time)
			case at < 0 || p.before(i, at, selected):
				at = i
			}
		}
	}
	extra := at < 0 && other >= 0 && contracts < r.peers
	if !lacking && !extra {
		return false
	}
	if extra {
		at = other
	}
	st := &p.status
	st.Waiting, st.State = r.pods(), v1alpha1.SeekingGrowing
	if at < 0 {
		st.State, st.Message = v1alpha1.SeekingFull, fmt.Sprintf("%d pods wait for room that nobody may be asked for", r.waiting)
		if p.again > 0 {
			st.Message = fmt.Sprintf("%d pods wait for room, and nobody is asked before %s", r.waiting, now.Add(p.again).UTC().Format(time.DateTime+" UTC"))
		}
		return true
	}
	f := selected[at]
	due := f.need.Since.Add(settle)
	if due.Before(next) {
		due = next
	}
	if now.Before(due) {
		soon(due)
		st.Message = fmt.Sprintf("%d pods wait for room; %s is asked for it at %s", r.waiting, f.peer.Name, due.UTC().Format(time.TimeOnly+" UTC"))
		return true
	}
	st.Message = fmt.Sprintf("%d pods wait for room; %s is asked for it", r.waiting, f.peer.Name)
	if extra {
		p.first(r, f, &st.Peers[at], now)
		g := growth(&st.Peers[at])
		g.Reason, g.Attempt, g.Since, g.Extra = v1alpha1.GrowthAsked, p.attempt, rounded(now), true
		return true
	}
	p.amounts = r.more(f.granted(), f.need)
	p.change(f, &st.Peers[at], v1alpha1.GrowthAsked, now)
	return true
}

// before reports whether one peer is asked for more before another: those that said no least often first, then those where more of the pods fit.
func (p *plan) before(i, j int, selected []facts) bool {
	a, b := p.status.Peers[i], p.status.Peers[j]
	var x, y v1alpha1.Growth
	if a.Growth != nil {
		x = *a.Growth
	}
	if b.Growth != nil {
		y = *b.Growth
	}
	return cmp.Or(cmp.Compare(x.Tries, y.Tries), -cmp.Compare(selected[i].need.Waits, selected[j].need.Waits), cmp.Compare(x.Attempt, y.Attempt),
		cmp.Compare(a.Peer, b.Peer)) < 0
}

// first has a peer asked for the first time, for what pods need too that wait.
func (p *plan) first(r *room, f facts, is *v1alpha1.SoughtPeer, now time.Time) {
	p.ask, p.attempt = f.peer, consumer.NextAttempt(f.peer, now)
	is.Reason, is.Message, is.Attempt, is.Since = v1alpha1.SoughtAsked, "", p.attempt, rounded(now)
	if r == nil {
		return
	}
	more := r.more(r.amounts, f.need)
	if len(more) == 0 {
		return
	}
	p.amounts = r.amounts.DeepCopy()
	for name, amount := range more {
		p.amounts[name] = amount
	}
	g := growth(is)
	g.Reason, g.Message, g.Attempt, g.Since, g.Base = v1alpha1.GrowthAsked, said(r.amounts, more), p.attempt, rounded(now), only(r.amounts, more)
}

// change has a peer asked for other amounts than its contract has: p.amounts.
func (p *plan) change(f facts, is *v1alpha1.SoughtPeer, reason v1alpha1.GrowthReason, now time.Time) {
	p.ask, p.attempt = f.peer, consumer.NextAttempt(f.peer, now)
	g := growth(is)
	for name, has := range only(f.granted(), p.amounts) {
		if _, had := g.Base[name]; had {
			continue
		}
		if g.Base == nil {
			g.Base = corev1.ResourceList{}
		}
		g.Base[name] = has
	}
	g.Reason, g.Message, g.Attempt, g.Since = reason, said(f.granted(), p.amounts), p.attempt, rounded(now)
	g.Until, g.Needed, g.NeededSince = nil, nil, nil
}

// growth is that of a peer, which has one from then on.
func growth(is *v1alpha1.SoughtPeer) *v1alpha1.Growth {
	if is.Growth == nil {
		is.Growth = &v1alpha1.Growth{}
	}
	return is.Growth
}

// said is a change of amounts in words.
func said(from, to corev1.ResourceList) string {
	return clip(api.Change(sharing.Words(only(from, to)), sharing.Words(to), nil))
}

// shrink gives back what was granted because pods waited, when they have needed less for long enough. What they need counts anew from each change on, so
// that nothing is given back for which there is use now and then.
func (p *plan) shrink(r *room, selected []facts, contracts, most int, now, next time.Time, soon func(time.Time)) {
	for i, f := range selected {
		is := &p.status.Peers[i]
		g := is.Growth
		if g == nil || pending(g) || !f.contract || f.asking {
			continue
		}
		left := less(g, f.granted(), f.need)
		ends := g.Extra && contracts > most && f.need.Pods == 0 && f.need.Waits == 0
		if g.Reason == v1alpha1.GrowthHeld && (!ends || f.need.Held == 0) {
			g.Reason, g.Message, g.Since = v1alpha1.GrowthGranted, clip("it grants "+record.Granted(f.granted())), rounded(now)
		}
		over := left
		if ends {
			left = corev1.ResourceList{corev1.ResourcePods: resource.Quantity{}}
		}
		if len(left) == 0 {
			g.Needed, g.NeededSince = nil, nil
			continue
		}
		if g.NeededSince == nil || !equality.Semantic.DeepEqual(g.Needed, left) {
			at := rounded(now)
			g.Needed, g.NeededSince = left, &at
		}
		due := g.NeededSince.Add(r.after)
		if due.Before(next) {
			due = next
		}
		if g.Until != nil && due.Before(g.Until.Time) {
			due = g.Until.Time
		}
		if now.Before(due) || !f.there.Works() || p.ask != nil || p.end != nil {
			soon(due)
			continue
		}
		if ends && f.need.Held > 0 { // the peer would delete them in time: that is a word of their owner alone
			if ends, left = false, over; len(left) == 0 {
				holds(g, f, now)
				soon(now.Add(r.after))
				continue
			}
		}
		if p.amounts = left; ends {
			p.end, p.amounts, contracts = f.peer, nil, contracts-1
			g.Reason, g.Message, g.Since = v1alpha1.GrowthGivingBack, "nothing runs there", rounded(now)
			continue
		}
		p.change(f, is, v1alpha1.GrowthGivingBack, now)
	}
}

// holds says that a contract stays for the volumes that are at the peer. How long nothing was there counts anew, which brings us back.
func holds(g *v1alpha1.Growth, f facts, now time.Time) {
	at := rounded(now)
	if g.Reason != v1alpha1.GrowthHeld {
		g.Since = at
	}
	g.Reason, g.Message, g.NeededSince = v1alpha1.GrowthHeld, fmt.Sprintf("nothing runs there, and %d volumes are: the contract stays until they are moved or deleted", f.need.Held), &at
}
