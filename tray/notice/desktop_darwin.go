package notice

import (
	"context"
	"log/slog"
	"strings"

	"github.com/gen2brain/beeep"

	"kith.dev/assets/icon"
)

// Desktop is the Screen of a Mac. EXPERIMENTAL: it compiles, and never ran on a Mac. It has no buttons and takes nothing
// back: terminal-notifier and osascript, which beeep calls, have neither.
func Desktop(log *slog.Logger) (Screen, error) {
	beeep.AppName = "Kith"
	return &mac{log: log, queue: make(chan Notice, 64)}, nil
}

type mac struct {
	log   *slog.Logger
	queue chan Notice
}

// Show implements Screen. What is too much is dropped.
func (m *mac) Show(n Notice) {
	select {
	case m.queue <- n:
	default:
		m.log.Warn("too many notifications at once", "title", n.Title)
	}
}

// Retract implements Screen.
func (m *mac) Retract(string) {}

// Run implements Screen.
func (m *mac) Run(ctx context.Context, _ func(Answer)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-m.queue:
			body := lines(n.Body, n.About.elsewhere())
			if err := beeep.Notify(visible.Replace(n.Title), visible.Replace(body), icon.App()); err != nil {
				m.log.Warn("notification not shown", "title", n.Title, "err", err)
			}
		}
	}
}

// visible takes out what shows nothing: beeep would hand it to AppleScript in an escape that is none there.
var visible = strings.NewReplacer("\u2068", "", "\u2069", "", "\u200D", "")
