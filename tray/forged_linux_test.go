package tray_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/bustest"
)

// asks puts a request of bob's into the daemon.
func (s *stage) asks(t *testing.T) {
	t.Helper()
	s.daemon.Set(func() {
		s.daemon.Pending = []api.Request{{
			ID: "bob-1", Peer: "bob", PeerID: "ID-bob", Direction: api.Incoming, Code: "069210", Granted: api.Resources{"cpu": "1"}, State: api.StateRequested,
		}}
	})
	s.menu.Wait(t, soon, "bob asks · would get cpu 1", nil)
}

// accepts has bob accept what this owner asked.
func (s *stage) accepts(t *testing.T, c api.Confirmation) {
	t.Helper()
	s.daemon.Set(func() {
		s.daemon.Known[0].Outgoing, s.daemon.Known[0].Code, s.daemon.Known[0].Confirm = api.StateRequested, c.Code, &c
	})
	s.menu.Wait(t, soon, "bob ▸ accepted, waits for you", nil)
}

// windows gives the desktop a program for windows. It leaves what it shows and its number in files, and ends as press says.
func (s *stage) windows(t *testing.T) {
	t.Helper()
	t.Setenv("DISPLAY", ":0")
	dir := os.Getenv("HOME")
	script(t, "zenity", `for a; do echo "$a"; done > `+dir+`/text; echo $$ > `+dir+`/window
/bin/sleep 0.35
while [ ! -e `+dir+`/press ]; do /bin/sleep 0.02; done
. `+dir+`/press`)
}

// window waits for one that has part in it.
func (s *stage) window(t *testing.T, part string) {
	t.Helper()
	written(t, filepath.Join(os.Getenv("HOME"), "text"), part)
	written(t, filepath.Join(os.Getenv("HOME"), "window"), "\n")
}

// ask clicks a line until the window that it opens has part in it: one that was just answered may not be gone yet.
func (s *stage) ask(t *testing.T, line, part string) {
	t.Helper()
	file := filepath.Join(os.Getenv("HOME"), "text")
	for end := time.Now().Add(soon); time.Now().Before(end); {
		s.menu.Click(t, line)
		for again := time.Now().Add(time.Second); time.Now().Before(again); time.Sleep(10 * time.Millisecond) {
			if b, _ := os.ReadFile(file); strings.Contains(string(b), part) {
				s.window(t, part)
				return
			}
		}
	}
	s.window(t, part)
}

// press ends the window that is up, as a button does.
func (s *stage) press(t *testing.T, how string) {
	t.Helper()
	dir := os.Getenv("HOME")
	os.Remove(dir + "/text")
	os.Remove(dir + "/window")
	if err := os.WriteFile(dir+"/press", []byte("/bin/rm "+dir+"/press; "+how+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir + "/press"); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no window is up")
		}
	}
}

// forge has a program that is no panel click the line that has part in it, in all ways that the protocol has.
func (s *stage) forge(t *testing.T, part string) {
	t.Helper()
	line := s.menu.Wait(t, soon, part, nil)
	stranger := bustest.MenuOf(s.bus.Connect(t), s.menu.Item)
	for range 3 { // the item may be gone after the first
		stranger.Event(line.Number, "clicked")
		stranger.EventGroup(line.Number, "clicked")
	}
}

// never fails the test when the daemon was called so once everything that was on its way has arrived.
func (s *stage) never(t *testing.T, call string) {
	t.Helper()
	s.daemon.Set(func() { s.daemon.Known = append(s.daemon.Known, laptop("zoe")) })
	s.forge(t, "Ask zoe for what it gives") // clicks are worked on in order: once this one is through, so are those before
	s.called(t, "Ask ID-zoe")
	time.Sleep(100 * time.Millisecond) // and what those before had started beside the loop
	for _, c := range s.daemon.Called() {
		if strings.HasPrefix(c, call) {
			t.Errorf("the daemon was called %q", c)
		}
	}
}

// TestClickOverTheBusAcceptsNothing has a program of the session click Accept without anybody in front of the screen.
func TestClickOverTheBusAcceptsNothing(t *testing.T) {
	s := raise(t)
	s.asks(t)
	s.forge(t, "bob asks")
	s.never(t, "Accept")
}

func TestClickOverTheBusConfirmsNothing(t *testing.T) {
	for name, c := range map[string]api.Confirmation{
		"code":  {Code: "069210"},
		"terms": {Terms: []string{"cpu costs 0.02 EUR an hour"}},
		"both":  {Code: "069210", Terms: []string{"cpu costs 0.02 EUR an hour"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := raise(t)
			s.accepts(t, c)
			for _, l := range s.menu.Lines(t) {
				if strings.Contains(l.Label, "compare the code") || strings.Contains(l.Label, "see its terms") {
					s.forge(t, l.Label)
				}
			}
			s.never(t, "Confirm")
		})
	}
}

// The click opens one window, however often it is made, and what the person does there counts.
func TestOnlyTheWindowAccepts(t *testing.T) {
	s := raise(t)
	s.windows(t)
	s.asks(t)
	s.forge(t, "bob asks")
	s.window(t, "It would get cpu 1.")
	s.never(t, "Accept")
	s.press(t, "exit 1") // Later
	s.never(t, "Accept")
	s.ask(t, "bob asks", "It would get cpu 1.")
	s.press(t, "exit 0")
	s.called(t, "Accept bob-1 cpu 1")
}

