//go:build lab

package panel

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/test/apitest"
)

// installed is a tree with Kith as a package has it: that of $KITH_TREE, where a package was unpacked, or one made of bin/.
func installed(t *testing.T) string {
	t.Helper()
	if tree := os.Getenv("KITH_TREE"); tree != "" {
		return tree
	}
	tree := t.TempDir()
	install := exec.Command("../../../scripts/install.sh", "install")
	install.Env = append(os.Environ(), "DESTDIR="+tree, "PREFIX=/usr", "LIBEXECDIR=/usr/lib/kith")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	return tree
}

// login starts what a session starts of an installed tree: the tray, by its autostart file.
func (s *screen) login(tree, socket string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, "etc/xdg/autostart/kith-tray.desktop"))
	if err != nil {
		s.t.Fatal(err)
	}
	entry := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		entry[key] = value
	}
	for _, key := range []string{"TryExec", "Exec"} {
		if _, err := os.Stat(filepath.Join(tree, "usr/bin", entry[key])); err != nil {
			s.t.Fatalf("%s: %v", key, err)
		}
	}
	before := s.env
	s.env = append(slices.Clone(s.env), "KITH_SOCKET="+socket, "PATH="+filepath.Join(tree, "usr/bin")+":"+os.Getenv("PATH"))
	s.run(filepath.Join(tree, "usr/bin", entry["Exec"]))
	s.env = before
}

// notified waits for a notification server.
func (s *screen) notified() {
	s.t.Helper()
	s.until("the notification server", func() string {
		conn, err := dbus.Connect(s.bus)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		var there bool
		if err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, "org.freedesktop.Notifications").Store(&there); err != nil || !there {
			return fmt.Sprint("nobody has its name ", err)
		}
		return ""
	})
}

// edge is how far a panel reaches from the top or the bottom of the screen.
const edge = 48

// settles is how long an icon stays where it is in a panel that has arranged all its parts.
const settles = time.Second

// find waits for the icon of a state in a panel, wherever that is, to stay there: it moves while other parts of the panel come.
func (s *screen) find(want icon.State) (at image.Point) {
	s.t.Helper()
	var colour color.NRGBA
	for c, state := range colours() {
		if state == want {
			colour = c
		}
	}
	var last image.Point
	var since time.Time
	s.until(fmt.Sprintf("an icon that says %s", want), func() string {
		img := s.look()
		blocks := map[image.Point]int{} // letters and pictures have such colours, too: the icon is where most of them are together
		var found []image.Point
		for y := range img.Bounds().Dy() {
			if y >= edge && y < img.Bounds().Dy()-edge {
				continue
			}
			for x := range img.Bounds().Dx() {
				if like(color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA), colour, s.dims) {
					found = append(found, image.Pt(x, y))
					for _, corner := range []image.Point{{0, 0}, {1, 0}, {0, 1}, {1, 1}} { // blocks of 32 pixels begin every 16
						blocks[image.Pt(x/16, y/16).Sub(corner)]++
					}
				}
			}
		}
		var best image.Point
		for block, n := range blocks {
			if n > blocks[best] {
				best = block
			}
		}
		if blocks[best] < 12 {
			return fmt.Sprintf("%d pixels of its colour", len(found))
		}
		var all image.Rectangle
		for _, p := range found {
			if at := best.Mul(16); p.In(image.Rectangle{at, at.Add(image.Pt(32, 32))}) {
				all = all.Union(image.Rectangle{p, p.Add(image.Pt(1, 1))})
			}
		}
		if at = all.Min.Add(all.Max).Div(2); at != last {
			last, since = at, time.Now()
		}
		if time.Since(since) < settles {
			return fmt.Sprint("it came to ", at, " a moment ago")
		}
		return ""
	})
	return at
}

// like reports whether a colour is another but for what a panel dims icons by.
func like(a, b color.NRGBA, dims uint8) bool {
	near := func(x, y uint8) bool { return max(x, y)-min(x, y) <= dims }
	return near(a.R, b.R) && near(a.G, b.G) && near(a.B, b.B)
}

// still is what the screen shows once nothing moves any more.
func (s *screen) still() image.Image {
	s.t.Helper()
	last := s.look()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		time.Sleep(60 * time.Millisecond)
		now := s.look()
		if differ(last, now).Empty() {
			return now
		}
		last = now
	}
	return last
}

