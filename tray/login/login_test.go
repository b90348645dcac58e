package login

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/tray/question"
)

var quiet = slog.New(slog.DiscardHandler)

// fake is a service as macOS keeps it.
type fake struct {
	status Status
	fails  error
	after  Status // of a registration
	calls  int
}

func (f *fake) Name() string   { return "kithd" }
func (f *fake) Status() Status { return f.status }
func (f *fake) Register() error {
	f.calls++
	if f.fails == nil {
		f.status = f.after
	}
	return f.fails
}
func (f *fake) Unregister() error { f.calls++; f.status = NotRegistered; return f.fails }

func answers(a question.Answer, asked *int) Ask {
	return func(_ context.Context, q question.Question) (question.Answer, error) {
		*asked++
		if q.Lead == "" || q.Yes == "" || q.No == "" {
			return question.NotNow, errors.New("half a question")
		}
		return a, nil
	}
}

func TestNothingIsRegisteredWithoutAYes(t *testing.T) {
	for what, c := range map[string]struct {
		status      Status
		answer      question.Answer
		asked, told int
		fails       bool
	}{
		"never registered, yes":           {NotRegistered, question.Yes, 1, 1, false},
		"never registered, not even seen": {NotFound, question.Yes, 1, 1, false},
		"later":                           {NotRegistered, question.NotNow, 1, 0, false},
		"never":                           {NotRegistered, question.No, 1, 0, false},
		"registered":                      {Enabled, question.Yes, 0, 0, false},
		"switched off by the owner":       {RequiresApproval, question.Yes, 0, 0, true},
	} {
		s, asked := &fake{status: c.status, after: Enabled}, 0
		err := Offer(t.Context(), []Service{s}, filepath.Join(t.TempDir(), "Kith", "refused"), answers(c.answer, &asked), quiet)
		if asked != c.asked || s.calls != c.told || (err != nil) != c.fails {
			t.Errorf("%s: asked %d times, registered %d times, %v", what, asked, s.calls, err)
		}
	}
}

func TestWhoSaidNeverIsNotAskedAgainAndWhoSaidLaterIs(t *testing.T) {
	for answer, want := range map[question.Answer]int{question.No: 1, question.NotNow: 2} {
		refused, asked, s := filepath.Join(t.TempDir(), "Kith", "refused"), 0, &fake{after: Enabled}
		for range 2 {
			if err := Offer(t.Context(), []Service{s}, refused, answers(answer, &asked), quiet); err != nil {
				t.Fatal(err)
			}
		}
		if asked != want {
			t.Errorf("answer %d: asked %d times, want %d", answer, asked, want)
		}
		if err := Register([]Service{s}, refused, quiet); err != nil || s.status != Enabled {
			t.Errorf("by command: %v", err)
		}
		if _, err := os.Stat(refused); err == nil {
			t.Error("the no is still there")
		}
	}
}

func TestWhyAServiceIsNotStartedIsSaid(t *testing.T) {
	dir, asked := t.TempDir(), 0
	broken := &fake{fails: errors.New("codesigning failure")}
	err := Offer(t.Context(), []Service{broken, &fake{after: Enabled}}, filepath.Join(dir, "refused"), answers(question.Yes, &asked), quiet)
	if err == nil || !strings.Contains(err.Error(), "kithd at login: codesigning failure") || !strings.Contains(err.Error(), "docs/macos.md") {
		t.Error(err)
	}
	off := &fake{after: RequiresApproval}
	if err := Offer(t.Context(), []Service{off}, filepath.Join(dir, "refused"), answers(question.Yes, &asked), quiet); !errors.Is(err, ErrNotAllowed) {
		t.Error(err)
	}
}

func TestOnlyWhatIsInApplicationsIsOffered(t *testing.T) {
	for program, want := range map[string]struct {
		app   string
		stays bool
	}{
		"/Applications/Kith.app/Contents/MacOS/kith-tray":                               {"/Applications/Kith.app", true},
		"/Users/alice/Applications/Kith.app/Contents/MacOS/kith-tray":                   {"/Users/alice/Applications/Kith.app", true},
		"/Volumes/Kith/Kith.app/Contents/MacOS/kith-tray":                               {"/Volumes/Kith/Kith.app", false},
		"/private/var/folders/x/AppTranslocation/Y/d/Kith.app/Contents/MacOS/kith-tray": {"/private/var/folders/x/AppTranslocation/Y/d/Kith.app", false},
		"/Users/alice/kith/bin/darwin-arm64/kith-tray":                                  {"", false},
		"/Applications/Kith.app/Contents/Helpers/kith-tray":                             {"", false},
	} {
		if app, stays := Bundle(program, "/Users/alice"); app != want.app || stays != want.stays {
			t.Errorf("%s: %q %v", program, app, stays)
		}
	}
}

func TestAServiceIsForgottenOnce(t *testing.T) {
	s, never := &fake{status: RequiresApproval}, &fake{status: NotFound}
	if err := Unregister([]Service{s, never}); err != nil || s.status != NotRegistered || s.calls != 1 || never.calls != 0 {
		t.Errorf("%v %+v %+v", err, s, never)
	}
}
