//go:build lab

// Package panel tests kith-tray in a real desktop: Xfce's panel and notification server under Xvfb, with a mouse and a
// keyboard. The pictures that it takes are in build/screenshots.
package panel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	width, height = 720, 580
	barHeight     = 28
	// patience is for what a person would wait for without a word, on a machine that is busy with other things too.
	patience = 2 * time.Minute
)

// screen is a desktop of its own: a display, a session bus and what runs on them.
type screen struct {
	t    *testing.T
	name string
	dir  string
	env  []string
	bus  string        // address
	n    int           // pictures taken
	dims uint8         // how much darker than it is the panel shows a colour at most
	slow time.Duration // patience for what takes longer
}

// newScreen starts display and bus, for Xfce; they end with the test.
func newScreen(t *testing.T, name string) *screen {
	t.Helper()
	if _, err := exec.LookPath("xfce4-panel"); err != nil {
		t.Fatal("xfce4-panel is not installed: scripts/deps.sh does it")
	}
	s := newScreenOf(t, name, image.Pt(width, height), "GTK_THEME=Adwaita", "XDG_CURRENT_DESKTOP=XFCE")
	s.configure()
	return s
}

// newScreenOf starts display and bus, for whatever desktop; env is what that has in its environment.
func newScreenOf(t *testing.T, name string, size image.Point, env ...string) *screen {
	t.Helper()
	for _, program := range []string{"Xvfb", "xdotool", "xsetroot", "import", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: scripts/deps.sh does it", program)
		}
	}
	dir, err := os.MkdirTemp("", "panel") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &screen{t: t, name: name, dir: dir, bus: "unix:path=" + dir + "/bus"}
	s.env = append(os.Environ(),
		"HOME="+dir, "XDG_CONFIG_HOME="+dir+"/config", "XDG_CACHE_HOME="+dir+"/cache", "XDG_DATA_HOME="+dir+"/data",
		"XDG_RUNTIME_DIR="+dir, "DBUS_SESSION_BUS_ADDRESS="+s.bus, "NO_AT_BRIDGE=1", "GTK_A11Y=none", "LC_ALL=C.UTF-8")
	s.env = append(s.env, env...)
	number, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer number.Close()
	s.start(&exec.Cmd{Args: []string{"Xvfb", "-displayfd", "3", "-screen", "0", fmt.Sprintf("%dx%dx24", size.X, size.Y), "-nolisten", "tcp", "-noreset"}, ExtraFiles: []*os.File{w}})
	w.Close()
	// The whole line: Xvfb writes number and newline one after the other, and dies when nobody reads the second.
	display, err := bufio.NewReader(number).ReadString('\n')
	if err != nil {
		t.Fatalf("Xvfb gave no display: %v", err)
	}
	s.env = append(s.env, "DISPLAY=:"+strings.TrimSpace(display))
	s.run("dbus-daemon", "--session", "--nofork", "--nopidfile", "--address="+s.bus)
	s.until("the session bus", func() string {
		_, err := os.Stat(filepath.Join(dir, "bus"))
		return text(err)
	})
	return s
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// configure writes what the panel and the notification server look like.
func (s *screen) configure() {
	s.t.Helper()
	dir := s.dir + "/config/xfce4/xfconf/xfce-perchannel-xml"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for _, name := range []string{"xfce4-panel.xml", "xfce4-notifyd.xml"} {
		b, err := os.ReadFile("testdata/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// run starts a program that ends with the test, or with the function that it gives.
func (s *screen) run(args ...string) (stop func()) {
	s.t.Helper()
	return s.start(&exec.Cmd{Args: args})
}

func (s *screen) start(c *exec.Cmd) (stop func()) {
	s.t.Helper()
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, filepath.Base(path)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	// A group of its own, because Xfce's programs have children that outlive them.
	c.Path, c.Env, c.Stdout, c.Stderr, c.SysProcAttr = path, s.env, log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		late := time.AfterFunc(3*time.Second, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
		c.Wait()
		late.Stop()
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	s.t.Cleanup(stop)
	return stop
}

// desk starts panel and notification server, which can be called when it returns, and paints the background.
func (s *screen) desk() {
	s.t.Helper()
	s.tool("xsetroot", "-solid", "#3f5d76")
	notifyd, err := filepath.Glob("/usr/lib/*/xfce4/notifyd/xfce4-notifyd") // it is in no PATH
	if err != nil || len(notifyd) == 0 {
		s.t.Fatal("xfce4-notifyd is not installed: scripts/deps.sh does it")
	}
	s.run(notifyd[0])
	s.run("xfce4-panel", "--disable-wm-check")
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

// tool runs a program to its end and gives what it says.
func (s *screen) tool(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (s *screen) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = s.env
	out, err := c.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, e.Stderr)
	}
	return string(out), err
}

// until waits until the function gives "".
func (s *screen) until(what string, wrong func() string) {
	s.t.Helper()
	for end := time.Now().Add(max(patience, s.slow)); ; time.Sleep(50 * time.Millisecond) {
		why := wrong()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			s.picture("failed")
			logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
			for _, path := range logs {
				if log, err := os.ReadFile(path); err == nil {
					s.t.Logf("%s's %s: %s", s.name, filepath.Base(path), log[max(0, len(log)-4000):])
				}
			}
			s.t.Fatalf("%s: no sign of %s within %v: %s", s.name, what, max(patience, s.slow), why)
		}
	}
}

// look is what the screen shows.
func (s *screen) look() image.Image {
	s.t.Helper()
	out := s.tool("import", "-window", "root", "-depth", "8", "png24:-")
	img, err := png.Decode(bytes.NewReader([]byte(out)))
	if err != nil {
		s.t.Fatal(err)
	}
	return img
}

// picture keeps what the screen shows in build/screenshots.
func (s *screen) picture(what string) {
	dir := filepath.Join("..", "..", "..", "build", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.n++
	name := fmt.Sprintf("%s-%02d-%s-%s.png", strings.ReplaceAll(s.t.Name(), "/", "-"), s.n, s.name, what)
	if out, err := s.try("import", "-window", "root", "-depth", "8", filepath.Join(dir, name)); err != nil {
		s.t.Logf("no picture %s: %v %s", name, err, out)
	}
}

// windows gives place and size of the visible windows of a class.
func (s *screen) windows(class string) (list []image.Rectangle) {
	out, _ := s.try("xdotool", "search", "--onlyvisible", "--class", class)
	for id := range strings.FieldsSeq(out) {
		where, err := s.try("xdotool", "getwindowgeometry", "--shell", id)
		if err != nil {
			continue // it went meanwhile
		}
		v := map[string]int{}
		for line := range strings.Lines(where) {
			name, number, _ := strings.Cut(strings.TrimSpace(line), "=")
			v[name], _ = strconv.Atoi(number)
		}
		list = append(list, image.Rect(v["X"], v["Y"], v["X"]+v["WIDTH"], v["Y"]+v["HEIGHT"]))
	}
	return list
}

func (s *screen) click(at image.Point) {
	s.t.Helper()
	s.tool("xdotool", "mousemove", strconv.Itoa(at.X), strconv.Itoa(at.Y), "click", "1")
}
