// Package tray is kith-tray: it follows the daemon's snapshot, makes the menu and the notifications of it, and sends clicks
// to the daemon. cmd/kith-tray starts it.
//
// One loop owns all state (menu.State) and shows it anew after each change; everything that takes time runs beside it and
// hands its outcome to the loop. The tray decides nothing: what a click asks for, the daemon may refuse, and what is shown is what
// the daemon says. It must never link Kubernetes code, poll a daemon that answers, or show a peer's words that package menu or
// notice did not clean.
package tray

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/tray/menu"
	"kith.dev/tray/notice"
	"kith.dev/tray/panel"
	"kith.dev/tray/question"
)

const (
	// forgets is how long what went wrong is shown.
	forgets = time.Minute
	// hostPatience is how long a desktop may take to start its panel.
	hostPatience = 20 * time.Second
	// firstAgain and lastAgain bound the pause before the daemon is tried again. One that stays away for longer than restarting
	// takes was switched off, and is tried every offAgain.
	firstAgain, lastAgain, offAgain = 100 * time.Millisecond, time.Second, 15 * time.Second
	restarting                      = 2 * time.Minute
	// refreshTime bounds the call that is made when the menu opens.
	refreshTime = 2 * time.Second
	// menuTime is how long a panel may take to open the menu once it said that the icon was clicked.
	menuTime = time.Second
)

// Panel is where icon and menu are shown.
type Panel interface {
	// Run shows them until ctx ends or the desktop session does. On macOS it must be the process's first goroutine.
	Run(ctx context.Context) error
	Show(picture panel.Picture)
	Clicks() <-chan menu.Action
	Opened() <-chan struct{} // the menu is about to be looked at
	Missed() <-chan struct{} // the icon was clicked, and the panel may have opened no menu
	Hosted() <-chan bool     // whether the desktop shows icons at all
}

// Desktop are the programs around.
type Desktop interface {
	Copy(ctx context.Context, name string, text []byte) (file string, err error)
	Terminal(kubeconfig []byte) error
	View(name string, text []byte) (path string, err error)
	// Save writes a file where the user looks for what was downloaded, for the user alone.
	Save(name string, text []byte) (path string, err error)
	// Ask shows a question in a window and waits for the person's answer; when ctx ends the window closes.
	Ask(ctx context.Context, q question.Question) (question.Answer, error)
}

// Config is what a Tray needs.
type Config struct {
	Daemon       *client.Client
	Socket       string // of the daemon, for messages and for kith
	Panel        Panel
	Notifier     *notice.Notifier
	Settings     notice.Settings // when the tray runs, only its loop uses them
	SettingsPath string
	Desktop      Desktop
	Activated    <-chan struct{} // the tray was started a second time
	Getenv       func(string) string
	Version      string // of the tray
	Log          *slog.Logger
}

// Tray is the tray. Make it with New, then Run it once.
type Tray struct {
	Config
	changes chan func() // what the loop is to do
	running sync.WaitGroup

	// Only the loop uses what follows.
	state      menu.State
	heard      int // snapshots that were followed, and breaks
	refreshing bool
	hosted     bool
	window     *window         // the one that is open
	said       map[string]bool // what is said once
}

// New makes a Tray; nothing happens before Run.
func New(c Config) *Tray {
	shallow := strings.Contains(c.Getenv("XDG_CURRENT_DESKTOP"), "GNOME")
	return &Tray{Config: c, changes: make(chan func()), state: menu.State{Doing: map[string]string{}, Shallow: shallow}, said: map[string]bool{}}
}

// First is what a panel shows before anything is known.
func First() panel.Picture { return picture(menu.State{}) }

func picture(s menu.State) panel.Picture {
	return panel.Picture{Icon: menu.Icon(s), Attention: menu.Attention(s), Tooltip: menu.Tooltip(s), Items: menu.Of(s)}
}

// Run runs the tray until ctx ends, the user quits, which is no error, or the desktop session ends.
func (t *Tray) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer t.running.Wait()
	defer cancel()
	t.running.Go(func() { t.follow(ctx) })
	t.running.Go(func() {
		if err := t.Notifier.Run(ctx); err != nil && ctx.Err() == nil {
			t.Log.Warn("no notifications any more", "err", err)
		}
	})
	t.running.Go(func() {
		defer cancel()
		t.loop(ctx)
	})
	err := t.Panel.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// loop does one thing after the other until the user quits.
