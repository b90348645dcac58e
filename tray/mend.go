package tray

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/menu"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// askMend opens the window in which the owner has mended what the doctor found and is safe to be mended: it shows what kithd would do, as
// root. A click in the menu leads here, whoever made it.
func (t *Tray) askMend(ctx context.Context) {
	found := slices.Clone(t.state.Fixable)
	names := api.Fixable(found)
	if len(names) == 0 {
		return
	}
	q := question.Mend(found)
	stands := func(api.Snapshot) bool { return slices.Equal(api.Fixable(t.state.Fixable), names) }
	t.ask(ctx, q, stands, func(a question.Answer, err error) {
		switch {
		case err != nil:
			t.say("mend", words.Text(q.Lead), noWindow("kith doctor --fix"))
		case a == question.Yes:
			t.do(ctx, menu.DoingMend, "", fixTime, func(ctx context.Context) error {
				fixed, err := t.Daemon.FixFindings(ctx, api.FixOf(found), nil)
				if err == nil {
					t.change(ctx, func() { t.state.Fixable = nil })
					t.say("mended", "Kith mended what it could", mended(fixed))
				}
				return err
			})
		}
	})
}

// mended says what was done about each.
func mended(fixed []api.Fixed) string {
	var b strings.Builder
	for _, f := range fixed {
		state := "mended"
		if !f.Mended() {
			state = "not mended"
		}
		fmt.Fprintf(&b, "%s: %s\n", f.Finding.Name, state)
		for _, text := range append(slices.Clone(f.Did), f.Error) {
			if text != "" {
				fmt.Fprintf(&b, "  %s\n", text)
			}
		}
	}
	if b.Len() == 0 {
		return "Nothing was found any more that is safe to be mended."
	}
	return b.String()
}

// seeReport has kithd make a bug report, and opens the window that lists what is in it before it is written.
func (t *Tray) seeReport(ctx, call context.Context) error {
	archive, err := t.Daemon.BugReport(call)
	if err != nil {
		return err
	}
	files, err := api.BugReportFiles(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	t.change(ctx, func() { t.askReport(ctx, files, archive) }) // the window outlives the call
	return nil
}

func (t *Tray) askReport(ctx context.Context, files []api.BugReportFile, archive []byte) {
	q := question.Report(files, len(archive))
	t.ask(ctx, q, func(api.Snapshot) bool { return true }, func(a question.Answer, err error) {
		switch {
		case err != nil:
			t.say("report", words.Text(q.Lead), noWindow("kith bugreport"))
		case a == question.Yes:
			t.do(ctx, menu.DoingReport, "", callTime, func(context.Context) error {
				path, err := t.Desktop.Save(api.BugReportName(time.Now()), archive)
				if err == nil {
					t.say("report", "The report is written", path+"\nNames and addresses are in it: look into it before you give it to others.")
				}
				return err
			})
		}
	})
}
