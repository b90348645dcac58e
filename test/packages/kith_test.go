//go:build packages

package packages

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// app has a laptop's kernel hold what pods can have it hold: mounts, a port of the host, rules of services and policies.
const app = `
{apiVersion: v1, kind: Pod, metadata: {name: echo, labels: {app: echo}}, spec: {
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, ports: [{containerPort: 8080, hostPort: 18080}],
    volumeMounts: [{name: memory, mountPath: /memory}, {name: part, mountPath: /part, subPath: here}, {name: host, mountPath: /host}]}],
  volumes: [{name: memory, emptyDir: {medium: Memory}}, {name: part, emptyDir: {}}, {name: host, hostPath: {path: /etc}}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: echo}, spec: {type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: echo}, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{}]}}
`

// prepare brings what the app needs, and has apt write its caches.
func (m *machine) prepare() {
	m.t.Helper()
	image, err := filepath.Abs("../../build/images/echo.tar")
	if err != nil {
		m.t.Fatal(err)
	}
	must(m.t, "cp", image, m.root+"/root/")
	m.write("/root/app.yaml", app)
	debs := m.t.TempDir()
	download := exec.Command("apt-get", "download", "netbase")
	download.Dir = debs
	if out, err := download.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	must(m.t, "sh", "-c", "cp "+debs+"/netbase_*.deb "+m.root+"/root/netbase.deb")
	m.must("sh", "-c", "apt-get install -y --no-install-recommends mount passwd 2>&1") // are there
}

// story gives what runs a step of a test, of which none is left out: the first that fails ends it.
func (m *machine) story(t *testing.T) func(name string, run func(t *testing.T)) {
	return func(name string, run func(t *testing.T)) {
		t.Helper()
		if !t.Run(name, func(t *testing.T) {
			m.t = t
			began := time.Now()
			run(t)
			t.Logf("%s", time.Since(began).Round(100*time.Millisecond))
		}) {
			m.t = t
			out, _ := m.try("journalctl", "-u", "kithd", "--no-pager", "-n", "40")
			t.Fatalf("the story ends here\n%s", out)
		}
		m.t = t
	}
}

func (m *machine) kubectl(args ...string) (string, error) {
	return m.try(append([]string{"kith-k8s", "kubectl"}, args...)...)
}

func (m *machine) ready() {
	m.t.Helper()
	m.eventually(90*time.Second, "the node is Ready", func() error {
		out, err := m.kubectl("get", "node", "laptop", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Errorf("%s: %v", out, err)
		}
		return nil
	})
}

// works: the service runs, will at the next boot, and so does its cluster.
func (m *machine) works() {
	m.t.Helper()
	for _, ask := range []string{"is-active", "is-enabled"} {
		m.must("systemctl", ask, "kithd")
	}
	m.ready()
	// The node is before kithd has put its own things in, and gives people a kubeconfig.
	m.eventually(30*time.Second, "kithd gives a kubeconfig", func() error {
		if out, err := m.try("kith", "kubeconfig"); err != nil {
			return errors.New(out)
		}
		return nil
	})
}

// runApp imports the app's image, and has it run.
func (m *machine) runApp() {
	m.t.Helper()
	m.must("/usr/lib/kith/ctr", "--address", "/run/kith/k8s/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", "/root/echo.tar")
	m.eventually(30*time.Second, "a pod can be made", func() error {
		out, err := m.kubectl("apply", "-f", "/root/app.yaml")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
	m.podReady("")
	m.service()
}

// service: the app answers at the address of its service.
func (m *machine) service() {
	m.t.Helper()
	address, err := m.kubectl("get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		m.t.Fatal(address)
	}
	m.eventually(30*time.Second, "the service answers at "+address, func() error {
		c, err := m.dial(address + ":80")
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// pod is the life of the app's pod: its container, how often that was started, and its address.
func (m *machine) pod() string {
	m.t.Helper()
	out, err := m.kubectl("get", "pod", "echo", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.podIP}")
	if err != nil {
		m.t.Fatal(out)
	}
	return out
}

// podReady waits for a pod that is Ready, and whose container is none of an earlier life: its status is remembered over a boot.
func (m *machine) podReady(was string) {
	m.t.Helper()
	m.eventually(90*time.Second, "the pod is Ready", func() error {
		if was != "" && strings.Fields(was)[0] == strings.Fields(m.pod())[0] {
			return errors.New("its container is that of before")
		}
		out, err := m.kubectl("get", "pod", "echo", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Errorf("%s: %v", out, err)
		}
		return nil
	})
}

// newEngine waits until another kith-k8s runs than that process.
func (m *machine) newEngine(was string) {
	m.t.Helper()
	m.eventually(time.Minute, "its Kubernetes runs", func() error {
		if out, _ := m.try("pidof", "kith-k8s"); out == was || out == "" {
			return fmt.Errorf("kith-k8s was %s, is %s", was, out)
		}
		return nil
	})
	m.ready()
	m.podReady("")
}

// under installs a package while the pod answers on one connection: neither of the two notices.
func (m *machine) under(install func()) {
	m.t.Helper()
	was, engine := m.pod(), m.must("pidof", "kith-k8s")
	stream := m.speak(strings.Fields(was)[2] + ":8080")
	install()
	m.works()
	m.newEngine(engine)
	time.Sleep(2 * time.Second) // of it all done, what would come late
	answers, err := stream()
	if err != nil {
		m.t.Errorf("the stream broke after %d answers: %v", answers, err)
	} else if answers < 50 {
		m.t.Errorf("%d answers", answers)
	}
	if is := m.pod(); is != was {
		m.t.Errorf("the pod was %s, is %s", was, is)
	}
	m.t.Logf("%d answers on one connection", answers)
}
