package seeking

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

const (
	// first is the pause after a question came to nothing; it doubles with each that does, up to longest.
	first   = 10 * time.Minute
	longest = 24 * time.Hour
	// away is how long a peer that comes back was away, for what it said before to be forgotten: shorter ones are a lid, or a restart of kithd.
	away = 10 * time.Minute
	// patience is how long a question may be out at a peer that cannot be reached before it is taken back, and unanswered at one that can be: when
	// a question lapses is the peer's word, and others wait for it.
	patience   = 10 * time.Minute
	unanswered = time.Hour
	// maxSought bounds status.peers, maxMessage a message there.
	maxSought, maxMessage = 128, 256
)

// pause is that after so many tries.
func pause(tries int32) time.Duration {
	return min(first<<min(max(tries-1, 0), 16), longest)
}

// facts are how this cluster stands with a peer as its consumer, whoever asked.
type facts struct {
	peer  *v1alpha1.Peer
	there presence.Presence
	// One of these at most: a contract is in force; a question is out; something is at its end.
	contract, open, ending bool
	ctr                    *v1alpha1.Contract // the one in force; nil without one
	asking                 bool               // beside it a question is out
	need                   Need               // what pods need of it, for a policy with spec.grow
}

// observe reads what the ledger has of a peer.
func observe(now *ledger.Snapshot, peer *v1alpha1.Peer, there presence.Presence) facts {
	f, out, request := facts{peer: peer, there: there}, peer.Status.Outgoing, peer.Spec.Request
	contracts := now.With(peer.Name, v1alpha1.RoleConsumer)
	asked := request != nil && (request.Attempt > out.Attempt || record.StateOf(out) == v1alpha1.StateRequested || out.RequestID != "" || consumer.Asking(out))
	switch f.ctr = ledger.Live(contracts); {
	case f.ctr != nil:
		f.contract, f.asking = true, asked
	case asked:
		f.open = true
	default:
		f.ending = len(contracts) > 0 || !record.Finished(out)
	}
	return f
}

// lastAsked is when a peer was asked last, whoever had it asked: attempts are Unix times in milliseconds. Zero when nobody did.
func lastAsked(peer *v1alpha1.Peer) time.Time {
	if peer.Spec.Request == nil || peer.Spec.Request.Attempt == 0 {
		return time.Time{}
	}
	return time.UnixMilli(peer.Spec.Request.Attempt)
}

// judge says how a policy stands with a peer, from how it stood before, which is empty for one that is new to it.
func judge(was v1alpha1.SoughtPeer, f facts, now time.Time) v1alpha1.SoughtPeer {
	is, out := was, f.peer.Status.Outgoing
	is.ID, is.Peer = f.peer.Spec.ID, f.peer.Name
	if was.Reason == "" {
		is.Until = notBefore(lastAsked(f.peer).Add(first), now) // whoever asked
	}
	if is.Until != nil && !now.Before(is.Until.Time) {
		is.Until = nil
	}
	switch {
	case f.contract:
		is.Reason, is.Message, is.Tries, is.Until = v1alpha1.SoughtContracted, out.Why, 0, nil
		if record.StateOf(out) == v1alpha1.StateRequested { // what it says is of the question still
			is.Message = ""
		}
	case f.open && out.Confirm != nil:
		is.Reason, is.Message, is.Until = v1alpha1.SoughtConfirm, out.Why, nil
	case f.open && was.Attempt != f.peer.Spec.Request.Attempt:
		is.Reason, is.Message, is.Until = v1alpha1.SoughtAsked, "by `kith peer`, or another policy", nil
	case f.open:
		is.Reason, is.Message, is.Until = v1alpha1.SoughtAsked, out.Why, nil
	case f.ending && was.Reason != "":
	case f.ending:
		is.Reason, is.Message = v1alpha1.SoughtEnded, out.Why
	case pursued(was):
		is.Reason, is.Message = nothing(out), out.Why
		is = again(is, now)
	case !f.there.Works():
		is.Reason, is.Message = v1alpha1.SoughtUnreachable, f.there.Why
	case was.Reason == v1alpha1.SoughtUnreachable && now.Sub(was.Since.Time) >= away:
		is.Reason, is.Message, is.Tries, is.Until = v1alpha1.SoughtNext, "", 0, notBefore(lastAsked(f.peer).Add(first), now)
	case was.Reason == "", was.Reason == v1alpha1.SoughtUnreachable, is.Until == nil:
		is.Reason, is.Message = v1alpha1.SoughtNext, ""
	}
	if is.Message = clip(is.Message); is.Reason != was.Reason {
		is.Since = rounded(now)
	}
	return is
}

