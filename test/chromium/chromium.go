// Package chromium drives a headless Chromium for tests: it opens a page, moves a mouse and presses keys in it, and tells what the page has
// and what the browser complained of. It speaks the DevTools protocol over two pipes, so that nothing listens. Nothing but tests may
// import it.
package chromium

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Program is what Debian's package has.
const Program = "chromium"

// patience bounds all that is waited for.
const patience = 20 * time.Second

// Runner runs a command and returns when it has ended; when ctx ends it kills it.
type Runner func(ctx context.Context, args []string) error

// Here runs it on this machine.
func Here(ctx context.Context, args []string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Browser is one Chromium.
type Browser struct {
	to, from *os.File
	stop     context.CancelFunc
	ended    chan struct{}
	failed   error // why, once ended is closed

	mu      sync.Mutex
	next    int
	answers map[int]chan message
	said    map[string][]string // by session
}

// Page is what one window of it shows.
type Page struct {
	*Browser
	t       testing.TB
	session string
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start runs a Chromium. dir is an empty directory, which the runner's command sees as seen. Close it.
func Start(dir, seen string, run Runner, flags ...string) (*Browser, error) {
	b := &Browser{answers: map[int]chan message{}, said: map[string][]string{}, ended: make(chan struct{})}
	for name, to := range map[string]**os.File{"in": &b.to, "out": &b.from} {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			return nil, fmt.Errorf("start chromium: %w", err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0) // so that opening it waits for nobody
		if err != nil {
			return nil, fmt.Errorf("start chromium: %w", err)
		}
		*to = f
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() {
		b.failed = run(ctx, append([]string{
			"sh", "-c", `seen=$1; shift; export HOME=$seen XDG_RUNTIME_DIR=$seen; exec "$@" 3<$seen/in 4>$seen/out`, "sh", seen,
			Program, "--headless", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir=" + seen + "/profile", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
			"--no-default-browser-check", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--hide-scrollbars",
			"--disable-features=Translate,OptimizationHints,MediaRouter", "--password-store=basic",
		}, flags...))
		close(b.ended)
	}()
	go b.read()
	return b, nil
}

// Close ends it.
func (b *Browser) Close() {
	b.send("", "Browser.close", nil)
	select {
	case <-b.ended:
	case <-time.After(patience):
	}
	b.stop()
	<-b.ended
	b.to.Close()
	b.from.Close()
}

// Page opens a window for as long as the test runs, which shares nothing with others.
func (b *Browser) Page(t testing.TB) *Page {
	t.Helper()
	p := &Page{Browser: b, t: t}
	var context struct{ BrowserContextID string }
	p.must("", "Target.createBrowserContext", args{"disposeOnDetach": true}, &context)
	var target struct{ TargetID string }
	p.must("", "Target.createTarget", args{"url": "about:blank", "browserContextId": context.BrowserContextID}, &target)
	var session struct{ SessionID string }
	p.must("", "Target.attachToTarget", args{"targetId": target.TargetID, "flatten": true}, &session)
	t.Cleanup(func() {
		b.call("", "Target.disposeBrowserContext", args{"browserContextId": context.BrowserContextID}, nil)
	})
	p.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.must(p.session, domain+".enable", nil, nil)
	}
	p.Size(1100, 1400)
	return p
}

type args map[string]any

// read takes what the browser says until its pipe is closed.
func (b *Browser) read() {
	all := bufio.NewReaderSize(b.from, 1<<20)
	for {
		text, err := all.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			if to := b.answers[m.ID]; to != nil {
				to <- m
				delete(b.answers, m.ID)
			}
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded":
			b.said[m.Session] = append(b.said[m.Session], string(m.Params))
		}
		b.mu.Unlock()
	}
}

func (b *Browser) send(session, method string, params any) chan message {
	b.mu.Lock()
	b.next++
	answer := make(chan message, 1)
	b.answers[b.next] = answer
	raw, _ := json.Marshal(params)
	if params == nil {
		raw = []byte("{}")
	}
	text, _ := json.Marshal(message{ID: b.next, Method: method, Params: raw, Session: session})
	b.mu.Unlock()
	b.to.Write(append(text, 0))
	return answer
}

func (b *Browser) call(session, method string, params, out any) error {
	select {
	case m := <-b.send(session, method, params):
		if m.Error != nil {
			return errors.New(method + ": " + m.Error.Message)
		}
		if out != nil {
			return json.Unmarshal(m.Result, out)
		}
		return nil
	case <-b.ended:
		return fmt.Errorf("%s: chromium has ended: %w", method, b.failed)
	case <-time.After(patience):
		return errors.New(method + ": no answer")
	}
}

func (p *Page) must(session, method string, params, out any) {
	p.t.Helper()
	if err := p.call(session, method, params, out); err != nil {
		p.t.Fatal(err)
	}
}

// Open goes to an address and waits until it is loaded.
func (p *Page) Open(url string) {
	p.t.Helper()
	p.leave(func() {
		var to struct{ ErrorText string }
		p.must(p.session, "Page.navigate", args{"url": url}, &to)
		if to.ErrorText != "" {
			p.t.Fatalf("open the page: %s", to.ErrorText)
		}
	})
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.leave(func() { p.must(p.session, "Page.reload", nil, nil) })
}

// leave waits until another page than that of now is loaded.
func (p *Page) leave(do func()) {
	p.t.Helper()
	p.Eval("window.left = true", nil)
	do()
	p.Wait(patience, "the next page", `!window.left && document.readyState === "complete"`)
}

// eval gives what a JavaScript expression, or what it promises, comes to.
func (p *Page) eval(expression string, out any) error {
	var is struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := p.call(p.session, "Runtime.evaluate", args{"expression": expression, "awaitPromise": true, "returnByValue": true}, &is); err != nil {
		return err
	}
	if is.ExceptionDetails != nil {
		return fmt.Errorf("%.200s: %s", expression, is.ExceptionDetails)
	}
	if out == nil || is.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(is.Result.Value, out)
}

// Eval is eval whose error ends the test.
func (p *Page) Eval(expression string, out any) {
	p.t.Helper()
	if err := p.eval(expression, out); err != nil {
		p.t.Fatal(err)
	}
}

// Text is what is shown of the elements that a selector finds.
func (p *Page) Text(selector string) (text string) {
	p.t.Helper()
	p.Eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText ?? e.textContent).join("\n")`, selector), &text)
	return text
}

// Wait waits until an expression is true.
func (p *Page) Wait(within time.Duration, what, expression string) {
	p.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(30 * time.Millisecond) {
		is := false
		err := p.eval("!!("+expression+")", &is)
		if is {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s is not there (%v); the page says:\n%s", what, err, p.Text("body"))
		}
	}
}

// WaitText waits until the elements that a selector finds show a text.
func (p *Page) WaitText(within time.Duration, selector, text string) {
	p.t.Helper()
	p.Wait(within, selector+" with "+text, fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => (e.innerText ?? e.textContent).includes(%q))`, selector, text))
}

