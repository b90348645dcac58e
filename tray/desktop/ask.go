package desktop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"kith.dev/tray/question"
)

// ErrNoWindow says that no program here shows a window.
var ErrNoWindow = errors.New("no program for windows works here")

// asker is a program that shows a question with its buttons: Later and Yes, a No and others where the question has them. In each of them Enter, Escape and closing the window leave things as
// they are: a window may come up under the hands of somebody who types.
type asker struct {
	needs []string // one of these variables of the environment is set
	name  string
	args  func(question.Question) []string
	stdin func(question.Question) string // nil: none
	// read tells the answer from the code that it ended with and what it wrote.
	read func(q question.Question, code int, out string) question.Answer
}

var graphical = []string{"WAYLAND_DISPLAY", "DISPLAY"}

var (
	zenity = asker{
		needs: graphical, name: "zenity",
		args: func(q question.Question) []string {
			args := []string{
				"--question", "--title=" + title, "--text=" + pango(q), "--width=480", "--ok-label=" + q.Yes, "--cancel-label=" + question.Later,
				"--default-cancel",
			}
			if q.No != "" {
				args = append(args, "--extra-button="+q.No) // its code is that of cancel, too, and its label comes out
			}
			for _, label := range q.Or {
				args = append(args, "--extra-button="+label)
			}
			return args
		},
		read: func(q question.Question, code int, out string) question.Answer {
			switch {
			case code == 0:
				return question.Yes
			case code == 1:
				return byLabel(0, out, "", q.No, q.Or)
			}
			return question.NotNow
		},
	}
	yad = asker{
		needs: graphical, name: "yad",
		args: func(q question.Question) []string {
			args := []string{
				"--title=" + title, "--text=" + pango(q), "--width=480", "--borders=12", "--center", "--image=dialog-question", "--response=" + strconv.Itoa(codeLater),
			}
			for _, b := range buttons(q) {
				args = append(args, fmt.Sprintf("--button=%s:%d", b.label, b.code))
			}
			return args
		},
		read: byCode,
	}
	// kdialog presses yes for Enter in all its questions with buttons, so it is given a list.
	kdialog = asker{
		needs: graphical, name: "kdialog",
		args: func(q question.Question) []string {
			args := []string{"--title", title, "--menu", qt(q), "yes", q.Yes}
			if q.No != "" {
				args = append(args, "no", q.No)
			}
			for i, label := range q.Or {
				args = append(args, orTag(i), label)
			}
			return append(args, "later", question.Later, "--default", question.Later)
		},
		read: func(q question.Question, code int, out string) question.Answer {
			var tags []string
			for i := range q.Or {
				tags = append(tags, orTag(i))
			}
			return byLabel(code, out, "yes", "no", tags)
		},
	}
	xmessage = asker{
		needs: []string{"DISPLAY"}, name: "xmessage",
		args: func(q question.Question) []string {
			var labels []string
			for _, b := range buttons(q) {
				labels = append(labels, fmt.Sprintf("%s:%d", b.label, b.code))
			}
			return []string{"-center", "-title", title, "-buttons", strings.Join(labels, ","), "-file", "-"}
		},
		stdin: ascii, read: byCode,
	}
	// osascript is for Macs. EXPERIMENTAL: it never ran on one. A dialog has three buttons at most; more answers are a list.
	osascript = asker{
		name: "osascript",
		args: func(q question.Question) []string {
			if list := buttons(q); len(list) > 3 {
				args := []string{
					"-e", "on run argv",
					"-e", "set chosen to choose from list (items 3 thru -1 of argv) with prompt (item 1 of argv) with title (item 2 of argv)",
					"-e", "if chosen is false then return \"\"", "-e", "return item 1 of chosen", "-e", "end run",
					"--", plain(q), title,
				}
				for _, b := range list {
					args = append(args, b.label)
				}
				return args
			}
			args := []string{
				"-e", "on run argv",
				"-e", "display dialog (item 1 of argv) with title (item 2 of argv) buttons (items 3 thru -1 of argv) default button 1",
				"-e", "button returned of result", "-e", "end run",
				"--", plain(q), title,
			}
			for _, b := range buttons(q) {
				args = append(args, b.label)
			}
			return args
		},
		read: func(q question.Question, code int, out string) question.Answer {
			return byLabel(code, out, q.Yes, q.No, q.Or)
		},
	}
)

const (
	title = "Kith"
	// The codes with which yad and xmessage end. They are none that a program ends with when it fails.
	codeYes, codeNo, codeLater, codeOr = 101, 102, 103, 104
)

func orTag(i int) string { return "or" + strconv.Itoa(i) }

