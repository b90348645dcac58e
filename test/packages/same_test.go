//go:build packages

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheSameCommitGivesTheSameBytes: packages that are made twice are equal, and so are programs that are built in different places.
func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	sums := func(what ...string) string {
		t.Helper()
		out := t.TempDir()
		must(t, append([]string{"env", "COMPRESSION=zstd", "OUT=" + out, "../../scripts/package.sh"}, what...)...)
		found, err := filepath.Glob(out + "/*")
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return strings.Fields(must(t, "sha256sum", found[0]))[0] + " " + filepath.Base(found[0])
	}
	for _, format := range []string{"deb", "rpm"} {
		if a, b := sums(format), sums(format); a != b {
			t.Errorf("%s, then %s", a, b)
		}
	}

	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(t.TempDir(), "another", "place")
	if err := os.MkdirAll(there, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "sh", "-ec", `cd "$1"; git ls-files -co --exclude-standard -z -- go.mod go.sum cli cmd core daemon docs assets packaging | xargs -0 cp --parents -t "$2"`, "sh", here, there)
	var built []string
	for _, dir := range []string{here, there} {
		out := filepath.Join(t.TempDir(), "kith")
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./cmd/kith")
		build.Dir = dir
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		built = append(built, strings.Fields(must(t, "sha256sum", out))[0])
	}
	if built[0] != built[1] {
		t.Error("kith depends on the place where it is built")
	}
}