// pursued reports whether there is a contract with a peer, or a question is out.
func pursued(s v1alpha1.SoughtPeer) bool {
	return s.Reason == v1alpha1.SoughtAsked || s.Reason == v1alpha1.SoughtConfirm || s.Reason == v1alpha1.SoughtContracted
}

// again has a peer asked again after the pause, once more of what came to nothing.
func again(s v1alpha1.SoughtPeer, now time.Time) v1alpha1.SoughtPeer {
	s.Tries++
	s.Until = notBefore(now.Add(pause(s.Tries)), now)
	return s
}

// notBefore is nil for what is past.
func notBefore(t, now time.Time) *metav1.Time {
	if !t.After(now) {
		return nil
	}
	at := rounded(t)
	return &at
}

// rounded is a time as objects keep it.
func rounded(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }

// nothing is why there is no contract of a question that is not out any more.
func nothing(out v1alpha1.DirectionStatus) v1alpha1.SoughtReason {
	switch record.StateOf(out) {
	case v1alpha1.StateDeclined:
		return v1alpha1.SoughtDeclined
	case v1alpha1.StateExpired:
		return v1alpha1.SoughtExpired
	}
	return v1alpha1.SoughtEnded
}

// lost reports whether a question of this policy is out for too long.
func lost(s v1alpha1.SoughtPeer, f facts, now time.Time) bool {
	switch {
	case f.open && s.Attempt == f.peer.Spec.Request.Attempt:
	case f.asking && pending(s.Growth) && s.Growth.Attempt == f.peer.Spec.Request.Attempt:
	default:
		return false
	}
	out := now.Sub(lastAsked(f.peer))
	return out >= unanswered || !f.there.Reachable() && out >= patience && now.Sub(f.there.Since) >= patience
}

// selects reports whether a policy may ask a peer. Names and labels count for those whose key was accepted; a stranger is named by his ID.
func selects(policy *v1alpha1.PeeringPolicy, peer *v1alpha1.Peer) bool {
	tethered := peer.Spec.Tethered != nil || peer.Spec.Request != nil && peer.Spec.Request.Tether
	return peer.DeletionTimestamp == nil && !tethered && sharing.Selects(policy.Spec.Peers, policy.Spec.PeerSelector, peer) &&
		(sharing.Accepted(peer) || named(policy, peer))
}

// named reports whether a policy names a peer by its whole ID.
func named(policy *v1alpha1.PeeringPolicy, peer *v1alpha1.Peer) bool {
	return slices.ContainsFunc(policy.Spec.Peers, func(entry string) bool { return sharing.NamesKey(entry, peer) })
}

// plan is what to do for a policy.
type plan struct {
	status  v1alpha1.PeeringPolicyStatus
	ask     *v1alpha1.Peer      // nobody: nil
	attempt int64               // by which it is asked
	amounts corev1.ResourceList // for which it is asked; nil: those of the policy
	end     *v1alpha1.Peer      // with whom the contract is ended: nobody: nil
	lost    []*v1alpha1.Peer    // whose questions are taken back
	again   time.Duration       // when to look again, 0: when something changes
}

