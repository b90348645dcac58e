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

// calls are those of a kubectl that notes each on a line and plays a cluster in which a pod goes through some states, given as JSON of its
// status; after the first that is running comes the next when its output was shown.
func calls(t *testing.T, exists bool, states ...string) (taken func() []string, manifest func() string) {
	bin := t.TempDir()
	at := func(name string) string { return filepath.Join(bin, name) }
	watch := ""
	for _, s := range states {
		watch += `echo '{"spec":{"nodeName":"kith-bob"},"status":` + s + `}'` + "\n"
		if strings.Contains(s, "running") {
			watch += "while [ ! -e " + at("shown") + " ]; do sleep 0.01; done\n"
		}
	}
	script := `#!/bin/sh
for a in "$@"; do printf '%s\037' "$a"; done >> ` + at("log") + `
echo >> ` + at("log") + `
case "$1 $3 $4" in
"get "*) ` + map[bool]string{true: "exit 0", false: "exit 1"}[exists] + ` ;;
*"create -f") cat > ` + at("manifest") + ` ;;
*"get pod") ` + watch + `exec sleep 100 ;;
*"attach "*) cat; touch ` + at("shown") + ` ;;
*"logs --follow") echo what it prints; touch ` + at("shown") + ` ;;
esac
`
	if err := os.WriteFile(at("kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	taken = func() (lines []string) {
		text, _ := os.ReadFile(at("log"))
		_, _ = os.Remove(at("log")), os.Remove(at("shown"))
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(line), "\037"), "\037", " "))
		}
		return lines
	}
	return taken, func() string { text, _ := os.ReadFile(at("manifest")); return string(text) }
}

const (
	pending = `{"phase":"Pending"}`
	runs    = `{"phase":"Running","containerStatuses":[{"state":{"running":{}}}]}`
	ended   = `{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":7,"reason":"Error","message":"a last word"}}}]}`
)

// TestRunMakesAPodAndTakesItAway: where it is to run, with what, and that nothing is left of it.
func TestRunMakesAPodAndTakesItAway(t *testing.T) {
	k := serve(t, world())
	taken, manifest := calls(t, false, pending, runs, ended)
	k.in = strings.NewReader("what comes in")
	out, errs, code := k.run("run", "-i", "--at", "bob", "--cpu", "2", "-e", "A=b c", "Shop/Tests_x:dev", "-v", "--at", "x")
	if code != 7 || out != "what comes in" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	var pod struct {
		Metadata struct{ Name string }
		Spec     struct {
			Containers []struct {
				Image     string
				Args      []string
				Env       []struct{ Name, Value string }
				Stdin     bool
				Resources struct{ Requests, Limits map[string]string }
			}
			Affinity struct{ NodeAffinity json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(manifest()), &pod); err != nil {
		t.Fatal(err)
	}
	name := pod.Metadata.Name
	lines, want := taken(), []string{
		"get namespace run", "create namespace run", "-n run create -f -", "-n run get pod " + name + " --watch -o json",
		"-n run attach " + name + " --quiet --stdin", "-n run delete pod " + name + " --ignore-not-found --wait=false",
	}
	if !slices.Equal(lines, want) || !strings.HasPrefix(name, "tests-x-") {
		t.Errorf("%q", lines)
	}
	c := pod.Spec.Containers[0]
	if c.Image != "Shop/Tests_x:dev" || !slices.Equal(c.Args, []string{"-v", "--at", "x"}) || c.Env[0].Value != "b c" || !c.Stdin || c.Resources.Requests["cpu"] != "2" || c.Resources.Limits["cpu"] != "2" {
		t.Errorf("%+v", c)
	}
	if where := string(pod.Spec.Affinity.NodeAffinity); where != `{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kith.dev/peer","operator":"In","values":["bob"]}]}]}}` {
		t.Errorf("%s", where)
	}
	if out, _, code := k.run("run", "--at", "home", "x"); code != 7 || out != "what it prints\n" || !strings.Contains(manifest(), `"operator":"DoesNotExist"`) {
		t.Errorf("at home: %d %q", code, out)
	}
}

func TestRunRefusesWhatCannotRun(t *testing.T) {
	w := world()
	k := serve(t, w)
	taken, _ := calls(t, true, pending, ended)
	for _, c := range []struct{ args, errs string }{
		{"run", "IMAGE"},
		{"run -t x", "-t needs a terminal"},
		{"run -e A x", `"A" sets no variable`},
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
	if _, _, code := k.run("run", "x"); code != 7 || slices.ContainsFunc(w.Abroad, func(o api.Offload) bool { return o.Namespace == "run" }) {
		t.Errorf("%d", code)
	}
}

// TestRunSaysWhyNothingRan: what cannot pass ends it, with the reason, and nothing is left.
func TestRunSaysWhyNothingRan(t *testing.T) {
	waits := func(reason string) string {
		return `{"phase":"Pending","containerStatuses":[{"state":{"waiting":{"reason":"` + reason + `","message":"no such image"}}}]}`
	}
	for name, c := range map[string]struct {
		states []string
		errs   string
		code   int
	}{
		"an image that is nowhere":              {[]string{pending, waits("ErrImagePull"), waits("ImagePullBackOff")}, "no such image", 1},
		"an image that comes at the second try": {[]string{waits("ErrImagePull"), runs, ended}, "", 7},
		"a program that is not there":           {[]string{`{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":128,"reason":"StartError","message":"exec: not found"}}}]}`}, "exec: not found", 1},
		"a peer that refuses":                   {[]string{`{"phase":"Pending","reason":"PodSecurity","message":"bob refuses: not here"}`, `{"phase":"Failed","reason":"PodSecurity","message":"bob refuses: not here"}`}, "bob refuses: not here", 1},
		"a watch that ends":                     {[]string{"not json"}, "the pod is not seen any more", 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := serve(t, world())
			taken, _ := calls(t, true, c.states...)
			_, errs, code := k.run("run", "x")
			if (code == 7) != (c.code == 7) || code == 0 || !strings.Contains(errs, c.errs) {
				t.Errorf("%d %q", code, errs)
			}
			if lines := taken(); !strings.Contains(lines[len(lines)-1], "delete pod") {
				t.Errorf("%q", lines)
			}
		})
	}
}

// TestPushHasPeersGetAnImage: nothing of it is run, and who could not get it is said with the reason.
func TestPushHasPeersGetAnImage(t *testing.T) {
	k := serve(t, world())
	started := `{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":128,"reason":"StartError","message":"no such file"}}}]}`
	taken, manifest := calls(t, true, pending, started)
	if out, errs, code := k.run("image", "push", "shop/web:dev"); code != 0 || out != "bob has shop/web:dev\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if text := manifest(); !strings.Contains(text, `"command":["/.kith-image-push"]`) || !strings.Contains(text, `"values":["bob"]`) {
		t.Error(text)
	}
	if lines := taken(); !strings.Contains(lines[len(lines)-1], "delete pod") {
		t.Errorf("%q", lines)
	}
	calls(t, true, `{"phase":"Pending","containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}`)
	if out, errs, code := k.run("image", "push", "shop/web:dev", "--to", "bob"); code == 0 || out != "" || !strings.Contains(errs, "bob has not got the image shop/web:dev: bob: the command was not run: no such image") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if _, errs, code := k.run("image", "push", "shop/web:dev", "--to", "carol"); code == 0 || !strings.Contains(errs, "carol runs nothing for this laptop") {
		t.Errorf("%d %q", code, errs)
	}
}
