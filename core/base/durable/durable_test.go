package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "note")
	for _, text := range []string{"first", "second, and longer", ""} {
		if err := WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(got) != text || info.Mode().Perm() != 0o640 {
			t.Errorf("%q %v, %v", got, info.Mode(), err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	for range 2 { // the second finds nothing
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// What cannot be written leaves what was there, and nothing beside it.
func TestWhatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "note")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("text"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || !left[0].IsDir() {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := WriteFile(filepath.Join(dir, "none", "note"), nil, 0o600); err == nil {
		t.Error("written into a directory that is not there")
	}
}
