package logfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAFullLogBeginsAnewAndOneBeforeItIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Logs", "Kith", "kithd.log")
	f, err := Open(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{"one\n", "two\n", "three\n", "four and more than fits\n", "5\n"} {
		if n, err := f.Write([]byte(record)); n != len(record) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := read(t, path); got != "5\n" {
		t.Errorf("%q", got)
	}
	if got := read(t, path+".1"); got != "four and more than fits\n" {
		t.Errorf("%q", got)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err = Open(path, 10) // kithd starts again
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write([]byte("six\n"))
	if got := read(t, path); got != "5\nsix\n" {
		t.Errorf("%q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if all, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(all) != 2 {
		t.Error(all)
	}
}

func TestALogThatCannotBeOpenedSaysSo(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Logs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(dir, "Logs", "kithd.log"), Full); err == nil || !strings.Contains(err.Error(), "Logs") {
		t.Error(err)
	}
}
