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
	EventAsked    Event = "asked"     // a request was sent or received, for the first time or again
	EventDeclined Event = "declined"  // the request was refused
	EventExpired  Event = "expired"   // the request, or the offer in answer to it, has expired
	EventSigned   Event = "signed"    // a revision of the contract has both signatures
	EventLinkUp   Event = "link-up"   // peer and tunnel answer
	EventLinkLost Event = "link-lost" // they have not answered for so long that it is reported
	EventEnded    Event = "ended"     // either side ended the contract, or its time is over
	EventCleared  Event = "cleared"   // nothing of the direction is left; also: the request was withdrawn
)

// States lists all there are, in the order of the table.
var States = [...]State{
	api.StateNone, api.StateRequested, api.StateDeclined, api.StateExpired,
	api.StateContracted, api.StateConnected, api.StateUnreachable, api.StateEnding,
}

// table holds the transitions; "." leaves the state as it is, "-" cannot happen.
//
// A request to change a contract in force (more, or less, of something) changes nothing until it is signed, so neither does its refusal or
// expiry. An event that may be observed twice is permitted twice.
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
