package notice

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSentences(t *testing.T) {
	for in, want := range map[string]string{"": "", "no disk": "No disk.", "why?": "Why?", "Done.": "Done."} {
		if got := sentence(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestSettingsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kith", "notifications.json")
	s, err := LoadSettings(path)
	if err != nil || !s.Shows(PeerBack) {
		t.Fatal(s, err)
	}
	if err := s.With(PeerBack, false).With(Tray, false).Save(path); err != nil {
		t.Fatal(err)
	}
	s, err = LoadSettings(path)
	if err != nil || s.Shows(PeerBack) || !s.Shows(Request) || !s.Shows(Tray) || !slices.Equal(s.Muted, []Kind{PeerBack, Tray}) {
		t.Fatal(s, err)
	}
	if s = s.With(PeerBack, true); !s.Shows(PeerBack) {
		t.Error(s)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = LoadSettings(path); err == nil || !s.Shows(PeerBack) || !strings.Contains(err.Error(), path) {
		t.Error(s, err)
	}
	if err := os.WriteFile(path, make([]byte, maxSettings+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = LoadSettings(path); err == nil {
		t.Error("a huge file was read")
	}
}
