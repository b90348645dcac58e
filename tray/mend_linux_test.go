package tray_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/daemon/bugreport"
	"kith.dev/test/bustest"
)

// What the doctor found is mended in a window that shows the commands, and a report is listed in one before it is written: what a click
// leads to changes nothing.
func TestDiagnoseOffersToMendAndToReport(t *testing.T) {
	s := raise(t)
	s.windows(t)
	var archive bytes.Buffer
	if err := bugreport.Write(t.Context(), &archive, time.Now(), []bugreport.Part{bugreport.Text("logs/kithd.log", "the log", strings.Repeat("well\n", 1000))}); err != nil {
		t.Fatal(err)
	}
	s.daemon.Set(func() {
		s.daemon.Report = archive.Bytes()
		s.daemon.Findings = []api.Finding{
			{Area: api.AreaDisk, Name: "space", State: api.CheckFail, What: "full"},
			{Area: api.AreaKernel, Name: "inotify", State: api.CheckWarning, What: "few files can be watched", Fix: []string{"sysctl -w fs.inotify.max_user_instances=1024"}},
		}
	})
	if menu := strings.Join(labels(t, s), "\n"); strings.Contains(menu, "Mend") || strings.Contains(menu, "Save a report") {
		t.Error("offered before anybody looked:\n", menu)
	}
	script(t, "xdg-open", "true")
	looking := make(chan struct{})
	s.daemon.Set(func() { s.daemon.Looking = looking })
	s.menu.Click(t, "Diagnose…")
	s.menu.Wait(t, soon, "Diagnosing: what is found opens as a text", func(l bustest.Line) bool { return !l.Enabled })
	close(looking)
	s.ask(t, "    Mend 1 of what was found…", "Have kithd mend what was found?\n\nfew files can be watched:\n   sysctl -w fs.inotify.max_user_instances=1024\n")
	s.press(t, "exit 1") // later
	s.ask(t, "    Save a report…", "Save a report of 1 KiB?\n\nIt holds names and addresses")
	if calls := strings.Join(s.daemon.Called(), ","); strings.Contains(calls, "FixFindings") {
		t.Error("a click has mended: ", calls)
	}
	s.press(t, "exit 1")
	home := os.Getenv("HOME")
	if files, _ := filepath.Glob(home + "/kith-bugreport-*"); len(files) > 0 {
		t.Error("written without a yes: ", files)
	}
	s.ask(t, "    Mend 1 of what was found…", "Have kithd mend")
	s.press(t, "exit 0")
	s.called(t, "FixFindings inotify")
	s.ask(t, "    Save a report…", "- logs/kithd.log, 5 KiB")
	s.press(t, "exit 0")
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		files, _ := filepath.Glob(home + "/kith-bugreport-*.tar.gz")
		if len(files) == 1 {
			if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("no report was written")
		}
	}
	if menu := strings.Join(labels(t, s), "\n"); strings.Contains(menu, "Mend") {
		t.Error("offered though it is mended:\n", menu)
	}
}

func labels(t *testing.T, s *stage) (all []string) {
	t.Helper()
	for _, l := range s.menu.Lines(t) {
		all = append(all, l.Label)
	}
	return all
}
