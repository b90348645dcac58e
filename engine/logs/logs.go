// Package logs is where the logs of all parts of the engine meet. The main program makes them once.
//
// What the parts of Kubernetes log as an error on every healthy start, because they look for something that another part is
// just about to make, is no error to the owner of a laptop, who sees it in one log with what is one. Where such a line has a
// cause that can be removed, it is removed where it arises (package component); for the rest there is a table.
package logs

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// startup is how long the table holds after the start: later on the same words mean trouble. A laptop that boots, on battery
// and with everything else, needs most of it.
const startup = 2 * time.Minute

// Logs are the engine's own log, and that of the parts of Kubernetes.
type Logs struct {
	Own, Parts *slog.Logger

	began    time.Time
	now      func() time.Time
	stopping atomic.Bool
}

// New makes logs of this level that write to w. Of the parts only warnings and errors are shown unless debugging: what else
// they say is for their developers.
func New(w io.Writer, level slog.Level) *Logs {
	l := &Logs{began: time.Now(), now: time.Now}
	at := func(level slog.Level) slog.Handler { return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}) }
	l.Own = slog.New(at(level))
	if level > slog.LevelDebug {
		level = max(level, slog.LevelWarn)
	}
	l.Parts = slog.New(handler{at(level), l, ""})
	return l
}

// Stopping tells that the parts are being stopped, all at once: that they lose each other is no error from here on. Whether the
// engine ended well its own log says.
func (l *Logs) Stopping() { l.stopping.Store(true) }

// harmless reports whether a record is an error or warning in name only.
func (l *Logs) harmless(r slog.Record, why string) bool {
	if l.stopping.Load() {
		return true
	}
	late := l.now().Sub(l.began) > startup
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			why = a.Value.String()
		}
		return true
	})
	for _, line := range expected {
		if (line.always || !late) && strings.HasPrefix(r.Message, line.message) && (strings.Contains(why, line.err) || strings.Contains(r.Message, line.err)) {
			return true
		}
	}
	return false
}

// handler passes on what the parts log, harmless lines as what they are: news for a developer.
type handler struct {
	slog.Handler
	logs *Logs
	err  string // the attribute of that name, when it came with the logger
}

// Handle is of slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.logs.harmless(r, h.err) {
		if r.Level = slog.LevelDebug; !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is of slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "err" {
			h.err = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup is of slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
