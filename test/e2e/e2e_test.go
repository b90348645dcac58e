//go:build lab

// Package e2e tells stories of the lab: real laptops, real clusters, real tunnels. Each test brings its own lab up and
// takes it down. `make test` runs them after the unit tests.
package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// labs counts those that this process brought up.
var labs atomic.Int32

// archives is where the test images are, for all labs of this process.
var archives string

// testImages builds them once: that takes as long as a laptop takes to start.
var testImages = sync.OnceValues(func() (paths []string, err error) {
	if archives, err = os.MkdirTemp("", "kith-images-"); err != nil {
		return nil, err
	}
	return images.Build(context.Background(), archives)
})

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(archives)
	os.Exit(code)
}

// laptops brings a lab up for one test. Some tests run at a time (scripts/test.sh): a lab waits more than it computes.
func laptops(t *testing.T, options lab.Options) *lab.Lab {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a lab needs root, for its namespaces")
	}
	options.Name = strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, t.Name()))
	// With the process and a number in its name, so that no two on one machine take each other's lab down.
	options.Name = fmt.Sprintf("%s%d-%d", options.Name[:min(len(options.Name), 9)], os.Getpid(), labs.Add(1))
	if !options.NoEngine {
		archives, err := testImages()
		if err != nil {
			t.Fatalf("build the test images: %v", err)
		}
		options.Images = append(slices.Clone(archives), options.Images...)
	}
	if level := os.Getenv("KITH_LOG"); level != "" {
		if options.Config == nil {
			options.Config = map[string]any{}
		}
		options.Config["logLevel"] = level
	}
	options.Progress = func(laptop, what string) { t.Logf("%s: %s", laptop, what) }
	l, err := lab.Up(t.Context(), options)
	if l != nil {
		t.Cleanup(func() {
			if t.Failed() {
				logs(t, l)
			}
			if dir := os.Getenv("KITH_LOGS"); dir != "" {
				keepLogs(t, l, dir)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := l.Down(ctx); err != nil {
				t.Errorf("take the lab down: %v", err)
			}
		})
	}
	if err != nil {
		t.Fatalf("bring the lab up: %v", err)
	}
	return l
}

// logs shows what the daemons said last, of a test that failed.
func logs(t *testing.T, l *lab.Lab) {
	for _, p := range l.Laptops() {
		out, _, err := p.Exec(context.Background(), "sh", "-c", "tail -n 60 /var/log/kith/*.log /var/log/*.log 2>/dev/null")
		t.Logf("--- %s (%v)\n%s", p.Name(), err, out)
	}
}

// keepLogs copies all logs of all laptops to $KITH_LOGS, named after the lab.
func keepLogs(t *testing.T, l *lab.Lab, dir string) {
	for _, p := range l.Laptops() {
		for _, name := range lab.LogNames {
			f, err := os.Create(filepath.Join(dir, l.Name()+"-"+p.Name()+"-"+name+".log"))
			if err != nil {
				t.Logf("keep logs: %v", err)
				return
			}
			_ = p.Logs(context.Background(), f, name, false) // a laptop without an engine has fewer
			f.Close()
		}
	}
}

// patience is how long a story waits for what comes within seconds on a quiet machine: those of newcomers are busy.
const patience = 3 * time.Minute

