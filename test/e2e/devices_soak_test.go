//go:build lab && soak

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// plugDevices runs test/widgets, a device plugin, beside the laptop's kubelet, and waits until the node has that many.
func plugDevices(t *testing.T, p *lab.Laptop, resource string, count int, more ...string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "widgets")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "kith.dev/test/widgets")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	in, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, err := p.ExecInput(t.Context(), bytes.NewReader(in), "sh", "-c", "rm -f /opt/widgets && cat > /opt/widgets && chmod +x /opt/widgets"); err != nil {
		t.Fatalf("install the device plugin: %v %s", err, stderr)
	}
	text := fmt.Sprintf("setsid nohup %s --resource %s --count %d %s >/tmp/%s.log 2>&1 &", "/opt/widgets", resource, count, strings.Join(more, " "), filepath.Base(resource))
	if _, stderr, err := p.Exec(t.Context(), "sh", "-c", text); err != nil {
		t.Fatalf("start the device plugin: %v %s", err, stderr)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _, _ := p.Exec(context.Background(), "sh", "-c", "cat /tmp/"+filepath.Base(resource)+".log")
			t.Logf("device plugin of %s: %s", resource, out)
		}
	})
	eventually(t, time.Minute, fmt.Sprintf("%s has %d of %s", p.Name(), count, resource), func() string { return allocatable(t, p, p.Name(), resource, fmt.Sprint(count)) })
}

// allocatable says what a node has of a resource where that is not as much as wanted; "" is none.
func allocatable(t *testing.T, p *lab.Laptop, node, resource, want string) string {
	t.Helper()
	path := "{.status.allocatable." + strings.ReplaceAll(resource, ".", `\.`) + "}"
	out, err := p.Kubectl(t.Context(), "get", "node", node, "-o", "jsonpath="+path)
	if err != nil || out != want {
		return fmt.Sprintf("%q, want %q: %v", out, want, err)
	}
	return ""
}

// widgetPod is a pod with a widget; more is what else its spec says.
func widgetPod(name, namespace, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 1
%s
  containers:
  - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {example.com/widget: 1}}}
