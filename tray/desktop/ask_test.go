package desktop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/tray/question"
)

var confirm = question.Question{
	Lead: `bob\74b\76<i> accepted. Does it show this code?`, Code: "069 210", Text: []string{"It is cluster KXJ2A7Q.", "- cpu costs <1> EUR & more"}, Yes: "Confirm", No: "They differ",
}

// slowly is what a program does while a person reads: windows that end at once are none.
const slowly = "/bin/sleep 0.1; "

func TestAnswersOfEachProgram(t *testing.T) {
	for name, test := range map[string]struct {
		program, script string
		want            question.Answer
	}{
		"zenity yes":            {"zenity", "exit 0", question.Yes},
		"zenity no":             {"zenity", "echo They differ; exit 1", question.No},
		"zenity closed":         {"zenity", "exit 1", question.NotNow},
		"zenity out of time":    {"zenity", "exit 5", question.NotNow},
		"zenity ended":          {"zenity", "kill -9 $$", question.NotNow},
		"zenity words and fail": {"zenity", "echo They differ; exit 2", question.NotNow},
		"yad yes":               {"yad", "exit 101", question.Yes},
		"yad no":                {"yad", "exit 102", question.No},
		"yad closed":            {"yad", "exit 252", question.NotNow},
		"yad done":              {"yad", "exit 0", question.NotNow},
		"kdialog yes":           {"kdialog", "echo yes", question.Yes},
		"kdialog no":            {"kdialog", "echo no", question.No},
		"kdialog later":         {"kdialog", "echo later", question.NotNow},
		"kdialog closed":        {"kdialog", "echo yes; exit 1", question.NotNow},
		"xmessage yes":          {"xmessage", "exit 101", question.Yes},
		"xmessage no":           {"xmessage", "exit 102", question.No},
		"xmessage closed":       {"xmessage", "exit 0", question.NotNow},
	} {
		t.Run(name, func(t *testing.T) {
			d := with(t, map[string]string{"DISPLAY": ":0"}, map[string]string{test.program: slowly + test.script})
			if got, err := d.Ask(t.Context(), confirm); err != nil || got != test.want {
				t.Error(got, err)
			}
		})
	}
}

// Each further button has an answer of its own, in each program.
func TestAQuestionMayHaveMoreButtons(t *testing.T) {
	many := question.Question{Lead: "How much?", Yes: "75 %", Or: []string{"25 %", "50 %"}}
	for name, test := range map[string]struct {
		program, script string
		want            question.Answer
	}{
		"zenity first":  {"zenity", "echo 25 %; exit 1", question.Or(0)},
		"zenity second": {"zenity", "echo 50 %; exit 1", question.Or(1)},
		"zenity yes":    {"zenity", "exit 0", question.Yes},
		"zenity closed": {"zenity", "exit 1", question.NotNow},
		"yad second":    {"yad", "exit 105", question.Or(1)},
		"yad unknown":   {"yad", "exit 106", question.NotNow},
		"kdialog first": {"kdialog", "echo or0", question.Or(0)},
		"kdialog none":  {"kdialog", "echo or2", question.NotNow},
		"xmessage":      {"xmessage", "exit 104", question.Or(0)},
	} {
		t.Run(name, func(t *testing.T) {
			d := with(t, map[string]string{"DISPLAY": ":0"}, map[string]string{test.program: slowly + test.script})
			if got, err := d.Ask(t.Context(), many); err != nil || got != test.want {
				t.Error(got, err)
			}
		})
	}
	for _, a := range []asker{zenity, yad, kdialog, xmessage, osascript} {
		if args := strings.Join(a.args(many), "\n"); strings.Count(args, "25 %") != 1 || strings.Count(args, "50 %") != 1 || strings.Count(args, "75 %") != 1 {
			t.Errorf("%s: %q", a.name, args)
		}
	}
}