func (t *Tray) loop(ctx context.Context) {
	t.show()
	answers, host := t.Notifier.Answers(), time.After(hostPatience)
	var missed <-chan time.Time
	forget := time.NewTimer(forgets)
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-t.changes:
			change()
		case a := <-t.Panel.Clicks():
			if a.Verb == menu.Quit {
				return
			}
			forget.Reset(forgets)
			t.clicked(ctx, a)
		case a, ok := <-answers:
			if !ok {
				answers = nil
				break
			}
			t.answered(ctx, a)
		case <-t.Panel.Opened():
			missed = nil
			t.refresh(ctx)
		case <-t.Panel.Missed():
			missed = time.After(menuTime)
		case <-missed:
			missed = nil
			t.say("menu", menu.Head(t.state), "The menu opens with one click on the icon, in some panels with the other mouse button.")
		case t.hosted = <-t.Panel.Hosted():
		case <-host:
			t.sayUnhosted()
		case <-t.Activated:
			t.sayHere()
		case <-forget.C:
			t.state.Note = ""
		}
		t.show()
	}
}

func (t *Tray) show() {
	t.state.Kinds = kindsOf(t.Settings)
	t.Panel.Show(picture(t.state))
}

func kindsOf(s notice.Settings) (list []menu.Kind) {
	for _, k := range notice.Kinds {
		list = append(list, menu.Kind{Name: string(k.Kind), Label: k.Label, On: s.Shows(k.Kind)})
	}
	return list
}

// change has the loop do something; false: it has ended.
func (t *Tray) change(ctx context.Context, f func()) bool {
	select {
	case t.changes <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow keeps the state what the daemon says it is. Between two daemons it tries again, soon and then ever more seldom.
func (t *Tray) follow(ctx context.Context) {
	again, lost := firstAgain, time.Now()
	for {
		for s, err := range t.Daemon.Snapshots(ctx) {
			if !t.change(ctx, func() { t.hear(s, err) }) {
				return
			}
			if err == nil {
				again, lost = firstAgain, time.Time{}
			}
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		select {
		case <-time.After(again):
			again = min(2*again, lastAgain)
			if time.Since(lost) > restarting {
				again = offAgain
			}
		case <-ctx.Done():
			return
		}
	}
}

// hear takes what the daemon says, or that it does not.
func (t *Tray) hear(s api.Snapshot, err error) {
	defer t.closeWindow()
	t.heard++
	t.Notifier.Observe(s, err)
	if err == nil {
		if t.state.Link != menu.Up {
			t.Log.Info("the daemon answers", "version", s.Status.Version)
		}
		t.state.NoTether = t.state.NoTether && s.Status.Version == t.state.Snapshot.Status.Version
		t.state.Link, t.state.Why, t.state.Snapshot = menu.Up, nil, s
		t.sayReady()
		return
	}
	link, why := linkOf(err)
	if t.state.Link != link {
		t.Log.Warn("no word from the daemon", "err", err)
	}
	t.state.Link, t.state.Why, t.state.Snapshot = link, why, api.Snapshot{}
	if link == menu.Forbidden {
		t.sayForbidden(why)
	}
}

func linkOf(err error) (menu.Link, *api.Error) {
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.CodeInternal, Message: err.Error()}
	}
	switch e.Code {
	case api.CodeUnavailable:
		return menu.Gone, e
	case api.CodeForbidden:
		return menu.Forbidden, e
	}
	return menu.Failed, e
}

// refresh gets the newest snapshot for a menu that is being opened: how long ago something was is not followed.
func (t *Tray) refresh(ctx context.Context) {
	if t.refreshing || t.state.Link != menu.Up {
		return
	}
	t.refreshing = true
	before := t.heard
	t.running.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, refreshTime)
		defer cancel()
		s, err := t.Daemon.Snapshot(bounded)
		t.change(ctx, func() {
			t.refreshing = false
			if err == nil && t.heard == before { // else what was followed is newer
				t.state.Snapshot = s
			}
		})
	})
}
