package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAReportIsWrittenThroughNoLink: root writes it into a folder where somebody else puts a link in its place, before and while it is
// written: what the link leads to is neither written to nor made.
func TestAReportIsWrittenThroughNoLink(t *testing.T) {
	dir, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(kept, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, none := filepath.Join(dir, "report"), filepath.Join(dir, "none")
	for _, to := range []string{kept, none} {
		if err := os.Symlink(to, file); err != nil {
			t.Fatal(err)
		}
		if err := writeNew(file, []byte("report")); !os.IsExist(err) {
			t.Errorf("a link to %s: %v", to, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { // puts links there as fast as it can
		n := 0
		for to := kept; ; {
			select {
			case <-stop:
				stopped <- n
				return
			default:
			}
			if os.Symlink(to, file) == nil {
				n++
			}
			os.Remove(file)
			if to == kept {
				to = none
			} else {
				to = kept
			}
		}
	}()
	written := 0
	for i := 0; i < 5000 || written == 0 && i < 1_000_000; i++ { // on a busy machine one of the two may hardly run
		if writeNew(file, []byte("report")) == nil {
			written++
		}
	}
	close(stop)
	if links := <-stopped; links == 0 || written == 0 {
		t.Errorf("%d links, %d written: there was no race", links, written)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "as it was" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Lstat(none); !os.IsNotExist(err) {
		t.Errorf("%s was made: %v", none, err)
	}
}
