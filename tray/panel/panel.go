// Package panel puts the tray's icon and menu into the desktop's panel. The tray gives it a Picture after each change and
// reads clicks. It must never know what a click means.
//
// On Linux it speaks the StatusNotifierItem and com.canonical.dbusmenu protocols itself, on godbus, because with fyne.io/systray
// an item is a slot that is relabelled: a click that was aimed at "Decline bob" hits what stands in the slot by then. Here
// every item has a number of its own that is never given to another, changes travel in one message instead of two for each
// property, and half-transparent pixels, late watchers and a missing bus are what they should be.
package panel

import (
	"kith.dev/assets/icon"
	"kith.dev/tray/menu"
)

// told is what a panel tells the tray.
type told struct {
	clicks chan menu.Action
	opened chan struct{}
	missed chan struct{}
	hosted chan bool
}

func newTold() told {
	return told{make(chan menu.Action, 16), make(chan struct{}, 1), make(chan struct{}, 1), make(chan bool, 1)}
}

// Clicks are what the user clicked. Read them always.
func (t told) Clicks() <-chan menu.Action { return t.clicks }

// Opened tells that the menu is about to be looked at.
func (t told) Opened() <-chan struct{} { return t.opened }

// Hosted tells whether there is a panel that shows the icon, each time that changes, and first when it is known.
func (t told) Hosted() <-chan bool { return t.hosted }

// Missed tells that the icon was clicked in a panel that may open no menu then.
func (t told) Missed() <-chan struct{} { return t.missed }

func (t told) open() { once(t.opened) }

// once tells of what happened, unless that was not heard yet.
func once(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Picture is what the panel shows.
type Picture struct {
	Icon      icon.State
	Attention bool // somebody waits for the owner
	Tooltip   string
	Items     []menu.Item
}
