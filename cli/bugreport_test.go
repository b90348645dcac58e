package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/daemon/bugreport"
)

func TestDoctorMendsAfterAYes(t *testing.T) {
	for _, tc := range []struct {
		answer   string
		terminal bool
		args     []string
		mends    bool
		code     int
		says     string
	}{
		{"y\n", true, []string{"doctor", "bob", "--fix"}, true, 0, "sysctl -w fs.inotify.max_user_instances=1024\nMend inotify? [y/N]"},
		{"n\n", true, []string{"doctor", "bob", "--fix"}, false, 1, "nothing was done\n      type the commands above yourself, as root"},
		{"", true, []string{"doctor", "bob", "--fix"}, false, 1, "nothing was done"},
		{"", false, []string{"doctor", "bob", "--fix"}, false, 8, "there is no terminal to ask at"},
		{"", false, []string{"doctor", "bob", "--fix", "--yes"}, true, 0, ""},
		{"", false, []string{"doctor", "--fix", "--yes"}, true, 1, "1 failed check left to you: connect of carol"},
		{"", false, []string{"doctor", "bob"}, false, 0, ""},
	} {
		b := world()
		k := serve(t, b)
		k.terminal, k.in = tc.terminal, strings.NewReader(tc.answer)
		out, errs, code := k.run(tc.args...)
		mends := slices.Contains(b.Called(), "FixFindings inotify")
		if mends != tc.mends || code != tc.code || !strings.Contains(errs, tc.says) || mends && !strings.Contains(out, "mended") {
			t.Errorf("%v %q: mends %t, exit %d: %s%s", tc.args, tc.answer, mends, code, out, errs)
		}
	}
	b := world()
	b.FixError = "sysctl: read-only file system"
	if out, errs, code := serve(t, b).run("doctor", "bob", "--fix", "--yes"); code != 1 || !strings.Contains(out, "not mended: inotify") || !strings.Contains(out, b.FixError) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	b = world()
	b.Findings = []api.Finding{{Area: api.AreaKernel, Name: "inotify", State: api.CheckOK, What: "enough"}}
	if out, errs, code := serve(t, b).run("doctor", "--fix", "--yes"); code != 0 || !strings.Contains(out, "nothing that is safe to be mended") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// TestWhatWasMendedWithAnotherIsNotLeftToTheOwner: a firewall that drops multicast is two findings and one repair.
func TestWhatWasMendedWithAnotherIsNotLeftToTheOwner(t *testing.T) {
	b := world()
	b.Findings = []api.Finding{
		{Area: api.AreaNetwork, Name: "multicast", State: api.CheckFail, What: "filtered", Do: "let it in"},
		{Area: api.AreaNetwork, Name: "firewalld", State: api.CheckFail, What: "blocks mdns", Do: "firewall-cmd --add-service=mdns", Fix: []string{"firewall-cmd --add-service=mdns"}},
	}
	b.Mends = map[string]string{"firewalld": "multicast"}
	if out, errs, code := serve(t, b).run("doctor", "--fix", "--yes"); code != 0 || strings.Contains(errs, "left to you") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

func TestABugReportIsListedBeforeItIsWritten(t *testing.T) {
	var archive bytes.Buffer
	if err := bugreport.Write(context.Background(), &archive, now, []bugreport.Part{bugreport.Text("logs/kithd.log", "the log", "all is well\n")}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		answer   string
		terminal bool
		args     []string
		written  bool
		code     int
	}{
		{"y\n", true, nil, true, 0},
		{"n\n", true, nil, false, 1},
		{"", false, nil, false, 8},
		{"", false, []string{"--yes"}, true, 0},
	} {
		b := world()
		b.Report = archive.Bytes()
		k := serve(t, b)
		k.terminal, k.in = tc.terminal, strings.NewReader(tc.answer)
		file := filepath.Join(t.TempDir(), "r.tar.gz")
		out, errs, code := k.run(append([]string{"bugreport", "-o", file}, tc.args...)...)
		info, err := os.Stat(file)
		if code != tc.code || (err == nil) != tc.written {
			t.Errorf("%v %q: exit %d, %v: %s%s", tc.args, tc.answer, code, err, out, errs)
			continue
		}
		if code != 8 && !strings.Contains(errs, "12 B  logs/kithd.log") {
			t.Errorf("not listed: %s", errs)
		}
		if tc.written {
			if text, _ := os.ReadFile(file); info.Mode().Perm() != 0o600 || !bytes.Equal(text, archive.Bytes()) || out != file+"\n" {
				t.Errorf("%v %q", info.Mode(), out)
			}
			if _, errs, code := k.run("bugreport", "--yes", "-o", file); code != 2 || !strings.Contains(errs, "file exists") {
				t.Errorf("written over: %d %s", code, errs)
			}
		}
	}
	b := world()
	b.Report = archive.Bytes()[:archive.Len()/2]
	if _, errs, code := serve(t, b).run("bugreport", "--yes", "-o", filepath.Join(t.TempDir(), "r")); code != 1 || !strings.Contains(errs, "the bug report is broken") {
		t.Errorf("half a report: %d %s", code, errs)
	}
}

func TestABugReportIsMadeWithoutKithd(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.tar.gz")
	out, errs, code := kith{socket: dir + "/none.sock"}.run("bugreport", "--yes", "-o", file)
	if code != 0 {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files, err := api.BugReportFiles(f)
	for _, name := range []string{"README.txt", "kithd.txt", "version.txt", "doctor.json", "logs/kithd.log", "network/addresses.txt"} {
		if !slices.ContainsFunc(files, func(f api.BugReportFile) bool { return f.Name == name && f.Size > 0 }) {
			t.Errorf("%s is missing: %s", name, fmt.Sprint(files, err))
		}
	}
}

// TestWhoMayNotTalkToKithdIsToldOfTheSocket: kithd runs, and the doctor must not say that it does not.
func TestWhoMayNotTalkToKithdIsToldOfTheSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kith.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error":{"code":"forbidden","message":"user mallory may not talk to kithd","do":"ask an administrator"}}`)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	out, errs, code := kith{socket: socket}.run("doctor", "-o", "json")
	var found []api.Finding
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 || found[0].Name != "socket" || found[0].State != api.CheckFail || !strings.Contains(found[0].What, "mallory") {
		t.Errorf("%v %d %+v %s", err, code, found, errs)
	}
}
