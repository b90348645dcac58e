package images

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The test program is also the kith-image of these tests.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != Program {
		os.Exit(m.Run())
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var p part
		if err := json.Unmarshal(line, &p); err != nil || p.Socket != "/c.sock" {
			panic(string(line))
		}
		if os.Args[1] != "read" || !answers(p) {
			do(p, in)
		}
	}
}

// answers is what a kith-image says that goes on after it; false: this is its last.
func answers(p part) bool {
	switch {
	case strings.Contains(p.Image, "gone"):
		fmt.Println(`{"why":"gone: not found","missing":true}`)
	case p.Image == "refused":
		fmt.Println(`{"why":"containerd is away"}`)
	case p.Image == "who":
		fmt.Printf(`{"mediaType":"m","digest":"%d"}`+"\n", os.Getpid())
	case filepath.IsAbs(p.Image):
		fmt.Printf(`{"mediaType":"m","digest":%q,"size":6,"file":%q}`+"\n", p.Digest, p.Image)
	default:
		return false
	}
	return true
}

func do(p part, in io.Reader) {
	switch {
	case strings.Contains(p.Image, "gone"):
		fmt.Fprintln(os.Stderr, "gone: not found")
		os.Exit(exitNotFound)
	case strings.Contains(p.Image, "broken"):
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<20))
		os.Exit(1)
	case os.Args[1] == "read" && p.Image == "silent":
		os.Exit(0)
	case os.Args[1] == "read":
		fmt.Printf(`{"mediaType":"m","digest":%q,"size":%d}`+"\n", p.Digest, 1<<30)
		for range 1 << 14 {
			if _, err := os.Stdout.Write(make([]byte, 1<<16)); err != nil {
				os.Exit(1)
			}
		}
	case os.Args[1] == "import" && p.Image == "endless":
		for {
			if _, err := os.Stdout.Write(make([]byte, 1<<16)); err != nil {
				os.Exit(1)
			}
		}
	case os.Args[1] == "import":
		n, _ := io.Copy(io.Discard, in)
		fmt.Printf(`[{"name":%q,"size":%d}]`, p.Image, n)
	case os.Args[1] == "list":
		fmt.Print(`[]`)
	}
	os.Exit(0)
}

func newStore(t *testing.T) *Store {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), Program)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	return &Store{Program: program, Socket: func() string { return "/c.sock" }}
}

func TestAPartIsReadAsFarAsItIsWanted(t *testing.T) {
	s := newStore(t)
	d, r, err := s.Open(t.Context(), Part{Image: "web", Digest: "sha256:1", From: 5})
	if err != nil || d.MediaType != "m" || d.Digest != "sha256:1" || d.Size != 1<<30 {
		t.Fatalf("%+v %v", d, err)
	}
	if n, err := io.CopyN(io.Discard, r, 1<<20); n != 1<<20 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if err := r.Close(); err != nil { // it does not wait for the rest
		t.Error(err)
	}
}

// who asks a kith-image for its process.
func who(t *testing.T, s *Store) string {
	t.Helper()
	d, r, err := s.Open(t.Context(), Part{Image: "who", Head: true})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); len(text) != 0 || err != nil || r.Close() != nil {
		t.Errorf("%q %v", text, err)
	}
	return d.Digest
}

// TestOneProcessAnswersManyQuestions, as long as it lives, and one that waits is enough.
func TestOneProcessAnswersManyQuestions(t *testing.T) {
	s := newStore(t)
	first := who(t, s)
	if _, _, err := s.Open(t.Context(), Part{Image: "gone"}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if again := who(t, s); again != first {
		t.Errorf("process %s answered, and then %s", first, again)
	}
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if next := who(t, s); next == first {
		t.Error("a process answers that was killed")
	}
	// One whose caller goes is not asked again.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Open(ctx, Part{Image: "who", Head: true}); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	who(t, s)
	_, stream, err := s.Open(t.Context(), Part{Image: "web", Digest: "sha256:1"}) // which sends bytes, and is nobody's to ask meanwhile
	if err != nil {
		t.Fatal(err)
	}
	third := who(t, s)
	if stream.Close(); who(t, s) != third {
		t.Error("the one that waited is gone")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { who(t, s) })
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare == nil {
		t.Error("none waits")
	}
}

// TestAPartIsReadFromItsFile: containerd's own, which kith-image names.
func TestAPartIsReadFromItsFile(t *testing.T) {
	s := newStore(t)
	file := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(file, []byte("abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, r, err := s.Open(t.Context(), Part{Image: file, Digest: "sha256:1", From: 4})
	if err != nil || d.MediaType != "m" || d.Digest != "sha256:1" || d.Size != 6 {
		t.Fatalf("%+v %v", d, err)
	}
	if text, err := io.ReadAll(r); string(text) != "ef" || err != nil || r.Close() != nil {
		t.Errorf("%q %v", text, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(t.Context(), Part{Image: file, Digest: "sha256:1"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("what was removed a moment ago: %v", err)
	}
}

func TestWhatKithImageSays(t *testing.T) {
	s := newStore(t)
	if _, _, err := s.Open(t.Context(), Part{Image: "gone"}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, _, err := s.Open(t.Context(), Part{Image: "refused"}); err == nil || errors.Is(err, ErrNotFound) || err.Error() != "containerd is away" {
		t.Error(err)
	}
	if _, _, err := s.Open(t.Context(), Part{Image: "broken"}); err == nil || errors.Is(err, ErrNotFound) || len(err.Error()) > 4<<10 {
		t.Errorf("%d bytes", len(fmt.Sprint(err)))
	}
	if _, _, err := s.Open(t.Context(), Part{Image: "silent"}); err == nil {
		t.Error("nothing was said, and taken for an image")
	}
	if err := s.Remove(t.Context(), "gone"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if list, err := s.Load(t.Context(), strings.NewReader("an archive"), "web"); err != nil || len(list) != 1 || list[0].Name != "web" || list[0].Size != 10 {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := s.Load(t.Context(), strings.NewReader(""), "endless"); err == nil || !strings.Contains(err.Error(), "lists more than") {
		t.Errorf("a list without an end: %v", err)
	}
	if list, err := s.List(t.Context()); err != nil || list == nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	s.Socket = func() string { return "" }
	if _, err := s.List(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Errorf("without a container runtime: %v", err)
	}
}