`, name, namespace, name, more)
}

// fakeNVIDIA stands where NVIDIA's runtime would: before runc. It notes that it was called.
const fakeNVIDIA = `#!/bin/sh
echo "$@" >> /tmp/nvidia.log
exec runc "$@"
`

// TestDevicesTravel: what a device plugin counts at bob is offered when he says so, granted, a pod of alice's runs with it, no second one
// does, and at the end it is bob's again.
func TestDevicesTravel(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range l.Laptops() {
		eventually(t, 2*time.Minute, p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	const widget, gpu = "example.com/widget", "example.com/gpu"
	plugDevices(t, bob, widget, 2, "--cdi")
	plugDevices(t, bob, gpu, 1)
	kubectl(t, bob, "label", "node", "bob", "example.com/widget.model=w9", "example.com/widget.deploy.plugin=true", "example.com/other=x")

	t.Run("unnamed they are not offered", func(t *testing.T) {
		befriend(t, alice, bob)
		for _, name := range []string{widget, gpu} {
			if got := allocatable(t, alice, "kith-bob", name, ""); got != "" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if _, err := asking(t, alice, "peer", "bob", "--gpu", "1", "--wait=false"); err == nil || !strings.Contains(err.Error(), "nvidia.com/gpu=1") {
			t.Errorf("a GPU that is not shared: %v", err)
		}
	})
	t.Run("named they are granted", func(t *testing.T) {
		out := kith(t, bob, "share", "--gpu", "1", "--resource", widget+"=1")
		if !strings.Contains(out, gpu+" 1, "+widget+" 1") {
			t.Errorf("kith share: %s", out)
		}
		kith(t, alice, "peer", "bob", "--gpu", "1", "--resource", widget+"=5", "--wait=false")
		eventually(t, 30*time.Second, "bob accepts", func() string {
			if out, err := bob.Kith(t.Context(), "accept", "alice", "--yes"); err != nil {
				return fmt.Sprint(out, err)
			}
			return ""
		})
		eventually(t, 30*time.Second, "alice's node has the devices", func() string {
			return allocatable(t, alice, "kith-bob", widget, "1") + allocatable(t, alice, "kith-bob", gpu, "1")
		})
		eventually(t, 30*time.Second, "and what describes them", func() string {
			out := kubectl(t, alice, "get", "node", "kith-bob", "-o", "jsonpath={.metadata.labels}")
			if !strings.Contains(out, `"example.com/widget.model":"w9"`) || strings.Contains(out, "deploy.plugin") || strings.Contains(out, "example.com/other") {
				return instead(out)
			}
			return ""
		})
		for _, p := range l.Laptops() {
			if out := kith(t, p, "contract", "list"); !strings.Contains(out, widget+" 0/1") {
				t.Errorf("%s: kith contract list: %s", p.Name(), out)
			}
		}
		if out := kith(t, alice, "peers", "bob", "-o", "wide"); !strings.Contains(out, widget+" 0/1") {
			t.Errorf("kith peers: %s", out)
		}
		if out := kith(t, bob, "status"); !strings.Contains(out, widget+" 1/1") {
			t.Errorf("kith status: %s", out)
		}
	})
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	t.Run("a pod has one", func(t *testing.T) {
		apply(t, alice, widgetPod("first", "shop", ""))
		if first := waitReady(t, alice, 1, "-n", "shop")[0]; first.Spec.NodeName != "kith-bob" {
			t.Fatalf("it is on %s", first.Spec.NodeName)
		}
		opened(t, alice, "first")
		twin := twinAt(t, bob, "shop")
		quota := kubectl(t, bob, "get", "resourcequota", "kith", "-n", twin, "-o", `jsonpath={.status.hard.requests\.example\.com/widget} {.status.used.requests\.example\.com/widget}`)
		if quota != "1 1" {
			t.Errorf("the quota at bob: %q", quota)
		}
		eventually(t, 20*time.Second, "the contract says so", func() string {
			if out := kith(t, alice, "contract", "list"); !strings.Contains(out, widget+" 1/1") {
				return instead(out)
			}
			return ""
		})
	})
	t.Run("a second one is told why not", func(t *testing.T) {
		apply(t, alice, widgetPod("second", "shop", ""))
		eventually(t, 30*time.Second, "the scheduler says what is missing", func() string {
			out := kubectl(t, alice, "get", "pod", "second", "-n", "shop", "-o", "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}")
			if !strings.Contains(out, "Insufficient "+widget) {
				return instead(out)
			}
			return ""
		})
		// Past the scheduler it is bob who refuses.
		apply(t, alice, widgetPod("third", "shop", "  nodeName: kith-bob"))
		eventually(t, 30*time.Second, "bob says what is in use", func() string {
			out := kubectl(t, alice, "get", "events", "-n", "shop", "--field-selector", "involvedObject.name=third")
			if !strings.Contains(out, widget+": the pod asks for 1, 1 of 1 is in use") {
				return instead(out)
			}
			return ""
		})
		kubectl(t, alice, "delete", "pod", "second", "third", "-n", "shop")
	})
	t.Run("a runtime of the devices' own is within the fence", func(t *testing.T) {
		kubectl(t, alice, "delete", "pod", "first", "-n", "shop")
		put := "cat > /usr/local/bin/nvidia-container-runtime && chmod +x /usr/local/bin/nvidia-container-runtime"
		if _, stderr, err := bob.ExecInput(t.Context(), strings.NewReader(fakeNVIDIA), "sh", "-c", put); err != nil {
			t.Fatal(err, stderr)
		}
		if _, stderr, err := bob.Exec(t.Context(), "kill", pid(t, bob, "kith-k8s")); err != nil {
			t.Fatal(err, stderr)
		}
		eventually(t, 2*time.Minute, "bob's Kubernetes found it", func() string {
			out, err := bob.Kubectl(t.Context(), "get", "runtimeclass", "-o", "name")
			if err != nil || !strings.Contains(out, "/kith-guest-nvidia\n") || !strings.Contains(out, "/nvidia\n") {
				return fmt.Sprint(out, err)
			}
			return engineReady(t, bob)
		})
		plugDevices(t, bob, widget, 2, "--cdi") // its plugin does not look after the kubelet, as vendors' do
		if out := kith(t, bob, "share", "--device-runtime-class", "other"); !strings.Contains(out, "those that ask for devices are refused") {
			t.Errorf("a class that guests cannot have: %s", out)
		}
		if out := kith(t, bob, "share", "--device-runtime-class", "nvidia"); strings.Contains(out, "refused") {
			t.Errorf("one that they can have: %s", out)
		}
		apply(t, alice, widgetPod("fourth", "shop", ""))
		waitReady(t, alice, 1, "-n", "shop")
		opened(t, alice, "fourth")
		twin := twinAt(t, bob, "shop")
		if class := kubectl(t, bob, "get", "pod", "fourth", "-n", twin, "-o", "jsonpath={.spec.runtimeClassName}"); class != "kith-guest-nvidia" {
			t.Errorf("its class is %q", class)
		}
		if out, _, err := bob.Exec(t.Context(), "grep", "-c", " create ", "/tmp/nvidia.log"); err != nil || strings.TrimSpace(out) == "0" {
			t.Errorf("that runtime was not called: %s %v", out, err)
		}
		if out, _, err := bob.Exec(t.Context(), "ip", "-o", "link", "show", "group", fmt.Sprint(0x6b67)); err != nil || strings.TrimSpace(out) == "" {
			t.Errorf("no link of a guest: %s %v", out, err)
		}
	})
	t.Run("at the end they are bob's again", func(t *testing.T) {
		kith(t, alice, "unpeer", "bob", "--yes")
		eventually(t, time.Minute, "alice's node is gone", func() string {
			if out, err := alice.Kubectl(t.Context(), "get", "node", "kith-bob", "--ignore-not-found", "-o", "name"); err != nil || out != "" {
				return fmt.Sprint(out, err)
			}
			return ""
		})
		for _, name := range []string{"mine", "mine-too"} {
			apply(t, bob, widgetPod(name, "default", ""))
		}
		waitReady(t, bob, 2, "-n", "default")
		if out := kith(t, bob, "share", "--gpu", "0"); strings.Contains(out, gpu) || !strings.Contains(out, widget) {
			t.Errorf("kith share --gpu 0: %s", out)
		}
	})
}

// opened is whether a container of the pod has its devices, that of the plugin and that of CDI, and may open them: of a tun device that was
// not told what to be nothing can be read.
func opened(t *testing.T, p *lab.Laptop, pod string) {
	t.Helper()
	inside := func(args ...string) (string, error) {
		return p.Kubectl(t.Context(), append([]string{"exec", "-n", "shop", pod, "--", "/app"}, args...)...)
	}
	const folder = "/var/lib/widgets/"
	out, err := inside("ls", folder)
	names := strings.Fields(out)
	if err != nil || len(names) != 2 || names[0] != "by-cdi" || !strings.HasPrefix(names[1], "widget-") {
		t.Errorf("its devices: %q %v", out, err)
	}
	for _, name := range names {
		if out, err := inside("cat", folder+name); !strings.Contains(fmt.Sprint(out, err), "cat: read "+folder+name+": ") { // not "open …"
			t.Errorf("the device %s: %s %v", name, out, err)
		}
	}
	if out, err := inside("env"); !strings.Contains(out, "WIDGET=widget-") {
		t.Errorf("what CDI adds: %s %v", out, err)
	}
}
