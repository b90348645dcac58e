package datastore

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestNobodyButRootSpeaksToTheDatastore(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir, err := os.MkdirTemp("", "ds-") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	s, err := Open(filepath.Join(dir, "db", "state.db"), socket, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	defer s.close()
	st, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := st.Mode().Perm(); mode != 0o600 {
		t.Errorf("the socket has mode %o, want 600", mode)
	}
}
