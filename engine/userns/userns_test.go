package userns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Inside(); err != nil {
			fmt.Fprint(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWhatCannotBeMappedIsSaid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("user namespaces of others need root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Log("this machine:", Try(self, t.TempDir()))
	// proc is a file system that never can.
	if err := Try(self, "/proc"); err == nil || !strings.Contains(err.Error(), "/proc cannot be mapped") {
		t.Errorf("%v", err)
	}
	if err := Try(self, filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v", err)
	}
	if err := Try("/bin/false"); err == nil {
		t.Error("a child that fails is taken for a yes")
	}
}
