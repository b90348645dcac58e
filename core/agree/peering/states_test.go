package peering

import (
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
)

var events = []Event{EventAsked, EventDeclined, EventExpired, EventSigned, EventLinkUp, EventLinkLost, EventEnded, EventCleared}

// The table names every state and event once, and nothing else; what it says is what Next does.
func TestTableOfTransitions(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	var named []Event
	_, head, _ := strings.Cut(lines[0], "|")
	for _, e := range strings.Fields(head) {
		named = append(named, Event(e))
	}
	if !slices.Equal(named, events) || len(lines) != 1+len(States) {
		t.Fatalf("events %v, %d rows", named, len(lines)-1)
	}
	for i, line := range lines[1:] {
		head, cells, _ := strings.Cut(line, "|")
		state, row := State(strings.TrimSpace(head)), strings.Fields(cells)
		if state != States[i] || len(row) != len(events) {
			t.Fatalf("row %q", line)
		}
		for j, cell := range row {
			want, ok := State(cell), cell != "-"
			if cell == "-" || cell == "." {
				want = state
			}
			if next, may := Next(state, events[j]); next != want || may != ok || !slices.Contains(States[:], next) {
				t.Errorf("%s, %s: %s, %v; want %s, %v", state, events[j], next, may, want, ok)
			}
		}
	}
}

func TestTransitionsOfWhatIsNoState(t *testing.T) {
	if next, ok := Next("", EventAsked); !ok || next != api.StateRequested {
		t.Errorf("%s, %v", next, ok)
	}
	for _, e := range events {
		if _, ok := Next("married", e); ok {
			t.Errorf("married, %s: passes", e)
		}
	}
	if _, ok := Next(api.StateNone, "snapped"); ok {
		t.Error("none, snapped: passes")
	}
}

// From every state there is a way back to none, and to connected.
func TestNoStateIsATrap(t *testing.T) {
	for _, goal := range []State{api.StateNone, api.StateConnected} {
		for _, start := range States {
			reached := map[State]bool{start: true}
			for range States {
				for s := range reached {
					for _, next := range transitions[s] {
						reached[next] = true
					}
				}
			}
			if !reached[goal] {
				t.Errorf("from %s no way leads to %s", start, goal)
			}
		}
	}
}