// decide says what to do for a policy. The next question of any policy may be put at next; r is nil without spec.grow.
func decide(policy *v1alpha1.PeeringPolicy, selected []facts, r *room, now, next time.Time) plan {
	p := plan{status: v1alpha1.PeeringPolicyStatus{ObservedGeneration: policy.Generation}}
	before := map[string]v1alpha1.SoughtPeer{}
	for _, s := range policy.Status.Peers {
		if policy.Status.ObservedGeneration != policy.Generation { // its owner changed it: what was said to it before is forgotten
			s.Tries, s.Until = 0, nil
			if s.Growth != nil {
				s.Growth = s.Growth.DeepCopy()
				s.Growth.Tries, s.Growth.Until = 0, nil
			}
		}
		before[s.ID] = s
	}
	soon := func(t time.Time) {
		if left := t.Sub(now); left > 0 && (p.again == 0 || left < p.again) {
			p.again = left
		}
	}
	contracts, open, more, changing, best := 0, "", false, -1, -1
	for i, f := range selected {
		s := judge(before[f.peer.Spec.ID], f, now)
		if s.Growth = follow(s.Growth, f, now); r != nil && f.contract && f.peer.Spec.Request != nil {
			s.Growth = lowers(s.Growth, f, now)
		}
		switch {
		case lost(s, f, now) && f.contract:
			p.lost = append(p.lost, f.peer)
			contracts++
			notGranted(s.Growth, "no answer came in time, and the question was taken back", now)
		case lost(s, f, now):
			p.lost = append(p.lost, f.peer)
			s.Reason, s.Message, s.Since = v1alpha1.SoughtExpired, "no answer came in time, and the question was taken back", rounded(now)
			s, s.Growth = again(s, now), nil
		case f.contract:
			contracts++
			if f.asking && pending(s.Growth) && s.Growth.Attempt == f.peer.Spec.Request.Attempt {
				changing = i
				soon(now.Add(patience)) // it may be lost
			}
		case f.open && (f.there.Reachable() || s.Attempt == f.peer.Spec.Request.Attempt): // else it is the owner's own, and may be out for ever
			open, more = f.peer.Name, more || pending(s.Growth)
			soon(now.Add(patience)) // it may be lost
		case f.open || f.ending || !f.there.Works():
		case s.Until != nil:
			soon(s.Until.Time)
		case best < 0 || order(s, p.status.Peers[best]) < 0:
			best = i
		}
		p.status.Peers = append(p.status.Peers, s)
	}
	most, st := 1, &p.status
	if policy.Spec.MaxPeers != nil {
		most = int(*policy.Spec.MaxPeers)
	}
	st.Contracts = int32(contracts)
	if r != nil && changing >= 0 && st.Peers[changing].Growth.Reason == v1alpha1.GrowthGivingBack && p.hinders(r, selected, changing, contracts, max(most, r.peers)) {
		f, g := selected[changing], st.Peers[changing].Growth
		g.Reason, g.Message, g.Since = v1alpha1.GrowthGranted, clip("it grants "+record.Granted(f.granted())), rounded(now)
		p.lost, changing = append(p.lost, f.peer), -1
	}
	switch {
	case changing >= 0 && st.Peers[changing].Growth.Reason == v1alpha1.GrowthGivingBack:
		if st.State, st.Message = v1alpha1.SeekingAsking, st.Peers[changing].Peer+" is asked for less"; contracts >= most {
			st.State = v1alpha1.SeekingEnough
		}
	case changing >= 0:
		st.State, st.Message, st.Waiting = v1alpha1.SeekingGrowing, st.Peers[changing].Peer+" is asked for more", r.pods()
	case more:
		st.State, st.Message, st.Waiting = v1alpha1.SeekingGrowing, open+" is asked", r.pods()
	case contracts >= most && open == "" && p.grow(r, selected, contracts, now, next, soon):
	case contracts >= most:
		st.State, st.Message = v1alpha1.SeekingEnough, "as many contracts as it wants are in force"
	case open != "":
		st.State, st.Message = v1alpha1.SeekingAsking, open+" is asked"
	case best >= 0 && !now.Before(next):
		p.first(r, selected[best], &st.Peers[best], now)
		st.State, st.Message = v1alpha1.SeekingAsking, p.ask.Name+" is asked"
		if st.Peers[best].Growth != nil {
			st.State, st.Waiting = v1alpha1.SeekingGrowing, r.pods()
		}
	case best >= 0:
		soon(next)
		st.State, st.Message = v1alpha1.SeekingWaiting, fmt.Sprintf("%s is asked next, at %s", selected[best].peer.Name, next.UTC().Format(time.TimeOnly+" UTC"))
	case p.grow(r, selected, contracts, now, next, soon):
	case p.again > 0:
		st.State, st.Message = v1alpha1.SeekingWaiting, "nobody is asked again before "+now.Add(p.again).UTC().Format(time.DateTime+" UTC")
	case len(selected) == 0:
		st.State, st.Message = v1alpha1.SeekingNobody, "it selects nobody whose key was accepted here, or whose ID it names"
	default:
		st.State, st.Message = v1alpha1.SeekingNobody, fmt.Sprintf("none of the %d it selects can be reached", len(selected))
	}
	if r != nil && p.ask == nil && open == "" && changing < 0 {
		p.shrink(r, selected, contracts, most, now, next, soon)
	}
	st.Peers = bounded(st.Peers)
	return p
}

// order is that in which peers are asked: those that said no least often first, then those who were not asked for the longest time.
func order(a, b v1alpha1.SoughtPeer) int {
	return cmp.Or(cmp.Compare(a.Tries, b.Tries), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Peer, b.Peer))
}

// bounded keeps, if not all can be kept, those with which there is something, then those with which there was.
func bounded(all []v1alpha1.SoughtPeer) []v1alpha1.SoughtPeer {
	rank := func(s v1alpha1.SoughtPeer) int {
		switch {
		case pursued(s):
			return 0
		case s.Attempt != 0 || s.Until != nil:
			return 1
		}
		return 2
	}
	slices.SortFunc(all, func(a, b v1alpha1.SoughtPeer) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Peer, b.Peer))
	})
	return all[:min(len(all), maxSought)]
}

// clip bounds a sentence that a peer may have had a part in.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-3], "") + "…"
}
