package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
)

// TestTheUsersProgramsStaySmall: they talk to kithd's socket. What looks at the machine, and all of Kubernetes, is in the program of kithd.
func TestTheUsersProgramsStaySmall(t *testing.T) {
	heavy := []string{"k8s.io/", "sigs.k8s.io/controller-runtime", "kith.dev/daemon/", "kith.dev/core/find/discovery", "kith.dev/core/agree/peering", "kith.dev/core/net/gateway", "kith.dev/core/net/hostnet",
		"github.com/google/nftables", "github.com/vishvananda/", "github.com/miekg/dns", "golang.zx2c4.com/", "github.com/prometheus/"}
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.Command("go", "list", "-deps", "kith.dev/cmd/kith", "kith.dev/cmd/kith-tray")
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		for pkg := range strings.Lines(string(out)) {
			for _, h := range heavy {
				if strings.HasPrefix(pkg, h) {
					t.Errorf("on %s kith or kith-tray links %s", system, strings.TrimSpace(pkg))
				}
			}
		}
		if !strings.Contains(string(out), "kith.dev/core/api/client\n") {
			t.Errorf("on %s: %s", system, out)
		}
	}
}

func TestTheMachineIsLookedAtWithoutKithd(t *testing.T) {
	out, errs, code := kith{socket: t.TempDir() + "/none.sock"}.run("doctor", "-o", "json")
	var found []api.Finding
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 || found[0].Name != "kithd" || found[0].State != api.CheckFail {
		t.Fatalf("%v %d %s%s", err, code, out, errs)
	}
	for _, area := range []string{api.AreaDisk, api.AreaKernel, api.AreaPorts} {
		if !slices.ContainsFunc(found, func(f api.Finding) bool { return f.Area == area }) {
			t.Errorf("nothing of %s: %s", area, out)
		}
	}
}

// No socket is missing where there never is one.
func TestTheAgentOfANodeIsNoKithdThatIsMissing(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kithd")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho '{\"area\":\"daemon\",\"name\":\"agent\",\"state\":\"ok\",\"what\":\"this is the agent of node corp-2\"}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := kith{socket: t.TempDir() + "/none.sock", kithd: program, agent: "kith-system/kith"}
	for _, args := range [][]string{{"doctor"}, {"doctor", "bob"}} {
		out, errs, code := k.run(args...)
		if code != 0 || errs != "" || !strings.Contains(out, "this is the agent of node corp-2") || strings.Contains(out, "sock") || !strings.Contains(out, "1 ok, 0 warnings, 0 failed") {
			t.Errorf("%q: %d %s%s", args, code, out, errs)
		}
	}
}

// TestAProgramOfKithdThatDoesNotLookIsAFinding: kithd may be missing, of another version, or broken, which is what somebody who asks the doctor
// wants to hear.
func TestAProgramOfKithdThatDoesNotLookIsAFinding(t *testing.T) {
	for name, tc := range map[string]struct{ script, why string }{
		"of another version": {"echo 'unknown command \"doctor\"' >&2; exit 1", `unknown command "doctor"`},
		"no JSON":            {"echo hello", "invalid character"},
		"without end":        {`yes '{"area":"disk"}'`, "it wrote more than"},
	} {
		program := filepath.Join(t.TempDir(), "kithd")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		out, errs, code := kith{socket: t.TempDir() + "/none.sock", kithd: program}.run("doctor", "-o", "json")
		var found []api.Finding
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 {
			t.Fatalf("%s: %v %d %.300s%s", name, err, code, out, errs)
		}
		if f := found[len(found)-1]; f.Name != "program" || f.State != api.CheckFail || !strings.Contains(f.Why, tc.why) || f.Do == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if _, errs, code := (kith{socket: t.TempDir() + "/none.sock", kithd: program}).run("bugreport", "--yes", "-o", filepath.Join(t.TempDir(), "r")); code == 0 {
			t.Errorf("%s: a report: %s", name, errs)
		}
	}
}
