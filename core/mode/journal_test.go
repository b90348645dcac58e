package mode

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
)

func sample() *journal {
	return &journal{Version: journalVersion, Goal: api.Tethered, Step: joining, Since: time.Unix(1700000000, 0).UTC(), Peer: "corp", ID: corpID, Attempt: 7,
		LocalWorkloads: api.DrainWorkloads, User: "kith:laptop:x", Namespaces: []string{"team-a (edit)"}, Timeout: time.Minute}
}

func TestAJournalComesBackAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mode.json")
	if j, err := readJournal(path); j != nil || err != nil {
		t.Errorf("of no file: %v %v", j, err)
	}
	for range 2 {
		if err := writeJournal(path, sample()); err != nil {
			t.Fatal(err)
		}
	}
	if j, err := readJournal(path); err != nil || !reflect.DeepEqual(j, sample()) {
		t.Errorf("%+v %v", j, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for range 2 {
		if err := writeJournal(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestADamagedJournalIsNotGuessedAt(t *testing.T) {
	whole, _ := json.Marshal(sample())
	for name, c := range map[string]struct{ text, says string }{
		"empty":      {"", "damaged"},
		"torn":       {string(whole[:len(whole)/2]), "damaged"},
		"zeroes":     {strings.Repeat("\x00", 512), "damaged"},
		"two":        {string(whole) + string(whole), "damaged"},
		"newer":      {`{"version":2,"goal":"Hibernating"}`, "a newer Kith wrote it: its version is 2, and this Kith knows 1"},
		"unknown":    {strings.Replace(string(whole), `"attempt"`, `"atempt"`, 1), "damaged"},
		"no step":    {strings.Replace(string(whole), `"joining"`, `"waiting"`, 1), `there is no step "waiting"`},
		"wrong goal": {strings.Replace(string(whole), `"joining"`, `"leaving"`, 1), `the step leaving does not lead to "Tethered"`},
		"nobody":     {strings.Replace(string(whole), corpID, "corp", 1), "it does not say with whom"},
		"long":       {strings.Repeat(" ", maxJournal) + string(whole), "too long"},
	} {
		path := filepath.Join(t.TempDir(), "mode.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(Config{Path: path})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzJournal(f *testing.F) {
	whole, _ := json.Marshal(sample())
	f.Add(whole)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := parseJournal(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseJournal(again); err != nil || !reflect.DeepEqual(back, j) {
			t.Errorf("%q: %v, %+v and %+v", data, err, back, j)
		}
	})
}
