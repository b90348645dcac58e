package panel

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/ebitengine/purego/objc"

	"kith.dev/assets/icon"
	"kith.dev/tray/menu"
	"kith.dev/tray/session"
)

// EXPERIMENTAL: this is built, and never ran on a Mac.

// init keeps main's goroutine on the first thread, the only one that AppKit works on.
func init() { runtime.LockOSThread() }

// Panel is one icon in the menu bar with its menu, made with AppKit through its Objective-C runtime, without cgo. Make it with New,
// then call Run on main's goroutine; Show may be called at any time.
type Panel struct {
	told
	log *slog.Logger

	mu      sync.Mutex
	shown   Picture
	last    int                 // number of the item made last; numbers are never given to another
	actions map[int]menu.Action // of the items that are shown, by their number

	// Only the first thread uses what follows.
	status, list, target objc.ID
	items                []menu.Item // as the NSMenu has them
	drawn                []drawn
	open                 bool
	icon                 icon.State
}

// drawn is an item of an NSMenu.
type drawn struct {
	menu.Item
	number int
	object objc.ID
	list   objc.ID // of its submenu
	below  []drawn
}

// live is the Panel that AppKit calls back: there is one per process.
var live *Panel

// New offers the icon. Nobody sees it before Run.
func New(_ session.Bus, first Picture, log *slog.Logger) (*Panel, error) {
	if _, err := purego.Dlopen("/System/Library/Frameworks/AppKit.framework/AppKit", purego.RTLD_GLOBAL|purego.RTLD_NOW); err != nil {
		return nil, fmt.Errorf("load AppKit: %w", err)
	}
	p := &Panel{told: newTold(), log: log, shown: first, actions: map[int]menu.Action{}}
	p.hosted <- true
	live = p
	class, err := objc.RegisterClass("KithTarget", objc.GetClass("NSObject"), nil, nil, []objc.MethodDef{
		{Cmd: selector("clicked:"), Fn: func(_ objc.ID, _ objc.SEL, sender objc.ID) { live.clicked(objc.Send[int](sender, selector("tag"))) }},
		{Cmd: selector("draw:"), Fn: func(objc.ID, objc.SEL, objc.ID) { live.draw() }},
		{Cmd: selector("menuWillOpen:"), Fn: func(objc.ID, objc.SEL, objc.ID) { live.open = true; live.told.open() }},
		{Cmd: selector("menuDidClose:"), Fn: func(objc.ID, objc.SEL, objc.ID) { live.open = false; live.later("draw:") }}, // after the click
	})
	if err != nil {
		return nil, fmt.Errorf("register with the Objective-C runtime: %w", err)
	}
	p.target = objc.ID(class).Send(selector("new"))
	return p, nil
}

func selector(name string) objc.SEL { return objc.RegisterName(name) }
func class(name string) objc.ID     { return objc.ID(objc.GetClass(name)) }
func text(s string) objc.ID         { return class("NSString").Send(selector("stringWithUTF8String:"), s) }

// Show makes the menu bar show something else.
func (p *Panel) Show(next Picture) {
	p.mu.Lock()
	p.shown = next
	p.mu.Unlock()
	p.later("draw:")
}

// later has the first thread call a method of the target.
func (p *Panel) later(method string) {
	p.target.Send(selector("performSelectorOnMainThread:withObject:waitUntilDone:"), selector(method), objc.ID(0), false)
}

// Run shows icon and menu. When ctx ends AppKit ends the process: its loop has no other end.
func (p *Panel) Run(ctx context.Context) error {
	pool := class("NSAutoreleasePool").Send(selector("new"))
	app := class("NSApplication").Send(selector("sharedApplication"))
	app.Send(selector("setActivationPolicy:"), 1) // an accessory: no icon in the Dock
	p.status = class("NSStatusBar").Send(selector("systemStatusBar")).Send(selector("statusItemWithLength:"), -1.0).Send(selector("retain"))
	p.list = newMenu()
	p.list.Send(selector("setDelegate:"), p.target)
	p.status.Send(selector("setMenu:"), p.list)
	p.draw()
	defer context.AfterFunc(ctx, func() {
		app.Send(selector("performSelectorOnMainThread:withObject:waitUntilDone:"), selector("terminate:"), objc.ID(0), false)
	})()
	pool.Send(selector("drain"))
	app.Send(selector("run"))
	return nil
}

