//go:build packages && soak

package packages

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// before is the last commit with packages whose programs do not note which Kith wrote what is stored.
const before = "f72c7cc"

// packageOf builds the package of a commit by its own scripts, or takes the one that KITH_BEFORE_DEB names.
func packageOf(t *testing.T, commit string) string {
	t.Helper()
	if deb := os.Getenv("KITH_BEFORE_DEB"); deb != "" {
		return deb
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("commit %s is not in this clone; set KITH_BEFORE_DEB to its package", commit)
	}
	tree, out := filepath.Join(t.TempDir(), "tree"), t.TempDir()
	must(t, "git", "-C", root, "worktree", "add", "--detach", tree, commit)
	t.Cleanup(func() { must(t, "git", "-C", root, "worktree", "remove", "--force", tree) })
	must(t, "env", "-u", "KITH_BIN", "COMPRESSION=zstd", "VERSION="+older, "OUT="+out, tree+"/scripts/package.sh", "--build", "deb", "amd64")
	found, err := filepath.Glob(out + "/*.deb")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// TestAnUpgradeFromThePackageBefore: the programs and the scripts of an earlier commit are upgraded under a pod that serves, and what they
// left goes with the purge.
func TestAnUpgradeFromThePackageBefore(t *testing.T) {
	m := newMachine(t, cmp.Or(os.Getenv("SUITE"), "bookworm"))
	debs := map[string]string{older: packageOf(t, before), newer: pack(t, newer, 1700000001)}
	for version, deb := range debs {
		debs[version] = "/root/" + filepath.Base(deb)
		must(t, "cp", deb, m.root+debs[version])
	}
	m.prepare()
	m.must("dpkg", "--install", "/root/netbase.deb")
	was := m.snapshot()
	step := m.story(t)
	step("the one before runs", func(t *testing.T) {
		m.must("apt-get", "install", "-y", "--no-install-recommends", debs[older])
		m.works()
		m.runApp()
		if out, err := m.try("test", "-e", "/var/lib/kith/version"); err == nil {
			t.Errorf("it notes who wrote what is stored: it is no earlier one %s", out)
		}
	})
	step("upgraded, the pod and who speaks with it notice nothing", func(t *testing.T) {
		m.under(func() { m.must("apt-get", "install", "-y", "--no-install-recommends", debs[newer]) })
		if out := m.must("cat", "/var/lib/kith/k8s/version"); !strings.Contains(out, "KUBERNETES=1.") {
			t.Error(out)
		}
	})
	step("purged, the machine is as it was", func(*testing.T) {
		m.must("apt-get", "purge", "-y", "kith")
		m.same(was)
	})
}
