package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// front is a kubeconfig as kithd gives it.
const front = `apiVersion: v1
kind: Config
clusters:
- {name: kith, cluster: {server: "https://127.0.0.1:6451", certificate-authority-data: Y2E=}}
users:
- {name: alice, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
contexts:
- {name: kith, context: {cluster: kith, user: alice}}
current-context: kith
`

func TestAKubeconfigIsMergedIntoOnesOwn(t *testing.T) {
	backend := world()
	backend.Config = []byte(front)
	k := serve(t, backend)
	k.home = t.TempDir()
	file := filepath.Join(k.home, ".kube", "config")
	path := t.TempDir()
	t.Setenv("PATH", path)
	if out, _, _ := k.run("kubeconfig", "--merge"); !strings.HasSuffix(out, "\nkith-k8s kubectl get nodes\n") {
		t.Errorf("without a kubectl: %s", out)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(path, "kubectl"), nil, 0o755), os.Remove(file)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args, file string // the file before; "" leaves it
		out, errs  string
		code       int
	}{
		{"kubeconfig --merge", "", "the context kith is in " + file + ", and is the current one\nkubectl get nodes\n", "", 0},
		{"kubeconfig --merge", "current-context: work\n", "the context kith is in " + file + "\nthe file as it was: " + file + ".before-kith\nkubectl --context kith get nodes\n", "", 0},
		{"kubeconfig --merge --use", "", "the context kith is in " + file + ", and is the current one\nthe file as it was: " + file + ".before-kith\nkubectl get nodes\n", "", 0},
		{"kubeconfig --merge", "contexts: [{name: kith, context: {cluster: a, user: b}}]\n", "",
			"kith: there is a context named kith already that is not Kith's, in " + file + ": nothing was changed; choose another name with `kith kubeconfig --merge --context NAME`\n", 1},
		{"kubeconfig --merge --context laptop", "", "the context laptop is in " + file + ", and is the current one\nthe file as it was: " + file + ".before-kith\nkubectl get nodes\n", "", 0},
		{"kubeconfig --use", "", "", "kith: --use and --context say how to merge: they need --merge\n      see `kith kubeconfig --help`\n", 2},
	} {
		if step.file != "" {
			if err := os.WriteFile(file, []byte(step.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, errs, code := k.run(strings.Fields(step.args)...)
		if out != step.out || errs != step.errs || code != step.code {
			t.Errorf("kith %s: exit %d, want %d\n%s%s", step.args, code, step.code, out, errs)
		}
		if strings.Contains(out+errs, "a2V5") {
			t.Errorf("kith %s: the key is printed", step.args)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "a2V5") || !strings.Contains(string(text), "current-context: laptop") {
		t.Errorf("%v\n%s", err, text)
	}
}
