// Package icon holds Kith's icons: one for each state of the tray, distinct in shape as well as in colour, and the
// application's own. The tray and the packages use it.
//
// The sources are the SVG files beside it, drawn for Kith on a grid of 16 pixels; scripts/icons.sh makes the PNGs. The colours have
// a contrast of about 3:1 or more to white and to black panels alike. It must not decide which state is shown: that is the tray's.
package icon

import (
	"embed"
	"fmt"
)

// State is what an icon of the tray says.
type State string

// The states.
const (
	Alone    State = "alone"    // all is well and no peer is connected: one ring
	Peered   State = "peered"   // this cluster consumes from a peer: two nodes, linked
	Offering State = "offering" // a peer consumes from this cluster: one node, linked to two
	Tethered State = "tethered" // the company's cluster decides: an anchor
	Problem  State = "problem"  // something is wrong: a triangle
	Gone     State = "gone"     // no daemon answers: a ring struck through
)

// Sizes are the widths and heights in pixels that PNG knows.
func Sizes() []int { return []int{16, 22, 24, 32, 48} }

// templateSizes are those of a Mac's menu bar, plain and Retina.
var templateSizes = []int{18, 36}

//go:embed png/*-16.png png/*-22.png png/*-24.png png/*-32.png png/*-48.png png/*-template-*.png
var files embed.FS

// PNG is the icon of a state in colour, for Linux panels: square, of the smallest of Sizes that is not below size.
// It panics for a state that there is not.
func PNG(state State, size int) []byte {
	return read(fmt.Sprintf("%s-%d", state, atLeast(size, Sizes())))
}

// Template is the icon of a state in black with alpha, which macOS colours as its menu bar wants; of 18 or 36
// pixels. It panics for a state that there is not.
func Template(state State, size int) []byte {
	return read(fmt.Sprintf("%s-template-%d", state, atLeast(size, templateSizes)))
}

// App is the application's icon as a PNG of 48 pixels, for notifications.
func App() []byte { return read("kith-48") }

// SVG is the application's icon, for hicolor/scalable/apps/kith.svg.
//
//go:embed kith.svg
var SVG []byte

func atLeast(size int, of []int) int {
	for _, s := range of {
		if s >= size {
			return s
		}
	}
	return of[len(of)-1]
}

func read(name string) []byte {
	b, err := files.ReadFile("png/" + name + ".png")
	if err != nil {
		panic("there is no icon " + name)
	}
	return b
}
