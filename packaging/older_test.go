package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackagesRefuseWhatIsOlder: over data of a newer version nothing older is installed, and it says why.
func TestPackagesRefuseWhatIsOlder(t *testing.T) {
	const version = "1.2.0"
	for _, c := range []struct {
		name, was string
		data      bool
		refused   bool
	}{
		{"first", "", false, false},
		{"upgrade", "1.1.9", true, false},
		{"the same again", version, true, false},
		{"downgrade", "1.10.0", true, true},
		{"downgrade from some commits later", "1.2.0+3.gabcdef0", true, true},
		{"from before the first tag", "0.0~20261122232127.9537fd1", true, false},
		{"downgrade with no data", "1.10.0", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, there := range map[string]bool{"data/k8s": c.data, "lib/": c.was != ""} {
				if there {
					put(t, root, name+"/file")
				}
			}
			if err := os.WriteFile(filepath.Join(root, "lib/version"), []byte(c.was+"\n"), 0o644); err != nil && c.was != "" {
				t.Fatal(err)
			}
			check := func(script string, args ...string) {
				t.Helper()
				text, err := os.ReadFile(script)
				if err != nil {
					t.Fatal(err)
				}
				filled := strings.NewReplacer("@version@", version, "@libexecdir@", root+"/lib", "/var/lib/kith", root+"/data").Replace(string(text))
				out, err := exec.Command("/bin/sh", append([]string{"-c", filled, "sh"}, args...)...).CombinedOutput()
				if refused := err != nil; refused != c.refused {
					t.Errorf("%s: %v\n%s", script, err, out)
				}
				if c.refused && (!strings.Contains(string(out), "version "+version+" is older than "+c.was) || !strings.Contains(string(out), "Nothing was changed.")) {
					t.Errorf("%s says: %s", script, out)
				}
			}
			if _, err := exec.LookPath("dpkg"); err == nil && c.was != "" {
				check("deb/preinst.in", "upgrade", c.was)
				check("deb/preinst.in", "install", c.was) // over what `remove` left
			} else if err == nil {
				check("deb/preinst.in", "install")
			}
			if c.was == "" {
				check("rpm/pre.in", "1")
			} else {
				check("rpm/pre.in", "2")
			}
		})
	}
}