// Click clicks with the mouse in the middle of the first element that a selector finds and whose text begins so.
func (p *Page) Click(selector, begins string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find(e => e.innerText.startsWith(%q) && e.checkVisibility())`, selector, begins)
	p.Wait(patience, selector+" "+begins, find)
	var at struct{ X, Y float64 }
	p.Eval("(() => { const e = "+find+`; e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2}; })()`, &at)
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		button := "left"
		if kind == "mouseMoved" {
			button = "none"
		}
		p.must(p.session, "Input.dispatchMouseEvent", args{"type": kind, "x": at.X, "y": at.Y, "button": button, "clickCount": 1}, nil)
	}
}

// keys are those that Press knows, with their codes.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}

// Press presses keys, one after the other.
func (p *Page) Press(pressed ...string) {
	p.t.Helper()
	for _, key := range pressed {
		down := args{"type": "keyDown", "key": key, "windowsVirtualKeyCode": keys[key]}
		if text := map[string]string{"Enter": "\r", " ": " "}[key]; text != "" {
			down["text"] = text
		}
		p.must(p.session, "Input.dispatchKeyEvent", down, nil)
		p.must(p.session, "Input.dispatchKeyEvent", args{"type": "keyUp", "key": key, "windowsVirtualKeyCode": keys[key]}, nil)
	}
}

// Size sets the window's, in pixels.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.must(p.session, "Emulation.setDeviceMetricsOverride", args{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Dark has the page shown as in a desktop with dark colours, or with light ones. Nothing moves in either.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	p.must(p.session, "Emulation.setEmulatedMedia", args{"features": []args{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// Picture writes the window, from its top, as WebP.
func (p *Page) Picture(path string) {
	p.t.Helper()
	p.Eval("scrollTo(0, 0)", nil)
	var is struct{ Data string }
	p.must(p.session, "Page.captureScreenshot", args{"format": "webp", "quality": 75}, &is)
	image, err := base64.StdEncoding.DecodeString(is.Data)
	if err == nil {
		err = os.WriteFile(path, image, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Said gives what the browser complained of since the last time: exceptions, and what the page's policy or the network refused.
func (p *Page) Said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said[p.session]
	delete(p.said, p.session)
	return said
}

// Axe looks at the page with axe-core, whose text is given, and tells what is serious or worse: one line for each rule that is broken.
func (p *Page) Axe(axe string) (broken []string) {
	p.t.Helper()
	p.Eval(axe+";0", nil)
	p.Eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.filter(v => v.impact === "serious" || v.impact === "critical")
		.map(v => v.id + " (" + v.impact + "): " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(" | ")))`, &broken)
	return broken
}

// FirstPaint is how long after its navigation the page showed its first content.
func (p *Page) FirstPaint() time.Duration {
	p.t.Helper()
	var ms float64
	p.Eval(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`, &ms)
	return time.Duration(ms * float64(time.Millisecond))
}
