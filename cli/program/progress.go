package program

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/trust/identity"
)

// patience is how long a call may take before a terminal shows that it does.
const patience = time.Second

// Progress shows what a call is at, on the standard error: on a terminal one line that is redrawn and taken away,
// elsewhere a plain line per step.
type Progress struct {
	p        *Program
	began    time.Time
	terminal bool
	end      chan struct{}
	ended    chan struct{}

	mu    sync.Mutex
	text  string
	code  string
	drawn bool
}

// Progress begins to show text, until steps are reported.
func (p *Program) Progress(text string) *Progress {
	g := &Progress{p: p, began: p.Now(), terminal: p.ErrTerminal, text: text, end: make(chan struct{}), ended: make(chan struct{})}
	if g.terminal {
		go g.run()
	} else {
		close(g.ended)
	}
	return g
}

// Report shows a step.
func (g *Progress) Report(step api.Progress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = screen.Clean(step.Message)
	if !g.terminal { // where a line has no width
		fmt.Fprintln(g.p.Err, strings.ReplaceAll(screen.CleanLines(step.Message), "\n", " "))
	}
	// The code is what its reader needs now, and must stay on the screen.
	if step.Code != "" && step.Code != g.code {
		g.code = step.Code
		g.erase()
		fmt.Fprintf(g.p.Err, "code %s: the other owner must see the same\n", g.p.Style(g.terminal).Bold(identity.Spaced(screen.Clean(step.Code))))
	}
}

// Above has show write to the standard output, without a line of progress in its way.
func (g *Progress) Above(show func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.erase()
	show()
}

// Stop takes the line away. It may be called once.
func (g *Progress) Stop() {
	close(g.end)
	<-g.ended
}

func (g *Progress) run() {
	defer close(g.ended)
	tick := time.NewTicker(patience / 5)
	defer tick.Stop()
	for frame := 0; ; frame++ {
		select {
		case <-g.end:
			g.mu.Lock()
			g.erase()
			g.mu.Unlock()
			return
		case <-tick.C:
		}
		if took := g.p.Now().Sub(g.began); took >= patience {
			g.mu.Lock()
			g.erase()
			fmt.Fprintf(g.p.Err, "%c %s (%s)", []rune("⠋⠙⠸⠴⠦⠇")[frame%6], g.text, took.Truncate(time.Second))
			g.drawn = true
			g.mu.Unlock()
		}
	}
}

func (g *Progress) erase() {
	if g.drawn {
		fmt.Fprint(g.p.Err, "\r\x1b[K")
		g.drawn = false
	}
}
