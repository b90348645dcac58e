package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/images"
)

const echoPod = `
apiVersion: v1
kind: Pod
metadata: {name: echo}
spec:
  terminationGracePeriodSeconds: 10
  containers:
  - name: echo
    image: kith.dev/echo:1
    env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
`

// The real thing: kithd, the built-in Kubernetes, a container of an image of ours.
func TestALaptopRunsPods(t *testing.T) {
	bin, err := FindBin("")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"kithd", "kith-k8s", "kith-lab"} {
		if _, err := os.Stat(filepath.Join(bin, b)); err != nil || testing.Short() {
			t.Skip("needs the real binaries (make build) and some 20 s: ", err)
		}
	}
	tars, err := images.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, 1, func(o *Options) { o.NoEngine, o.Bin, o.Daemon = false, bin, nil })
	alice, ctx := l.Laptop("alice"), t.Context()
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := alice.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, tar := range tars {
		if err := alice.ImportImage(ctx, tar); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := alice.KubectlInput(ctx, strings.NewReader(echoPod), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	kubectl("wait", "--for=condition=Ready", "pod/echo", "--timeout=60s")
	if out := kubectl("exec", "echo", "--", "/app", "get", "http://127.0.0.1:8080/"); !strings.Contains(out, `"node": "alice"`) {
		t.Errorf("the pod says %s", out)
	}

	// kubectl cp, there and back, by the tar in the image.
	if _, _, err := alice.Exec(ctx, "sh", "-ec", "mkdir -p /tmp/d/e; echo hello > /tmp/d/e/f"); err != nil {
		t.Fatal(err)
	}
	kubectl("cp", "/tmp/d", "echo:/tmp/d")
	kubectl("cp", "echo:/tmp/d", "/tmp/back")
	if b, err := os.ReadFile(alice.Path("/tmp/back/e/f")); err != nil || string(b) != "hello\n" {
		t.Errorf("copied there and back: %q, %v", b, err)
	}

	// A power loss; WaitReady must not be content with the Ready from before.
	if err := alice.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	if err := alice.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if err := alice.WaitReady(ctx, nil); err != nil {
		t.Fatal(err)
	}
	beat := kubectl("get", "node", "alice", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}`)
	if at, err := time.Parse(time.RFC3339, beat); err != nil || at.Before(lost.Truncate(time.Second)) {
		t.Errorf("ready by a heartbeat of %s, power came back at %s", beat, lost)
	}
	eventually(t, 60*time.Second, func() bool {
		out, err := alice.Kubectl(ctx, "exec", "echo", "--", "/app", "get", "http://127.0.0.1:8080/")
		return err == nil && strings.Contains(out, `"node": "alice"`)
	})
}
