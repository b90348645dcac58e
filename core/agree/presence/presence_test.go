package presence

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestGracesRunFromWhatHappened(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	here := Presence{State: Reachable, Since: at(0)}
	ailing := Presence{State: Reachable, Since: at(0), Cause: Ailing, Heard: at(60)}
	hangs := Presence{State: Unreachable, Since: at(71), Heard: at(60)}
	lateNode := Presence{State: Unreachable, Since: at(71)} // nothing was heard of it for so long that nobody knows when
	const none = time.Duration(-1)
	for what, c := range map[string]struct {
		grace Grace
		p     Presence
		now   time.Time
		left  time.Duration // 0: over
	}{
		"a node whose peer is there":            {Node, here, at(71), none},
		"a node whose peer hangs":               {Node, hangs, at(71), time.Second},
		"and hangs on":                          {Node, hangs, at(72), 0},
		"a node whose peer ails":                {Node, ailing, at(61), 11 * time.Second},
		"and ails on":                           {Node, ailing, at(72), 0},
		"a node that was NotReady already":      {Node, lateNode, at(71), 0},
		"a node whose peer went to sleep":       {Node, Presence{State: Suspended, Since: at(71), Heard: at(71)}, at(71), 0},
		"a home that is there":                  {Home, here, at(71), none},
		"a home that ails":                      {Home, ailing, at(90), none},
		"a home that hangs":                     {Home, hangs, at(72), 2 * time.Second},
		"and hangs for longer":                  {Home, hangs, at(74), 0},
		"a home that was not tried yet":         {Home, Presence{State: Seen, Since: at(0)}, at(1), 2 * time.Second},
		"a company that is there":               {Company, here, at(71), none},
		"a company that is away":                {Company, hangs, at(73), time.Second},
		"and stays away":                        {Company, hangs, at(74), 0},
		"the tunnel of one who came":            {Tunnel, here, at(5), 10 * time.Second},
		"and is there for a while":              {Tunnel, here, at(15), 0},
		"the tunnel of one whom nobody reaches": {Tunnel, hangs, at(90), none},
	} {
		left, runs := c.grace.Left(c.p, c.now)
		if runs != (c.left != none) || runs && max(left, 0) != c.left || c.grace.Over(c.p, c.now) != (c.left == 0) {
			t.Errorf("%s: %s left, runs %v", what, left, runs)
		}
	}
}

// docs/architecture.md shows the graces, row by row.
func TestThePageShowsTheGraces(t *testing.T) {
	page, err := os.ReadFile("../../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := ""
	for _, g := range graces {
		rows += fmt.Sprintf("| %s | %.0f s | %s |\n", g.what, g.after.Seconds(), g.from.what)
	}
	if table := "| what follows | after | counted from |\n|---|---|---|\n" + rows + "\n"; !strings.Contains(string(page), table) {
		t.Errorf("the page has other graces than these:\n%s", table)
	}
}
