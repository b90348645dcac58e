package peering

import (
	"fmt"

	"kith.dev/core/api"
)

// State is how far one direction of a relation is.
type State = api.State

// The states.
const (
	None        = api.StateNone        // nothing asked
	Requested   = api.StateRequested   // asked, not answered; or accepted, not signed yet
	Declined    = api.StateDeclined    // the provider said no
	Expired     = api.StateExpired     // nobody answered, or nobody signed, in time
	Contracted  = api.StateContracted  // signed by both, the link is not up yet
	Connected   = api.StateConnected   // usable
	Unreachable = api.StateUnreachable // contract in force, link lost
	Ending      = api.StateEnding      // pods come home, the tenant is cleared away
)

// Event is what happens to a direction.
type Event string

// The events. Both sides use the same: at the consumer Asked means "we asked", at the provider "they asked".
const (
	EventAsked    Event = "asked"     // a question went out or came in; asking again is the same
	EventDeclined Event = "declined"  // the question was answered with no
	EventExpired  Event = "expired"   // the question, or the offer that answered it, lapsed
	EventSigned   Event = "signed"    // a revision of the contract has both signatures
	EventLinkUp   Event = "link-up"   // peer and tunnel answer
	EventLinkLost Event = "link-lost" // they do not, long enough to say so
	EventEnded    Event = "ended"     // either side ended the contract, or its time is over
	EventCleared  Event = "cleared"   // nothing of the direction is left; also: the question was taken back
)

// States and Events list all there are, in the order of the table.
var (
	States = [...]State{None, Requested, Declined, Expired, Contracted, Connected, Unreachable, Ending}
	Events = [...]Event{EventAsked, EventDeclined, EventExpired, EventSigned, EventLinkUp, EventLinkLost, EventEnded, EventCleared}
)

// transitions, the one table; "." stays, "-" cannot happen:
//
//	            | asked      declined  expired  signed      link-up    link-lost    ended   cleared
//	none        | requested  -         -        -           -          -            -       .
//	requested   | .          declined  expired  contracted  -          -            -       none
//	declined    | requested  .         -        -           -          -            -       none
//	expired     | requested  -         .        -           -          -            -       none
//	contracted  | .          .         .        .           connected  unreachable  ending  -
//	connected   | .          .         .        .           .          unreachable  ending  -
//	unreachable | .          .         .        .           connected  .            ending  -
//	ending      | -          -         -        -           .          .            .       none
//
// A question on top of a contract in force (more, or less, of something) changes nothing until it is signed,
// so its fate does not either. What may be seen or heard twice may happen twice.
var transitions = map[State]map[Event]State{
	None: {
		EventAsked:   Requested,
		EventCleared: None,
	},
	Requested: {
		EventAsked:    Requested,
		EventDeclined: Declined,
		EventExpired:  Expired,
		EventSigned:   Contracted,
		EventCleared:  None,
	},
	Declined: {
		EventAsked:    Requested,
		EventDeclined: Declined,
		EventCleared:  None,
	},
	Expired: {
		EventAsked:   Requested,
		EventExpired: Expired,
		EventCleared: None,
	},
	Contracted: {
		EventAsked:    Contracted,
		EventDeclined: Contracted,
		EventExpired:  Contracted,
		EventSigned:   Contracted,
		EventLinkUp:   Connected,
		EventLinkLost: Unreachable,
		EventEnded:    Ending,
	},
	Connected: {
		EventAsked:    Connected,
		EventDeclined: Connected,
		EventExpired:  Connected,
		EventSigned:   Connected,
		EventLinkUp:   Connected,
		EventLinkLost: Unreachable,
		EventEnded:    Ending,
	},
	Unreachable: {
		EventAsked:    Unreachable,
		EventDeclined: Unreachable,
		EventExpired:  Unreachable,
		EventSigned:   Unreachable,
		EventLinkUp:   Connected,
		EventLinkLost: Unreachable,
		EventEnded:    Ending,
	},
	Ending: {
		EventLinkUp:   Ending,
		EventLinkLost: Ending,
		EventEnded:    Ending,
		EventCleared:  None,
	},
}

// TransitionError says that an event cannot happen in a state.
type TransitionError struct {
	State State
	Event Event
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("peering: %q cannot happen in state %q", e.Event, e.State)
}

// Next is the state after the event; the error is a *TransitionError, and the state then is the old one.
// The empty state, as an object has it that nobody looked at yet, is None.
func Next(state State, event Event) (State, error) {
	if state == "" {
		state = None
	}
	if next, ok := transitions[state][event]; ok {
		return next, nil
	}
	return state, &TransitionError{State: state, Event: event}
}

// HasContract says whether a signed contract stands behind the state.
func HasContract(state State) bool {
	switch state {
	case Contracted, Connected, Unreachable, Ending:
		return true
	}
	return false
}