// differ is where two pictures do.
func differ(a, b image.Image) (all image.Rectangle) {
	p, q := a.(*image.RGBA), b.(*image.RGBA) // what package png makes of a picture without alpha
	r := p.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		from, to := p.PixOffset(r.Min.X, y), p.PixOffset(r.Max.X-1, y)+4
		one, other := p.Pix[from:to], q.Pix[from:to]
		if bytes.Equal(one, other) {
			continue
		}
		left, right := 0, len(one)
		for ; one[left] == other[left]; left++ {
		}
		for ; one[right-1] == other[right-1]; right-- {
		}
		all = all.Union(image.Rect(r.Min.X+left/4, y, r.Min.X+(right+3)/4, y+1))
	}
	return all
}

func within(img image.Image, r image.Rectangle) image.Image { return img.(*image.RGBA).SubImage(r) }

func (s *screen) point(at image.Point) {
	s.t.Helper()
	s.tool("xdotool", "mousemove", strconv.Itoa(at.X), strconv.Itoa(at.Y))
}

// press clicks somewhere with a button, and gives what is new on the screen then.
func (s *screen) pressAt(at image.Point, button string, enough int) (fresh image.Rectangle) {
	s.t.Helper()
	const clicks = 4
	for range clicks { // a panel that was just started loses one now and then
		before := s.still()
		s.point(at)
		s.tool("xdotool", "click", button)
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			if fresh = differ(before, s.still()); fresh.Dy() >= enough {
				return fresh
			}
		}
	}
	s.picture("failed")
	s.t.Fatalf("%s: %d clicks with button %s at %v show nothing: %v", s.name, clicks, button, at, fresh)
	return fresh
}

// row gives the middle of the nth line that a mouse can choose in an open menu: it moves over the menu and sees what lights up.
func (s *screen) row(menu image.Rectangle, n int) image.Point {
	s.t.Helper()
	dark := s.still()
	seen, nth := image.Rectangle{}, 0
	for y := menu.Min.Y + 2; y < menu.Max.Y; y += 9 {
		if y < seen.Max.Y {
			continue
		}
		at := image.Pt(menu.Min.X+menu.Dx()/2, y)
		s.point(at)
		band := image.Rect(menu.Min.X, y-40, menu.Max.X, y+40) // clocks tick elsewhere
		// A line that is lit says so; one that cannot be chosen is one that several looks found dark, however slow looks and panels are.
		for begin, looks := time.Now(), 0; looks < 4 || time.Since(begin) < 400*time.Millisecond; looks++ {
			lit := differ(within(dark, band), within(s.look(), band))
			if lit.Dy() < 12 || lit.Dy() > 60 || lit.Dx() <= menu.Dx()/3 || !at.In(lit) {
				continue
			}
			seen = lit
			if nth++; nth == n {
				return image.Pt(at.X, lit.Min.Y+lit.Dy()/2)
			}
			break
		}
	}
	s.picture("failed")
	s.t.Fatalf("%s: no such line lights up in the menu at %v", s.name, menu)
	return image.Point{}
}

