// Package presence is the answer to "is the peer there?": a state, since when, and why; and how long those who act on it wait first.
//
// Values are made by core/agree/peering (Contacts) alone, completed by core/find/directory for those that nobody looks for, and handed on
// as they are. The package must never ask a peer, keep what was, or know the time by itself.
package presence

import "time"

// State is whether a peer is there.
type State string

// The states.
const (
	Gone        State = "gone"        // it is not, or no more, known here
	NeverSeen   State = "never seen"  // no address of it is known
	Seen        State = "seen"        // one is, which was not tried yet
	Reachable   State = "reachable"   // its daemon answers
	Unreachable State = "unreachable" // it does not
	Suspended   State = "suspended"   // it said that its laptop goes to sleep, and has not shown since that it is awake
)

// Cause is why a state is not what one would expect; "" when all is well, or when nobody answers.
type Cause string

// The causes.
const (
	OtherKey     Cause = "other key"     // unreachable: somebody else answers
	OtherVersion Cause = "other version" // unreachable: it answers, and speaks another version of the protocol
	Ailing       Cause = "ailing"        // reachable, and cannot do its work, as it says itself
	Older        Cause = "older"         // reachable, but its Kith lacks a call that this one needs
	NotInStep    Cause = "not in step"   // reachable, but contracts and link are not in step with it yet
)

// Presence is what is known of a peer's being there.
type Presence struct {
	State State
	Since time.Time // of the state; of one that is reachable it is when the connection began
	Cause Cause
	Why   string // for people, when it is not reachable or there is a cause
	// Asleep: it is reachable, and its Kubernetes sleeps until somebody needs it. It does its work all the same.
	Asleep bool
	Heard  time.Time // of the last sign of life, which may be before Since, when it is not reachable any more; else zero
}

// Reachable reports whether its daemon answers.
func (p Presence) Reachable() bool { return p.State == Reachable }

// Works reports whether it is reachable and can do its work.
func (p Presence) Works() bool { return p.Reachable() && p.Cause == "" }
