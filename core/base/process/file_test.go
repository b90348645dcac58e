package process

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLongLogIsMovedAside(t *testing.T) {
	const limit = 1 << 20
	path := filepath.Join(t.TempDir(), "server.log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(limit); err != nil {
		t.Fatal(err)
	}
	if err := TrimLog(path, limit); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new\n"); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "new\n" {
		t.Errorf("the log holds %d bytes, want only what was written since", len(b))
	}
	if st, err := os.Stat(path + ".1"); err != nil || st.Size() != limit {
		t.Errorf("the old log: %v, %v", st, err)
	}
}
