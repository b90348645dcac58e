package peering

import (
	"strings"

	"kith.dev/core/api"
)

// State is how far one direction of a relation is.
type State = api.State

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

// States lists all there are, in the order of the table.
var States = [...]State{
	api.StateNone, api.StateRequested, api.StateDeclined, api.StateExpired,
	api.StateContracted, api.StateConnected, api.StateUnreachable, api.StateEnding,
}

// table is the one of transitions; "." stays, "-" cannot happen.
//
// A question on top of a contract in force (more, or less, of something) changes nothing until it is signed,
// so its fate does not either. What may be seen or heard twice may happen twice.
const table = `
            | asked      declined  expired  signed      link-up    link-lost    ended   cleared
none        | requested  -         -        -           -          -            -       .
requested   | .          declined  expired  contracted  -          -            -       none
declined    | requested  .         -        -           -          -            -       none
expired     | requested  -         .        -           -          -            -       none
contracted  | .          .         .        .           connected  unreachable  ending  -
connected   | .          .         .        .           .          unreachable  ending  -
unreachable | .          .         .        .           connected  .            ending  -
ending      | -          -         -        -           .          .            .       none`

// transitions is the table, read: the state that follows, by state and event.
var transitions = func() map[State]map[Event]State {
	var events []string
	all := map[State]map[Event]State{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		head, cells, _ := strings.Cut(line, "|")
		if events == nil {
			events = strings.Fields(cells)
			continue
		}
		state, row := State(strings.TrimSpace(head)), map[Event]State{}
		for i, cell := range strings.Fields(cells) {
			switch cell {
			case "-":
			case ".":
				row[Event(events[i])] = state
			default:
				row[Event(events[i])] = State(cell)
			}
		}
		all[state] = row
	}
	return all
}()

// Next is the state after the event; ok is false, and the state the old one, when that cannot happen in it.
// The empty state, as an object has it that nobody looked at yet, is api.StateNone.
func Next(state State, event Event) (next State, ok bool) {
	if state == "" {
		state = api.StateNone
	}
	if next, ok = transitions[state][event]; ok {
		return next, true
	}
	return state, false
}
