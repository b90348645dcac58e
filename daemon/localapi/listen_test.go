package localapi

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kith.dev/core/api"
)

var quiet = slog.New(slog.DiscardHandler)

func socketPath(t *testing.T) string {
	dir, err := os.MkdirTemp("", "kith")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "kith.sock")
}

func TestSocketIsForOwnerAndGroup(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path, "no-such-group", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	for file, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o660, filepath.Dir(path): fs.ModeDir | 0o755} {
		if info, err := os.Stat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v, want %v", file, info.Mode(), err, want)
		}
	}
}

func TestSocketWithoutAGroupIsForItsOwner(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path, "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	who := refusal(&caller{credentials: credentials{uid: 12345}}, "").Error()
	if strings.Contains(who, "group") || !strings.Contains(who, "the user who started it") {
		t.Error(who)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	path := socketPath(t)
	l, err := listen(path, "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, err = listen(path, "", quiet)
	if !errors.Is(err, &api.Error{Code: api.CodeConflict}) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second: %v", err)
	}
	l.release()
	l, err = listen(path, "", quiet)
	if err != nil {
		t.Fatalf("after the first is gone: %v", err)
	}
	l.release()
}

func TestDaemonWithoutTheLockIsFoundByDialing(t *testing.T) {
	path := socketPath(t)
	os.MkdirAll(filepath.Dir(path), 0o755)
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := listen(path, "", quiet); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("err = %v, want conflict", err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the running daemon's socket was taken away: %v", err)
	} else {
		conn.Close()
	}
}

func TestSocketOfACrashedDaemonIsReplaced(t *testing.T) {
	path := socketPath(t)
	os.MkdirAll(filepath.Dir(path), 0o755)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd) // as a crash does: the file stays
	l, err := listen(path, "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	l.release()
}

func TestFileInTheWayIsNotRemoved(t *testing.T) {
	path := socketPath(t)
	os.MkdirAll(filepath.Dir(path), 0o755)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path, "", quiet); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("err = %v, want conflict", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("the file is now %q", b)
	}
}