// A question with nothing to refuse has two buttons, and closing it is no refusal.
func TestAQuestionWithoutANoHasTwoButtons(t *testing.T) {
	two := question.Question{Lead: "Tether?", Yes: "Tether"}
	for _, a := range []asker{zenity, yad, kdialog, xmessage, osascript} {
		for _, arg := range a.args(two) {
			if arg == "" || arg == "no" || arg == "--extra-button=" || strings.Contains(arg, ":102") {
				t.Errorf("%s: %q", a.name, a.args(two))
			}
		}
	}
	for program, script := range map[string]string{"zenity": "exit 1", "yad": "exit 252", "kdialog": "exit 0", "xmessage": "exit 0"} {
		d := with(t, map[string]string{"DISPLAY": ":0"}, map[string]string{program: slowly + script})
		if got, err := d.Ask(t.Context(), two); err != nil || got != question.NotNow {
			t.Error(program, got, err)
		}
	}
}

// Nothing says yes where nobody can have read the question: a program that fails at once, whatever its code, is passed over.
func TestProgramThatShowsNothingIsPassedOver(t *testing.T) {
	d := with(t, map[string]string{"WAYLAND_DISPLAY": "w"}, map[string]string{"zenity": "exit 0", "yad": "/bin/sleep 1.2; exit 102", "xmessage": slowly + "exit 101"})
	d.reads = time.Second
	if got, err := d.Ask(t.Context(), confirm); err != nil || got != question.No {
		t.Error(got, err)
	}
	d = with(t, map[string]string{"WAYLAND_DISPLAY": "w"}, map[string]string{"zenity": "exit 0", "xmessage": slowly + "exit 101"}) // which needs X
	d.reads = time.Second
	if got, err := d.Ask(t.Context(), confirm); !errors.Is(err, ErrNoWindow) || got != question.NotNow {
		t.Error(got, err)
	}
	d = with(t, map[string]string{}, map[string]string{"zenity": slowly + "exit 0"}) // no display at all
	if got, err := d.Ask(t.Context(), confirm); !errors.Is(err, ErrNoWindow) || got != question.NotNow {
		t.Error(got, err)
	}
}

func TestWindowClosesWithItsQuestion(t *testing.T) {
	up := filepath.Join(t.TempDir(), "up")
	d := with(t, map[string]string{"DISPLAY": ":0"}, map[string]string{"zenity": "echo $$ > " + up + "; exec /bin/sleep 100"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if b, _ := os.ReadFile(up); len(b) > 0 {
				cancel()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if got, err := d.Ask(ctx, confirm); !errors.Is(err, context.Canceled) || got != question.NotNow {
		t.Error(got, err)
	}
}

// What a peer chose is text in every program: neither markup, nor an escape that becomes markup, nor an option.
func TestWordsOfAPeerStayWords(t *testing.T) {
	for name, a := range map[string]asker{"zenity": zenity, "yad": yad, "kdialog": kdialog} {
		args := strings.Join(a.args(confirm), "\x00")
		if strings.Contains(args, `\`) || strings.Contains(args, "<i>") || !strings.Contains(args, "\u221674b\u221676&lt;i&gt; accepted") ||
			!strings.Contains(args, "&lt;1&gt; EUR &amp; more") {
			t.Errorf("%s: %q", name, args)
		}
	}
	for _, a := range []asker{zenity, yad, kdialog, xmessage} {
		dashes := question.Question{Lead: "--extra-button=x", Text: []string{"-file"}, Yes: "Confirm", No: "They differ"}
		for _, arg := range a.args(dashes) {
			if strings.HasPrefix(arg, dashes.Lead) || strings.HasPrefix(arg, dashes.Text[0]+" ") {
				t.Errorf("%s: %q", a.name, arg)
			}
		}
	}
	long := confirm
	long.Text = []string{strings.Repeat("word ", 50) + "Grüße"}
	for line := range strings.Lines(ascii(long)) {
		if len(line) > 74 || strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
			t.Errorf("%q", line)
		}
	}
}

func TestKDEHasItsOwn(t *testing.T) {
	d := with(t, map[string]string{"DISPLAY": ":0", "XDG_CURRENT_DESKTOP": "KDE"}, map[string]string{"zenity": slowly + "exit 0", "kdialog": slowly + "echo no"})
	if got, err := d.Ask(t.Context(), confirm); err != nil || got != question.No {
		t.Error(got, err)
	}
}
