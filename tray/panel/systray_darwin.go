//go:build darwin && cgo

package panel

import (
	"context"
	"log/slog"
	"runtime"
	"sync"

	"fyne.io/systray"

	"kith.dev/assets/icon"
	"kith.dev/tray/menu"
)

// EXPERIMENTAL: this is written for fyne.io/systray, and never ran on a Mac.

// init keeps main's goroutine on the first thread, the only one that AppKit works on.
func init() { runtime.LockOSThread() }

// Panel is one icon in the menu bar with its menu. Make it with New, then call Run on main's goroutine; Show may be called at
// any time.
type Panel struct {
	log    *slog.Logger
	clicks chan menu.Action
	opened chan struct{}
	hosted chan bool
	fresh  chan struct{} // there is something else to show

	mu    sync.Mutex
	shown Picture
}

// New offers the icon. Nobody sees it before Run.
func New(first Picture, log *slog.Logger) (*Panel, error) {
	p := &Panel{log: log, clicks: make(chan menu.Action, 16), opened: make(chan struct{}), hosted: make(chan bool, 1), fresh: make(chan struct{}, 1), shown: first}
	p.hosted <- true
	return p, nil
}

// Clicks are what the user clicked. Read them always.
func (p *Panel) Clicks() <-chan menu.Action { return p.clicks }

// Opened never tells anything: the library does not say when the menu is opened.
func (p *Panel) Opened() <-chan struct{} { return p.opened }

// Hosted tells that there is a menu bar, once.
func (p *Panel) Hosted() <-chan bool { return p.hosted }

// Show makes the menu bar show something else.
func (p *Panel) Show(next Picture) {
	p.mu.Lock()
	p.shown = next
	p.mu.Unlock()
	select {
	case p.fresh <- struct{}{}:
	default:
	}
}

// Run shows icon and menu until ctx ends.
func (p *Panel) Run(ctx context.Context) error {
	done := make(chan struct{})
	systray.Run(func() {
		go func() {
			defer close(done)
			p.follow(ctx)
			systray.Quit()
		}()
	}, nil)
	<-done
	return nil
}

// follow draws until ctx ends.
func (p *Panel) follow(ctx context.Context) {
	var was Picture
	var items []*systray.MenuItem
	gone := make(chan struct{}) // closed when the items are
	defer func() { close(gone) }()
	for {
		p.mu.Lock()
		next := p.shown
		p.mu.Unlock()
		if next.Icon != was.Icon {
			image := icon.Template(next.Icon, 36)
			systray.SetTemplateIcon(image, image)
		}
		systray.SetTooltip(next.Tooltip)
		if len(items) == 0 || !sameItems(was.Items, next.Items) {
			close(gone) // clicks of items that are gone are nobody's
			gone = make(chan struct{})
			items = p.fill(gone, next.Items)
		}
		for i, item := range next.Items {
			if items[i] != nil {
				change(items[i], item)
			}
		}
		was = next
		select {
		case <-p.fresh:
		case <-ctx.Done():
			return
		}
	}
}

func sameItems(a, b []menu.Item) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Action != b[i].Action || a[i].Separator() != b[i].Separator() || a[i].Mark != b[i].Mark {
			return false
		}
	}
	return true
}

// fill makes the menu anew: the library cannot take separators out.
func (p *Panel) fill(gone <-chan struct{}, want []menu.Item) []*systray.MenuItem {
	systray.ResetMenu()
	items := make([]*systray.MenuItem, len(want))
	for i, item := range want {
		switch {
		case item.Separator():
			systray.AddSeparator()
			continue
		case item.Mark == menu.NoMark:
			items[i] = systray.AddMenuItem(item.Label, "")
		default:
			items[i] = systray.AddMenuItemCheckbox(item.Label, "", item.On)
		}
		go p.listen(gone, items[i], item.Action)
	}
	return items
}

func (p *Panel) listen(gone <-chan struct{}, item *systray.MenuItem, action menu.Action) {
	for {
		select {
		case <-gone:
			return
		case <-item.ClickedCh:
			select {
			case p.clicks <- action:
			case <-gone:
				return
			}
		}
	}
}

func change(item *systray.MenuItem, to menu.Item) {
	if item.String() != to.Label {
		item.SetTitle(to.Label)
	}
	if item.Disabled() != to.Disabled {
		if to.Disabled {
			item.Disable()
		} else {
			item.Enable()
		}
	}
	if item.Checked() != to.On {
		if to.On {
			item.Check()
		} else {
			item.Uncheck()
		}
	}
}