// part keeps a part of what the screen shows in build/screenshots.
func (s *screen) part(what string, r image.Rectangle) {
	s.t.Helper()
	img := s.still()
	r = r.Inset(-12).Intersect(img.Bounds())
	dir := filepath.Join("..", "..", "..", "build", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "panel-"+s.name+"-"+what+".png"))
	if err == nil {
		err = cmp.Or(png.Encode(f, within(img, r)), f.Close())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestPanels has the tray of an installed tree started by its autostart file in one desktop after the other, with a person's mouse: the icon
// appears, the menu opens by a click and is whole, with many peers and few, nothing in it moves while it is open, the items work, and a request
// is accepted by the button of a notification. Its pictures are those of docs/tray.md.
func TestPanels(t *testing.T) {
	tree := installed(t)
	for _, d := range desktops {
		t.Run(d.name, func(t *testing.T) {
			for _, program := range d.needs {
				if _, err := exec.LookPath(program); err != nil && d.heavy {
					t.Skipf("%s is not installed", program)
				} else if err != nil {
					t.Fatalf("%s is not installed: scripts/deps.sh does it", program)
				}
			}
			d.tell(t, tree)
		})
	}
}

// hand is a person's at an icon.
type hand struct {
	*screen
	desktop
	b      *apitest.Backend
	at     image.Point // the icon
	button string      // that opens the menu
}

// open opens the menu, and leaves the mouse aside of it.
func (h hand) open() (menu image.Rectangle) {
	h.t.Helper()
	h.point(aside)
	before := h.still()
	screen := before.Bounds() // without the icon, which lights up in some panels
	if half := 16; h.at.Y < screen.Dy()/2 {
		screen.Min.Y = h.at.Y + half
	} else {
		screen.Max.Y = h.at.Y - half
	}
	now := func() image.Rectangle { return differ(within(before, screen), within(h.still(), screen)) }
	for range 5 {
		h.pressAt(h.at, h.button, 150)
		h.point(aside)
		for last := (image.Rectangle{}); menu != last || menu.Empty(); { // what changed while it was closed comes a moment later, where the panel has to ask
			last = menu
			time.Sleep(300 * time.Millisecond)
			menu = now()
		}
		time.Sleep(time.Second)
		if menu = now(); menu.Dy() >= 150 { // Plasma takes it for a second click, now and then, and closes it
			return menu
		}
	}
	h.picture("failed")
	h.t.Fatalf("%s: the menu does not stay open", h.screen.name)
	return menu
}

// shut closes the menu, and what is open of its submenus.
func (h hand) shut(menu image.Rectangle) {
	h.t.Helper()
	h.until("a closed menu", func() string {
		h.tool("xdotool", "key", "Escape")
		before := h.still()
		h.point(image.Pt(menu.Min.X+menu.Dx()/2, menu.Max.Y-12)) // the last line lights up where it is open
		time.Sleep(100 * time.Millisecond)
		lit := differ(within(before, menu), within(h.still(), menu))
		h.point(aside)
		if lit.Dy() >= 12 {
			return fmt.Sprint("it lights up at ", lit)
		}
		return ""
	})
}

// aside is where neither panels nor menus are.
var aside = image.Pt(5, 450)

// unfold opens the submenu of a line in an open menu and gives where it is. Before is the screen before the mouse was in the menu: where it
// is slow, the mouse that looks for the line has the submenu open by then.
func (h hand) unfold(before image.Image, menu image.Rectangle, line image.Point) (below image.Rectangle) {
	h.t.Helper()
	h.point(line)
	if h.inline {
		h.tool("xdotool", "click", "1")
	}
	bounds := before.Bounds()
	h.until("a submenu", func() string {
		if !h.inline { // a mouse comes from somewhere: Qt opens nothing for one that only appears
			h.point(line.Sub(image.Pt(0, 24)))
			h.point(line)
			time.Sleep(700 * time.Millisecond) // what the line above opens is gone by then
		}
		now := h.still()
		places := []image.Rectangle{ // below the line, or beside the menu
			image.Rect(menu.Min.X, line.Y+16, menu.Max.X, bounds.Max.Y-edge),
		}
		if !h.inline {
			places = []image.Rectangle{
				image.Rect(bounds.Min.X, edge, menu.Min.X, bounds.Max.Y-edge), image.Rect(menu.Max.X, edge, bounds.Max.X, bounds.Max.Y-edge),
			}
		}
		for _, place := range places {
			if place.Empty() {
				continue
			}
			if below = differ(within(before, place), within(now, place)); below.Dy() >= 40 && below.Dx() >= 60 {
				return ""
			}
		}
		return fmt.Sprint("what is new is at ", below)
	})
	// On a busy machine it may be that of the line above, which goes when this one's comes.
	was := h.still()
	h.until("the submenu stays", func() string {
		time.Sleep(700 * time.Millisecond)
		now := h.still()
		moved := differ(was, now)
		if was = now; !moved.Empty() {
			return fmt.Sprint("another one came at ", moved)
		}
		return ""
	})
	return below
}

// called waits until the daemon was called so.
func (h hand) called(call string) {
	h.t.Helper()
	h.until(call, func() string {
		calls := strings.Join(h.b.Called(), "; ")
		if !strings.Contains(calls, call) {
			return calls
		}
		return ""
	})
}

func (d desktop) tell(t *testing.T, tree string) {
	b, socket := daemon(t)
	s := d.raise(t)
	s.login(tree, socket)
	s.line("bob · nearby", nil)
	h := hand{screen: s, desktop: d, b: b, at: s.find(icon.Alone), button: "1"}
	if !d.left {
		h.button = "3"
	}
	menu := h.open()
	s.part("menu", menu)
	bob := s.row(menu, 2) // after the line of the cluster
	h.shut(menu)
	stories := []func(){func() { h.staysWhereItIs(bob) }, h.hasRoom, h.isAsked}
	switch {
	case d.closes:
		stories = []func(){h.isAsked}
	case d.hasty:
		stories = []func(){h.isAsked, stories[0], h.hasRoom}
	}
	for _, tell := range stories {
		tell()
	}
}

// staysWhereItIs has items come and go while the menu is open, bob's line of which is at a place.
func (h hand) staysWhereItIs(bob image.Point) {
	h.t.Helper()
	dora := api.Peer{Name: "dora", ID: "D", Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone}
	frank := api.Peer{Name: "frank", ID: "F", Reachable: true, Outgoing: api.StateNone, Incoming: api.StateRequested, Code: "117903"} // is the first line
	var all []api.Peer
	h.b.Set(func() { all = h.b.Known })
	name := "alice"
	// now has the daemon say something else, and waits until the open menu shows that it was heard: the name of this laptop in its first line.
	now := func(menu image.Rectangle, before image.Image, peers ...api.Peer) (after image.Image) {
		name += "!"
		h.b.Set(func() { h.b.Known, h.b.State.Name = peers, name })
		h.until("the name in the menu", func() string {
			after = h.still()
			if differ(within(before, head(menu)), within(after, head(menu))).Empty() {
				return "it is as it was"
			}
			return ""
		})
		return after
	}
	menu := h.open()
	before := h.still()
	after := now(menu, before, append(slices.Clone(all), dora, frank)...)
	rest := image.Rect(menu.Min.X, head(menu).Max.Y, menu.Max.X, menu.Max.Y)
	if moved := differ(within(before, rest), within(after, rest)); !moved.Empty() {
		h.picture("moved")
		h.t.Errorf("%s: peers came, and in the open menu something else is at %v", h.screen.name, moved)
	}
	h.part("came", menu)
	h.point(aside)
	deed := h.row(h.unfold(h.still(), menu, bob), 1)
	h.point(deed)
	h.tool("xdotool", "click", "1")
	h.called("Ask B")

	menu = h.open()
	if menu.Dy() < rest.Dy()+40 {
		h.t.Errorf("%s: with two more peers the menu is %v", h.screen.name, menu)
	}
	h.shut(menu)
	h.b.Set(func() { h.b.Known = all })
	h.waits("bob", "frank")
	menu = h.open()
	before = h.still()
	after = now(menu, before, all[1:]...) // bob goes
	if moved := differ(within(before, rest), within(after, rest)); moved.Dy() > 30 || moved.Empty() || !bob.In(moved.Inset(-6)) {
		h.picture("moved")
		h.t.Errorf("%s: bob went, and in the open menu something else is at %v, he was at %v", h.screen.name, moved, bob)
	}
	h.part("went", menu)
	h.point(bob)
	h.tool("xdotool", "click", "1") // there is nothing to choose any more
	time.Sleep(300 * time.Millisecond)
	h.point(aside)
	h.shut(menu)
	h.reads("carol", "bob")
	smaller := h.open()
	if smaller.Dy() >= menu.Dy() {
		h.t.Errorf("%s: without bob the menu is %v, it was %v", h.screen.name, smaller, menu)
	}
	h.shut(smaller)
	if calls := h.b.Called(); len(slices.DeleteFunc(calls, func(c string) bool { return !strings.HasPrefix(c, "Ask ") })) != 1 {
		h.t.Errorf("%s: %q", h.screen.name, calls)
	}
	h.b.Set(func() { h.b.State.Name = "alice" })
}

// head is where the line is that says who this is.
func head(menu image.Rectangle) image.Rectangle {
	return image.Rect(menu.Min.X, menu.Min.Y, menu.Max.X, menu.Min.Y+38)
}

// waits waits until the menu has one peer and has another no more, as what reads it over the bus has it.
func (h hand) waits(has, no string) {
	h.t.Helper()
	h.closedMenu() // what Xfce's panel does not say
	h.reads(has, no)
}

// reads is waits without a hint.
func (h hand) reads(has, no string) {
	h.t.Helper()
	h.until("a menu with "+has+" and without "+no, func() string {
		lines, err := h.lines()
		text := fmt.Sprint(lines, err)
		if !strings.Contains(text, has) || no != "" && strings.Contains(text, no) {
			return text
		}
		return ""
	})
}

var crowd = strings.Fields("bob carol dave erin frank grace heidi ivan judy kim leo mia nina oscar peggy quinn rita sam tom uma")

// hasRoom looks at menus of few and of many peers. One in the submenu of the others is asked.
func (h hand) hasRoom() {
	h.t.Helper()
	for _, n := range []int{0, 1, 6, 20} {
		var peers []api.Peer
		for i, who := range crowd[:n] {
			p := api.Peer{Name: who, ID: "ID-" + who, ShortID: "kxj2a7" + string(rune('a'+i)), Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone,
				Gives: &api.Gives{State: api.GivesSome, Resources: api.Resources{"cpu": "2"}}}
			switch who {
			case "bob":
				p.Outgoing, p.Incoming, p.Offered, p.Used = api.StateConnected, api.StateConnected, api.Resources{"cpu": "800m"}, api.Resources{"cpu": "300m"}
				p.Tunnel.Up, p.Pods = true, api.PeerPods{Abroad: 3, Guests: 7}
			case "carol":
				p.Incoming, p.Pods = api.StateConnected, api.PeerPods{Guests: 2}
			case "dave":
				p.Gives = &api.Gives{State: api.GivesNothing, Why: "it shares nothing"}
			}
			peers = append(peers, p)
		}
		h.b.Set(func() { h.b.Known = peers })
		last := "No peers"
		if n > 0 {
			last = crowd[n-1]
		}
		h.waits(last, "dora")
		menu := h.open()
		h.part(fmt.Sprint("peers-", n), menu)
		before := h.still()
		h.t.Logf("%s: with %d peers the menu is %d by %d", h.screen.name, n, menu.Dx(), menu.Dy())
		if most := map[bool]int{true: 640, false: 768}[n <= 6]; menu.Dy() > most {
			h.t.Errorf("%s: with %d peers the menu is %v, %d is the screen", h.screen.name, n, menu, most)
		}
		switch n {
		case 1:
			below := h.unfold(before, menu, h.row(menu, 2))
			h.part("submenu", menu.Union(below))
		case 20:
			more := h.unfold(before, menu, h.row(menu, 2+8))
			h.part("more", menu.Union(more))
			who := "uma"
			if h.inline { // the first one's line can only be read, and what can be done is below it
				who = "judy"
				h.point(h.row(more, 1))
			} else {
				before = h.still()
				deeds := h.unfold(before, more, h.row(more, 12))
				h.part("third", menu.Union(more).Union(deeds))
				h.point(h.row(deeds, 1))
			}
			h.tool("xdotool", "click", "1")
			h.called("Ask ID-" + who)
			continue
		}
		h.shut(menu)
	}
	h.b.Set(func() { h.b.Known = h.b.Known[1:3] })
	h.waits("carol", "uma")
}

// isAsked has a request accepted in a notification.
func (h hand) isAsked() {
	h.t.Helper()
	s, d, b, t, at := h.screen, h.desktop, h.b, h.t, h.at
	before := s.still()
	var known []api.Peer
	b.Set(func() {
		known = slices.Clone(b.Known)
		b.Pending = []api.Request{{ID: "r1", Peer: "carol", PeerID: "C", Direction: api.Incoming, State: api.StateRequested, Code: "069210",
			Asked: api.Resources{"cpu": "2"}, Granted: api.Resources{"cpu": "2"}, Expires: time.Now().Add(5 * time.Minute)}}
	})
	var note image.Rectangle
	s.until("a notification", func() string {
		if note = differ(before, s.still()); note.Dy() < 60 {
			return fmt.Sprint(note)
		}
		return ""
	})
	if d.unfolds {
		folded := note
		s.point(note.Min.Add(note.Max).Div(2))
		s.until("its buttons", func() string {
			if note = differ(before, s.still()); note.Dy() < folded.Dy()+20 {
				return fmt.Sprint(note)
			}
			return ""
		})
	}
	s.part("request", note)
	t.Log("notification at ", note)
	s.point(d.accept(note))
	s.tool("xdotool", "click", "1")
	s.until("carol accepted", func() string {
		calls := strings.Join(b.Called(), "; ")
		if !strings.Contains(calls, "Accept r1") {
			return calls
		}
		return ""
	})
	if !d.left { // what the left button does then
		note := s.pressAt(at, "1", 60)
		s.part("left", note)
	}
	b.Set(func() { b.Pending, b.Known = nil, known })
	h.waits("carol", "accepted here")
}