func TestWindowConfirmsTheCodeAndTheTermsThatItShows(t *testing.T) {
	for name, test := range map[string]struct {
		asked       api.Confirmation
		shows, how  string
		call, after string
	}{
		"code":   {api.Confirmation{Code: "069210"}, ">069 210<", "exit 0", "Confirm ID-bob 069210 terms=false reject=false", "bob ▸ you use it"},
		"terms":  {api.Confirmation{Terms: []string{"cpu costs <1> EUR"}}, "- cpu costs &lt;1&gt; EUR", "exit 0", "Confirm ID-bob  terms=true reject=false", "bob ▸ you use it"},
		"both":   {api.Confirmation{Code: "069210", Terms: []string{"x"}}, "- x", "exit 0", "Confirm ID-bob 069210 terms=true reject=false", "bob ▸ you use it"},
		"differ": {api.Confirmation{Code: "069210"}, ">069 210<", "echo They differ; exit 1", "Confirm ID-bob 069210 terms=false reject=true", "bob ▸ declined"},
		"refuse": {api.Confirmation{Terms: []string{"x"}}, "- x", "echo Refuse; exit 1", "Confirm ID-bob  terms=false reject=true", "bob ▸ declined"},
	} {
		t.Run(name, func(t *testing.T) {
			s := raise(t)
			s.windows(t)
			s.accepts(t, test.asked)
			s.menu.Click(t, "bob accepted · ")
			s.window(t, test.shows)
			s.press(t, test.how)
			s.called(t, test.call)
			s.menu.Wait(t, soon, test.after, nil)
			for _, l := range s.menu.Lines(t) {
				if strings.Contains(l.Label, "taken back") {
					t.Errorf("what the owner wanted is shown as a failure: %v", l)
				}
			}
		})
	}
}

// A window closes when what it asks is gone or has become something else, and its yes would count for nothing by then.
func TestWindowClosesWhenItsQuestionIsGone(t *testing.T) {
	s := raise(t)
	s.windows(t)
	gone := func(pid string) {
		t.Helper()
		for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat("/proc/" + pid); err != nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the window stays")
			}
		}
	}
	up := func(part string) (pid string) {
		t.Helper()
		s.window(t, part)
		b, err := os.ReadFile(os.Getenv("HOME") + "/window")
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(os.Getenv("HOME") + "/text")
		os.Remove(os.Getenv("HOME") + "/window")
		return strings.TrimSpace(string(b))
	}
	s.accepts(t, api.Confirmation{Code: "069210"})
	s.menu.Click(t, "compare the code 069 210")
	pid := up("069 210")
	s.accepts(t, api.Confirmation{Code: "402817"}) // asked anew
	gone(pid)
	s.menu.Click(t, "compare the code 402 817")
	pid = up("402 817")
	s.daemon.Set(func() { s.daemon.Known[0].Outgoing, s.daemon.Known[0].Confirm = api.StateExpired, nil })
	gone(pid)
	s.asks(t)
	s.menu.Click(t, "bob asks")
	pid = up("bob asks")
	s.daemon.Set(func() { s.daemon.Pending[0].Granted = api.Resources{"cpu": "8"} }) // the owner shares more by now
	gone(pid)
	s.menu.Click(t, "bob asks")
	pid = up("It would get cpu 8.")
	s.daemon.Set(func() { s.daemon.Pending = nil }) // answered in a terminal
	gone(pid)
	s.never(t, "Confirm")
	s.never(t, "Accept")
}

// Without a program for windows the question comes as a notification, and says what to type.
func TestWithoutWindowsTheNotificationAsks(t *testing.T) {
	s := raise(t)
	server := s.notifications(t)
	s.accepts(t, api.Confirmation{Code: "069210"})
	server.wait(t, "bob accepted: does bob's screen show 069 210?")
	s.menu.Click(t, "bob accepted · compare the code")
	server.wait(t, "`kith confirm bob`")
	s.asks(t)
	s.menu.Click(t, "bob asks")
	server.wait(t, "`kith accept bob-1` or `kith decline bob-1`")
	s.never(t, "Confirm")
	s.never(t, "Accept")
}

// Terms that no window shows whole cannot be agreed to in one.
func TestTooManyTermsAreForATerminal(t *testing.T) {
	s := raise(t)
	s.windows(t)
	server := s.notifications(t)
	s.accepts(t, api.Confirmation{Terms: make([]string, 11)})
	s.menu.Click(t, "bob accepted · see its terms")
	server.wait(t, "`kith confirm bob`")
	s.never(t, "Confirm")
}

// TestButtonsOfTheNotification answers by the buttons that the desktop's notification server shows.
func TestButtonsOfTheNotification(t *testing.T) {
	s := raise(t)
	s.windows(t)
	server := s.notifications(t)
	s.accepts(t, api.Confirmation{Code: "069210", Terms: []string{"cpu costs 0.02 EUR an hour"}})
	server.press(t, "bob accepted", "yes") // Look…
	s.window(t, "- cpu costs 0.02 EUR an hour")
	s.press(t, "exit 1")
	s.accepts(t, api.Confirmation{Code: "402817"})
	server.press(t, "402 817", "yes")
	s.called(t, "Confirm ID-bob 402817 terms=false reject=false")
	s.accepts(t, api.Confirmation{Code: "111222"})
	server.press(t, "111 222", "no")
	s.called(t, "Confirm ID-bob 111222 terms=false reject=true")
}