func (p *Panel) clicked(number int) {
	p.mu.Lock()
	action, there := p.actions[number]
	p.mu.Unlock()
	if there {
		go func() { p.clicks <- action }()
	}
}

func newMenu() objc.ID {
	list := class("NSMenu").Send(selector("alloc")).Send(selector("init"))
	list.Send(selector("setAutoenablesItems:"), false)
	return list
}

// draw brings the NSMenu to what is to be shown, as far as the one that is open may change.
func (p *Panel) draw() {
	p.mu.Lock()
	next := p.shown
	p.mu.Unlock()
	if p.status == 0 {
		return // before Run
	}
	if next.Icon != p.icon {
		p.icon = next.Icon
		p.setIcon(icon.Template(next.Icon, 36))
	}
	p.status.Send(selector("button")).Send(selector("setToolTip:"), text(next.Tooltip))
	if p.open {
		next.Items = menu.Hold(p.items, next.Items)
	}
	p.items = next.Items
	p.drawn = p.fill(p.list, p.drawn, p.items)
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.actions)
	p.number(p.drawn)
}

// fill brings one NSMenu to the items that are to be in it; those that stay are changed in place.
func (p *Panel) fill(list objc.ID, was []drawn, items []menu.Item) []drawn {
	same := slices.EqualFunc(was, items, func(d drawn, i menu.Item) bool {
		return d.ID == i.ID && d.Separator() == i.Separator() && d.Action == i.Action && (d.list != 0) == (len(i.Items) > 0)
	})
	if !same {
		list.Send(selector("removeAllItems"))
		was = nil
		for _, i := range items {
			was = append(was, p.add(list, i))
		}
	}
	for at, i := range items {
		d := &was[at]
		d.Item = i
		if i.Separator() {
			continue
		}
		d.object.Send(selector("setTitle:"), text(i.Label))
		d.object.Send(selector("setEnabled:"), !i.Disabled)
		d.object.Send(selector("setState:"), map[bool]int{true: 1}[i.On])
		if d.list != 0 {
			d.below = p.fill(d.list, d.below, i.Items)
		}
	}
	return was
}

// number notes what the items that are shown do.
func (p *Panel) number(all []drawn) {
	for _, d := range all {
		p.actions[d.number] = d.Action
		p.number(d.below)
	}
}

// add makes an item at the end of an NSMenu, which owns it.
func (p *Panel) add(list objc.ID, i menu.Item) drawn {
	if i.Separator() {
		o := class("NSMenuItem").Send(selector("separatorItem"))
		list.Send(selector("addItem:"), o)
		return drawn{Item: i, object: o}
	}
	p.last++
	o := class("NSMenuItem").Send(selector("alloc")).Send(selector("initWithTitle:action:keyEquivalent:"), text(i.Label), selector("clicked:"), text(""))
	o.Send(selector("setTarget:"), p.target)
	o.Send(selector("setTag:"), p.last)
	d := drawn{Item: i, number: p.last, object: o}
	if len(i.Items) > 0 {
		d.list = newMenu()
		o.Send(selector("setSubmenu:"), d.list)
		d.list.Send(selector("release"))
	}
	list.Send(selector("addItem:"), o)
	o.Send(selector("release"))
	return d
}

// size is an NSSize.
type size struct{ width, height float64 }

// setIcon shows a template image: black with alpha, which macOS colours.
func (p *Panel) setIcon(png []byte) {
	data := class("NSData").Send(selector("dataWithBytes:length:"), unsafe.Pointer(&png[0]), uint(len(png)))
	image := class("NSImage").Send(selector("alloc")).Send(selector("initWithData:"), data)
	image.Send(selector("setSize:"), size{18, 18})
	image.Send(selector("setTemplate:"), true)
	p.status.Send(selector("button")).Send(selector("setImage:"), image)
	image.Send(selector("release"))
}
