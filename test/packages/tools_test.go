//go:build packages

package packages

import (
	"path/filepath"
	"testing"
)

// TestTheToolsOfDistributionsFindNoErrors: lintian and rpm, and what is in a package starts (scripts/check-package.sh).
func TestTheToolsOfDistributionsFindNoErrors(t *testing.T) {
	out := t.TempDir()
	must(t, "env", "COMPRESSION=gzip", "OUT="+out, "../../scripts/package.sh", "deb") // lintian reads no zstd
	must(t, "env", "COMPRESSION=zstd", "OUT="+out, "../../scripts/package.sh", "rpm")
	found, err := filepath.Glob(out + "/*")
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	t.Log(must(t, append([]string{"../../scripts/check-package.sh"}, found...)...))
}

// TestTheCopyrightNamesWhatIsShipped: the modules that the programs say are in them, with licences somebody has read.
func TestTheCopyrightNamesWhatIsShipped(t *testing.T) {
	must(t, "../../scripts/licences.sh", "--check")
}
