//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// older is the last commit whose daemons speak kith/v1.
const older = "5b97708"

// binariesOf builds kithd and kith of a commit, or takes those in the folder that a variable of the environment names.
func binariesOf(t *testing.T, commit, variable string) string {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("commit %s is not in this clone; set %s to the folder of its binaries", commit, variable)
	}
	dir := t.TempDir()
	build := exec.Command("sh", "-ec", `mkdir src && git -C "$1" archive "$2" | tar x -C src && cd src && go build -o "$3"/ ./cmd/kithd ./cmd/kith`, "sh", root, commit, dir)
	build.Dir, build.Env = t.TempDir(), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return dir
}

// run has the daemon and the command of a laptop be those of another directory, in whose configuration unknown, a key with a list, must not
// be; with "" those of the lab again.
func run(t *testing.T, p *lab.Laptop, bin, unknown string) {
	t.Helper()
	if err := p.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kithd", "kith"} {
		to, _, err := p.Exec(t.Context(), "sh", "-c", "command -v "+name)
		if err != nil {
			t.Fatal(err)
		}
		change := []string{"umount", strings.TrimSpace(to)}
		if bin != "" {
			program, err := os.ReadFile(filepath.Join(bin, name))
			if err != nil {
				t.Fatal(err)
			}
			there := "/var/lib/older-" + name // the laptop has a /tmp of its own
			if err := os.WriteFile(p.Path(there), program, 0o755); err != nil {
				t.Fatal(err)
			}
			change = []string{"mount", "--bind", there, strings.TrimSpace(to)}
		}
		if _, _, err := p.Exec(t.Context(), change...); err != nil {
			t.Fatal(err)
		}
	}
	if unknown != "" {
		if _, _, err := p.Exec(t.Context(), "sed", "-i", fmt.Sprintf("/^%[1]s:/,/^[^- ]/{/^%[1]s:/d;/^[- ]/d}", unknown), "/etc/kith/config.yaml"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
}

// TestAnOlderLaptopIsToldWhy peers two laptops of the version before, and brings first one of them and then the other up to
// date: in between each says what is wrong, whoever asks, and the contract waits.
func TestAnOlderLaptopIsToldWhy(t *testing.T) {
	bin := binariesOf(t, older, "KITH_OLDER_BIN")
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range []*lab.Laptop{alice, bob} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
		run(t, p, bin, "guestImages")
	}
	eventually(t, 30*time.Second, "alice sees bob", func() string { return map[bool]string{false: "not yet"}[peerOf(t, alice, "bob").Reachable] })
	kith(t, alice, "peer", "bob", "--cpu", "200m", "--memory", "256Mi", "--pods", "5", "--wait=false")
	accept(t, bob)
	connected := func() string {
		out, in := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
		if out.Outgoing != "connected" || in.Incoming != "connected" {
			return fmt.Sprintf("%+v; %+v", out, in)
		}
		return ""
	}
	eventually(t, 30*time.Second, "connected", connected)

	run(t, alice, "", "")
	const atAlice, atBob = "bob speaks kith/v1, this Kith speaks kith/v2", "alice speaks kith/v2, this Kith speaks kith/v1"
	// The older one keeps showing what was the matter first: that alice's kithd ended. Asked, it says why.
	eventually(t, 30*time.Second, "the contract is unreachable on both sides, and alice says why", func() string {
		out, in := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
		if out.Outgoing != "unreachable" || !strings.Contains(out.Why, atAlice) || in.Incoming != "unreachable" {
			return fmt.Sprintf("%+v; %+v", out, in)
		}
		return ""
	})
	for _, c := range []struct {
		at         *lab.Laptop
		whom, want string
	}{{alice, "bob", atAlice}, {bob, "alice", atBob}} {
		_, err := asking(t, c.at, "peer", c.whom, "--cpu", "300m", "--timeout", "20s")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "bring both to the same version of Kith") {
			t.Errorf("%s: kith peer %s: %v, want %q", c.at.Name(), c.whom, err, c.want)
		} else {
			t.Logf("%s: kith peer %s: %v", c.at.Name(), c.whom, err)
		}
	}
	// Nobody calls without end meanwhile: a contact is tried again four times a minute at most.
	time.Sleep(30 * time.Second)
	var security int
	for _, p := range []*lab.Laptop{alice, bob} {
		var events []struct{ Type, Message string }
		if err := json.Unmarshal([]byte(kith(t, p, "events", "-o", "json")), &events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type == "Security" {
				security++
				t.Logf("%s: %s", p.Name(), e.Message)
			}
		}
	}
	if security > 0 {
		t.Errorf("%d warnings about peers that only are of another version", security)
	}

	run(t, bob, "", "")
	eventually(t, time.Minute, "connected again, under the same contract", connected)
}
