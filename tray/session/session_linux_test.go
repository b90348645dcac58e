package session_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"kith.dev/test/bustest"
	"kith.dev/tray/session"
)

func open(t *testing.T) *session.Session {
	t.Helper()
	s, err := session.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestSecondStartWakesTheFirst(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bustest.Start(t).Address)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	one, two := open(t), open(t)
	if first, err := one.Claim(t.Context(), log); !first || err != nil {
		t.Fatal(first, err)
	}
	for range 3 {
		if first, err := two.Claim(t.Context(), log); first || err != nil {
			t.Fatal(first, err)
		}
		select {
		case <-one.Activated():
		case <-time.After(2 * time.Minute):
			t.Fatal("the first was not told")
		}
	}
	one.Close() // as a crash does
	if first, err := open(t).Claim(t.Context(), log); !first || err != nil {
		t.Error("the name of a tray that is gone is not free: ", first, err)
	}
}

func TestWithoutABusTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
	if _, err := session.Open(); err == nil || !strings.Contains(err.Error(), "--once") {
		t.Error(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if _, err := session.Open(); err == nil || !strings.Contains(err.Error(), "--once") {
		t.Error(err)
	}
}
