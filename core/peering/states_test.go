package peering

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// The table in the comment is what people read; it must say what the code does, for every pair.
func TestTableOfTransitions(t *testing.T) {
	source, err := os.ReadFile("states.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(source), "// transitions, the one table")
	table, _, _ = strings.Cut(table, "var transitions")
	var events []Event
	seen, legal := 0, 0
	for line := range strings.Lines(table) {
		head, cells, found := strings.Cut(strings.TrimPrefix(line, "//"), "|")
		if !found {
			continue
		}
		if events == nil {
			for _, e := range strings.Fields(cells) {
				events = append(events, Event(e))
			}
			continue
		}
		state := State(strings.TrimSpace(head))
		for i, cell := range strings.Fields(cells) {
			seen++
			next, err := Next(state, events[i])
			var illegal *TransitionError
			switch cell {
			case "-":
				if !errors.As(err, &illegal) || illegal.State != state || illegal.Event != events[i] || next != state {
					t.Errorf("%s, %s: %s, %v; want it refused", state, events[i], next, err)
				}
				continue
			case ".":
				cell = string(state)
			}
			legal++
			if err != nil || next != State(cell) {
				t.Errorf("%s, %s: %s, %v; want %s", state, events[i], next, err, cell)
			}
		}
	}
	if want := len(States) * len(Events); seen != want {
		t.Errorf("the table has %d cells, want %d", seen, want)
	}
	inCode := 0
	for _, row := range transitions {
		inCode += len(row)
	}
	if legal != inCode {
		t.Errorf("the comment has %d transitions, the code %d", legal, inCode)
	}
}

func TestTransitionsOfWhatIsNoState(t *testing.T) {
	if next, err := Next("", EventAsked); err != nil || next != Requested {
		t.Errorf("%s, %v", next, err)
	}
	for _, e := range Events {
		if _, err := Next("married", e); err == nil {
			t.Errorf("married, %s: passes", e)
		}
	}
	if _, err := Next(None, "snapped"); err == nil {
		t.Error("none, snapped: passes")
	}
}

// From every state there is a way back to none, and to connected.
func TestNoStateIsATrap(t *testing.T) {
	for _, goal := range []State{None, Connected} {
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

func TestAContractStandsBehindWhatWasSigned(t *testing.T) {
	for _, s := range States {
		_, ended := transitions[s][EventEnded]
		if HasContract(s) != ended {
			t.Errorf("%s", s)
		}
	}
}
