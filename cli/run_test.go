package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
)

// calls are those of a kubectl that notes each on a line, answers get with a failure, and ends what it runs with 7.
func calls(t *testing.T, exists bool) (taken func() []string) {
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	script := `#!/bin/sh
for a in "$@"; do printf '%s\037' "$a"; done >> ` + log + `
echo >> ` + log + `
case "$1 $3" in
"get "*) ` + map[bool]string{true: "exit 0", false: "exit 1"}[exists] + ` ;;
"-n run") cat; exit 7 ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return func() (lines []string) {
		text, _ := os.ReadFile(log)
		_ = os.Remove(log)
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.TrimSuffix(strings.TrimSpace(line), "\037"))
		}
		return lines
	}
}

// TestRunMakesAPodAndTakesItAway: where it is to run, with what, and that nothing is left of it.
func TestRunMakesAPodAndTakesItAway(t *testing.T) {
	k := serve(t, world())
	taken := calls(t, false)
	k.in = strings.NewReader("what comes in")
	out, errs, code := k.run("run", "-i", "--at", "bob", "--cpu", "2", "-e", "A=b c", "Shop/Tests_x:dev", "-v", "--at", "x")
	if code != 7 || out != "what comes in" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	lines := taken()
	if len(lines) != 4 || lines[0] != "get\037namespace\037kith-run" || lines[1] != "create\037namespace\037kith-run" {
		t.Fatalf("%q", lines)
	}
	args := strings.Split(lines[2], "\037")
	name := args[3]
	if !strings.HasPrefix(name, "tests-x-") || !strings.HasSuffix(lines[2], "--stdin\037--env\037A=b c\037--\037-v\037--at\037x") {
		t.Errorf("%q", args)
	}
	if lines[3] != "-n\037kith-run\037delete\037pod\037"+name+"\037--ignore-not-found\037--wait=false" {
		t.Errorf("%q", lines[3])
	}
	var pod struct {
		Spec struct {
			Containers []struct {
				Name      string
				Resources struct{ Requests, Limits map[string]string }
			}
			Affinity struct{ NodeAffinity map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(args[slices.Index(args, "--overrides")+1]), &pod); err != nil {
		t.Fatal(err)
	}
	if c := pod.Spec.Containers; len(c) != 1 || c[0].Name != name || c[0].Resources.Requests["cpu"] != "2" || c[0].Resources.Limits["cpu"] != "2" {
		t.Errorf("%+v", c)
	}
	where, _ := json.Marshal(pod.Spec.Affinity.NodeAffinity)
	if string(where) != `{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kith.dev/peer","operator":"In","values":["bob"]}]}]}}` {
		t.Errorf("%s", where)
	}
	if _, _, code := k.run("run", "--at", "home", "x"); code != 7 {
		t.Errorf("at home: %d", code)
	}
	if lines := taken(); len(lines) < 2 || !strings.Contains(lines[len(lines)-2], `"operator":"DoesNotExist"`) {
		t.Errorf("at home: %q", lines)
	}
}

func TestRunRefusesWhatCannotRun(t *testing.T) {
	w := world()
	k := serve(t, w)
	taken := calls(t, true)
	for _, c := range []struct{ args, errs string }{
		{"run", "IMAGE"},
		{"run -t x", "-t needs a terminal"},
		{"run --at carol x", "carol runs nothing for this laptop"},
		{"run --at bob -n elsewhere x", "`kith offload elsewhere`"},
	} {
		if _, errs, code := k.run(strings.Fields(c.args)...); code == 0 || code == 7 || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: %d %q", c.args, code, errs)
		}
	}
	if lines := taken(); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
	// A namespace that its owner has brought home stays there.
	if _, _, code := k.run("run", "x"); code != 7 || slices.ContainsFunc(w.Abroad, func(o api.Offload) bool { return o.Namespace == "kith-run" }) {
		t.Errorf("%d", code)
	}
}
