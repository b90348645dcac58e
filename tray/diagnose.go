package tray

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// diagnose has the doctor look and shows what it found, below what the menu said. Where kithd cannot be asked, kith looks at the
// machine alone.
func (t *Tray) diagnose(ctx context.Context, menu string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Kith, %s, tray %s\n\n%s\n", time.Now().Format(time.RFC1123), t.Version, menu)
	findings, err := t.Daemon.Doctor(ctx, "", nil)
	switch {
	case err == nil:
		b.WriteString(report(findings))
		t.change(ctx, func() {
			t.state.Looked = true
			t.state.Fixable = slices.DeleteFunc(slices.Clone(findings), func(f api.Finding) bool { return len(f.Fix) == 0 })
		})
	case errors.Is(err, &api.Error{Code: api.CodeUnavailable}), errors.Is(err, &api.Error{Code: api.CodeForbidden}):
		out, runErr := exec.CommandContext(ctx, kith(), "--socket", t.Socket, "doctor").CombinedOutput()
		b.Write(out)
		if len(out) == 0 {
			fmt.Fprintf(&b, "%v\n\nkith doctor did not run either: %v\n", err, runErr)
		}
	default:
		return err
	}
	return t.view("diagnosis", "diagnosis.txt", "The diagnosis is in a file", b.String())
}

// view shows a text, or says where it is.
func (t *Tray) view(subject, file, title, text string) error {
	path, err := t.Desktop.View(file, []byte(text))
	if err != nil && path != "" {
		t.say(subject, title, path)
		return nil
	}
	return err
}

// report writes findings, the worst first.
func report(findings []api.Finding) string {
	var b strings.Builder
	counts := map[api.CheckState]int{}
	for _, f := range findings {
		counts[f.State]++
	}
	fmt.Fprintf(&b, "%d ok, %d warnings, %d failed\n", counts[api.CheckOK], counts[api.CheckWarning], counts[api.CheckFail])
	for _, state := range []api.CheckState{api.CheckFail, api.CheckWarning, api.CheckOK} {
		for _, f := range findings {
			if f.State != state {
				continue
			}
			about := f.Area
			if f.Peer != "" {
				about = words.Name(f.Peer)
			}
			fmt.Fprintf(&b, "\n%-7s  %-9s  %s\n", f.State, about, words.Lines(f.What))
			for _, detail := range []string{f.Why, f.Do} {
				if detail = words.Lines(detail); detail != "" {
					b.WriteString("                    " + strings.ReplaceAll(detail, "\n", "\n                    ") + "\n")
				}
			}
		}
	}
	return b.String()
}

// kith is the command line beside this program, else the one in PATH.
func kith() string {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "kith")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside
		}
	}
	return "kith"
}