// button is one of a window, and the code with which its program ends.
type button struct {
	label string
	code  int
}

// buttons are those of a question, from the one that changes nothing.
func buttons(q question.Question) []button {
	list := []button{{question.Later, codeLater}}
	if q.No != "" {
		list = append(list, button{q.No, codeNo})
	}
	for i, label := range q.Or {
		list = append(list, button{label, codeOr + i})
	}
	return append(list, button{q.Yes, codeYes})
}

func byCode(q question.Question, code int, _ string) question.Answer {
	if i := code - codeOr; i >= 0 && i < len(q.Or) {
		return question.Or(i)
	}
	return map[int]question.Answer{codeYes: question.Yes, codeNo: question.No}[code]
}

func byLabel(code int, out, yes, no string, or []string) question.Answer {
	switch i := slices.Index(or, out); {
	case code != 0 || out == "":
	case out == yes:
		return question.Yes
	case out == no:
		return question.No
	case i >= 0:
		return question.Or(i)
	}
	return question.NotNow
}

// Ask shows a question in a window of its own and gives what the person in front of the screen chose. It takes as long as that person;
// when ctx ends the window closes. ErrNoWindow says that nothing here can show one.
//
// The window belongs to a program of ours that takes no calls from the session bus, so whoever can only talk on that bus, as to a
// menu, cannot answer it.
func (d *Desktop) Ask(ctx context.Context, q question.Question) (question.Answer, error) {
	for _, a := range d.askers() {
		if len(a.needs) > 0 && !slices.ContainsFunc(a.needs, func(name string) bool { return d.getenv(name) != "" }) {
			continue
		}
		path, err := exec.LookPath(a.name)
		if err != nil {
			continue
		}
		began := time.Now()
		answer, err := a.ask(ctx, path, q)
		if ctx.Err() != nil {
			return question.NotNow, ctx.Err()
		}
		if err == nil && time.Since(began) > d.reads { // nobody reads that fast: it did not come up
			return answer, nil
		}
	}
	return question.NotNow, ErrNoWindow
}

// askers are the programs in the order in which they are tried.
func (d *Desktop) askers() []asker {
	switch {
	case d.system == "darwin":
		return []asker{osascript}
	case strings.Contains(d.getenv("XDG_CURRENT_DESKTOP"), "KDE"):
		return []asker{kdialog, zenity, yad, xmessage}
	}
	return []asker{zenity, yad, kdialog, xmessage}
}

func (a asker) ask(ctx context.Context, path string, q question.Question) (question.Answer, error) {
	cmd := exec.CommandContext(ctx, path, a.args(q)...)
	if a.stdin != nil {
		cmd.Stdin = strings.NewReader(a.stdin(q))
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.WaitDelay = settles // what it started may keep its output open
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return question.NotNow, err
	}
	return a.read(q, cmd.ProcessState.ExitCode(), strings.TrimSpace(out.String())), nil
}

// literal keeps a peer's words from being read as an escape: zenity, yad and kdialog turn "\n" and "\74" into what they stand for, and
// only then look for markup.
func literal(s string) string { return strings.ReplaceAll(s, `\`, "\u2216") }

func pango(q question.Question) string {
	text := html.EscapeString(literal(q.Lead))
	if q.Code != "" {
		text += "\n\n" + `<span size="xx-large" weight="bold">` + html.EscapeString(literal(q.Code)) + `</span>`
	}
	return text + "\n\n" + html.EscapeString(literal(strings.Join(q.Text, "\n"))) + "\n"
}

func qt(q question.Question) string {
	text := "<qt><p>" + html.EscapeString(literal(q.Lead)) + "</p>"
	if q.Code != "" {
		text += `<p style="font-size:xx-large"><b>` + html.EscapeString(literal(q.Code)) + "</b></p>"
	}
	for _, line := range q.Text {
		text += "<p>" + html.EscapeString(literal(line)) + "</p>"
	}
	return text + "</qt>"
}

func plain(q question.Question) string {
	parts := []string{q.Lead}
	if q.Code != "" {
		parts = append(parts, q.Code)
	}
	return strings.Join(append(parts, strings.Join(q.Text, "\n")), "\n\n")
}

// ascii is for xmessage, which knows neither other letters nor how to wrap a line.
func ascii(q question.Question) string {
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(plain(q), "→", "->")) {
		column := 0
		for word := range strings.FieldsSeq(line) {
			if column > 0 && column+1+len(word) > 72 {
				b.WriteByte('\n')
				column = 0
			} else if column > 0 {
				b.WriteByte(' ')
				column++
			}
			for _, r := range word {
				if r > '~' {
					r = '?'
				}
				b.WriteRune(r)
				column++
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