// eventually tries until check gives "" and fails with what it gave last. It takes no longer than within on a quiet machine; what does is told.
func eventually(t *testing.T, within time.Duration, what string, check func() string) time.Duration {
	t.Helper()
	began, last := time.Now(), ""
	late := max(within, patience)
	for {
		not := look(t, check)
		took := time.Since(began)
		if not == "" {
			if took > min(within, 15*time.Second) {
				t.Logf("%s: after %s (%s on a quiet machine), until then %s", what, took.Round(time.Second), within, last)
			}
			return took
		}
		last = not
		if took > late {
			t.Fatalf("%s: not within %s: %s", what, late, not)
		}
		select {
		case <-time.After(max(100*time.Millisecond, time.Since(began)-took)): // asking keeps the processor from what is waited for
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// instead is what a check found in place of what it waits for. Where it found nothing at all, that is not there yet either.
func instead(found string) string { return cmp.Or(found, "nothing") }

// checking are the tests that are inside a check of eventually.
var checking sync.Map

type notYet string

// look makes one check. What fails in it by fail is not there yet, and is asked for again.
func look(t *testing.T, check func() string) (not string) {
	if _, inside := checking.LoadOrStore(t, true); inside {
		return check()
	}
	defer func() {
		checking.Delete(t)
		switch r := recover().(type) {
		case nil:
		case notYet:
			not = string(r)
		default:
			panic(r)
		}
	}()
	return check()
}

// fail ends the test; in a check of eventually it ends the attempt.
func fail(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, inside := checking.Load(t); inside {
		panic(notYet(fmt.Sprintf(format, args...)))
	}
	t.Fatalf(format, args...)
}

// asking is Laptop.Kith for what asks a peer. Eight questions at once are answered, then one in two seconds: tests ask faster than people.
func asking(t *testing.T, p *lab.Laptop, args ...string) (string, error) {
	t.Helper()
	out, err := p.Kith(t.Context(), args...)
	for tries := 0; err != nil && strings.Contains(err.Error(), "too many questions (wait a little") && tries < 10; tries++ {
		time.Sleep(2 * time.Second)
		out, err = p.Kith(t.Context(), args...)
	}
	return out, err
}

func kith(t *testing.T, p *lab.Laptop, args ...string) string {
	t.Helper()
	out, err := asking(t, p, args...)
	if err != nil {
		fail(t, "%s: kith %s: %v\n%s", p.Name(), strings.Join(args, " "), err, out)
	}
	return out
}

func kubectl(t *testing.T, p *lab.Laptop, args ...string) string {
	t.Helper()
	out, err := p.Kubectl(t.Context(), args...)
	if err != nil {
		fail(t, "%s: kubectl %s: %v\n%s", p.Name(), strings.Join(args, " "), err, out)
	}
	return out
}

// twinAt is what a peer's namespace is called at its provider.
func twinAt(t *testing.T, provider *lab.Laptop, home string) string {
	t.Helper()
	name := ""
	eventually(t, time.Minute, "namespace "+home+" has one twin at "+provider.Name(), func() string {
		out := kubectl(t, provider, "get", "namespaces", "-l", "kith.dev/home-namespace="+home, "-o", "jsonpath={.items[*].metadata.name}")
		if name = strings.TrimSpace(out); !strings.HasPrefix(name, home+"-") || strings.Contains(name, " ") {
			return fmt.Sprintf("%q", out)
		}
		return ""
	})
	return name
}

func apply(t *testing.T, p *lab.Laptop, manifest string) {
	t.Helper()
	if out, err := p.KubectlInput(t.Context(), strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		fail(t, "%s: kubectl apply: %v\n%s", p.Name(), err, out)
	}
}

// peer is what tests look at of `kith peers -o json`.
type peer struct {
	Name, ID, Source, Outgoing, Incoming, Why, Code, Node, Network, By string
	Reachable, Asleep                                                  bool
	DownSince                                                          time.Time
	Addresses                                                          []string
	Tunnel                                                             api.Tunnel
	Gives                                                              *api.Gives
}

func peers(t *testing.T, p *lab.Laptop) ([]peer, error) {
	t.Helper()
	var list []peer
	out, err := p.Kith(t.Context(), "peers", "-o", "json")
	if err != nil {
		return nil, err // the daemon is starting
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%s: kith peers -o json: %v\n%s", p.Name(), err, out)
	}
	return list, nil
}

// peerOf gives one peer as another laptop knows it; the zero value when it does not, or does not answer.
func peerOf(t *testing.T, p *lab.Laptop, name string) peer {
	t.Helper()
	list, _ := peers(t, p)
	for _, other := range list {
		if other.Name == name {
			return other
		}
	}
	return peer{}
}

// pid of the first process of that name in a laptop, "" when there is none.
func pid(t *testing.T, p *lab.Laptop, name string) string {
	out, _, _ := p.Exec(t.Context(), "pidof", "-s", name)
	return strings.TrimSpace(out)
}

type request struct {
	ID, Peer, Code, Direction, Refusal string
	Asked, Granted, InForce            api.Resources
}

func requests(t *testing.T, p *lab.Laptop) []request {
	t.Helper()
	var list []request
	if err := json.Unmarshal([]byte(kith(t, p, "requests", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// engineReady tells what a daemon lacks: its Kubernetes is ready before its own controllers are.
func engineReady(t *testing.T, p *lab.Laptop) string {
	var status struct{ Engine struct{ State, Why string } }
	out, err := p.Kith(t.Context(), "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &status)
	}
	if err != nil || status.Engine.State != "ready" && status.Engine.State != "asleep" {
		return fmt.Sprintf("%+v %v", status, err)
	}
	return ""
}

// awaitGuests waits until a node of the laptop may run guests: an engine that is ready may have to wait a moment for its fence.
func awaitGuests(t *testing.T, p *lab.Laptop) {
	t.Helper()
	eventually(t, time.Minute, p.Name()+" takes guests", func() string {
		nodes, err := p.Kubectl(t.Context(), "get", "nodes", "-l", v1alpha1.LabelFenced+"=true", "-o", "name")
		if err != nil || nodes == "" {
			why, _ := p.Kith(t.Context(), "doctor")
			return fmt.Sprintf("no node of it has a fence (%v)\n%s", err, why)
		}
		return ""
	})
}

// befriend has the consumer ask and the provider accept, and gives the code that both showed.
func befriend(t *testing.T, consumer, provider *lab.Laptop, ask ...string) string {
	t.Helper()
	for _, p := range []*lab.Laptop{consumer, provider} {
		eventually(t, 30*time.Second, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	awaitGuests(t, provider)
	eventually(t, 20*time.Second, consumer.Name()+" sees "+provider.Name(), func() string {
		if p := peerOf(t, consumer, provider.Name()); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	kith(t, consumer, append([]string{"peer", provider.Name(), "--wait=false"}, ask...)...)
	var code string
	eventually(t, 10*time.Second, "the request arrives", func() string {
		for _, r := range requests(t, provider) {
			if r.Peer == consumer.Name() && r.Direction == "incoming" {
				code = r.Code
				return ""
			}
		}
		return "no request"
	})
	eventually(t, 10*time.Second, "both show the same code", func() string {
		if here := peerOf(t, consumer, provider.Name()).Code; here != code {
			return fmt.Sprintf("%s shows code %q, %s shows %q", consumer.Name(), here, provider.Name(), code)
		}
		return ""
	})
	kith(t, provider, "accept", consumer.Name(), "--yes")
	confirm(t, consumer, provider, code)
	eventually(t, 20*time.Second, "connected", func() string {
		out, in := peerOf(t, consumer, provider.Name()), peerOf(t, provider, consumer.Name())
		if out.Outgoing != "connected" || in.Incoming != "connected" || !out.Tunnel.Up && out.Network == "" { // by the contract there may be none
			return fmt.Sprintf("%s: %+v; %s: %+v", consumer.Name(), out, provider.Name(), in)
		}
		return ""
	})
	return code
}

// confirm has the asking owner confirm the code as the other laptop showed it, once that has accepted. There is nothing to
// confirm without one, and for a laptop that knows the other's key while only the other forgot.
func confirm(t *testing.T, consumer, provider *lab.Laptop, code string) {
	t.Helper()
	if code == "" {
		return
	}
	eventually(t, 20*time.Second, consumer.Name()+" confirms the code of "+provider.Name(), func() string {
		if out, err := consumer.Kith(t.Context(), "confirm", provider.Name(), "--code", code); err != nil && peerOf(t, consumer, provider.Name()).Outgoing != "connected" {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
}

// pod is what tests look at of a pod.
type pod struct {
	Metadata struct{ Name, Namespace string }
	Spec     struct{ NodeName string }
	Status   struct {
		Phase, PodIP, HostIP string
		Conditions           []struct{ Type, Status string }
		ContainerStatuses    []struct {
			RestartCount int
			Ready        bool
			ContainerID  string
		}
	}
}

func (p pod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

func pods(t *testing.T, p *lab.Laptop, args ...string) []pod {
	t.Helper()
	var list struct{ Items []pod }
	out := kubectl(t, p, append([]string{"get", "pods", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// waitReady waits until n pods of the selection are Ready, no more and no less, and gives them.
func waitReady(t *testing.T, p *lab.Laptop, n int, args ...string) (list []pod) {
	t.Helper()
	eventually(t, 90*time.Second, fmt.Sprintf("%d pods Ready", n), func() string {
		list = pods(t, p, args...)
		if len(list) != n {
			return fmt.Sprintf("there are %d pods", len(list))
		}
		for _, one := range list {
			if !one.ready() {
				return fmt.Sprintf("%s on %q is %s", one.Metadata.Name, one.Spec.NodeName, one.Status.Phase)
			}
		}
		return ""
	})
	return list
}

// web is a Deployment of the echo image in namespace shop.
func web(replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: kith.dev/echo:1
        imagePullPolicy: IfNotPresent
        resources: {requests: {cpu: 10m, memory: 16Mi}}
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`, replicas)
}

// solo is one pod of the echo image in namespace shop, on a node of choice.
func solo(name, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 5
  nodeSelector: {kubernetes.io/hostname: %s}
  containers:
  - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}},
     readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
`, name, name, node)
}
