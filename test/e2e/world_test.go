//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// world is a lab in which bob provides for alice: namespace shop is offloaded, Deployment web runs on both laptops.
type world struct {
	t          *testing.T
	l          *lab.Lab
	alice, bob *lab.Laptop
	webs       int
	apis       map[string]client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l := laptops(t, lab.Options{Laptops: 2})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	befriend(t, w.alice, w.bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	kubectl(t, w.alice, "create", "namespace", "shop")
	kith(t, w.alice, "offload", "shop")
	return w
}

// run is t.Run with the world in the hands of the subtest.
func (w *world) run(name string, story func(t *testing.T)) {
	all := w.t
	all.Run(name, func(t *testing.T) {
		w.t = t
		defer func() { w.t = all }()
		story(t)
	})
}

// spread runs web with that many replicas and waits until some of them are abroad.
func (w *world) spread(replicas int) *world {
	w.t.Helper()
	w.webs = replicas
	apply(w.t, w.alice, web(replicas))
	eventually(w.t, 90*time.Second, "pods are Ready on both laptops", func() string {
		return w.webOn("alice", "kith-bob")
	})
	return w
}

// webOn tells what is not right unless all replicas are Ready and every one of these nodes has one.
func (w *world) webOn(nodes ...string) string {
	pods, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": "web"})
	if err != nil {
		return err.Error()
	}
	left := slices.Clone(nodes)
	for _, p := range pods {
		if !podReady(&p) {
			return fmt.Sprintf("%s on %q is not Ready", p.Name, p.Spec.NodeName)
		}
		left = slices.DeleteFunc(left, func(n string) bool { return n == p.Spec.NodeName })
	}
	if len(pods) != w.webs || len(left) > 0 {
		return fmt.Sprintf("%d pods of %d, none on %v", len(pods), w.webs, left)
	}
	return ""
}

// api is a client of a laptop's API server, past kubectl, which costs more than what it asks.
func (w *world) api(p *lab.Laptop) (client.Client, error) {
	if c := w.apis[p.Name()]; c != nil {
		return c, nil
	}
	c, err := apiOf(p, apiPatience)
	if err == nil {
		w.apis[p.Name()] = c
	}
	return c, err
}

// apiPatience is how long an API server that is there takes, on a machine that is busy with other things.
const apiPatience = 30 * time.Second

// apiOf is a client of a laptop's API server, each request of which may take so long.
func apiOf(p *lab.Laptop, within time.Duration) (client.Client, error) {
	text, err := os.ReadFile(p.Path(lab.Kubeconfig))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, err
	}
	config.Dial, config.Timeout, config.QPS = p.Dial, within, -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(config, client.Options{Scheme: scheme})
}

func (w *world) list(p *lab.Laptop, into client.ObjectList, options ...client.ListOption) error {
	c, err := w.api(p)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), apiPatience)
	defer cancel()
	if err := c.List(ctx, into, options...); err != nil {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	return nil
}

func (w *world) pods(p *lab.Laptop, namespace string, options ...client.ListOption) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.list(p, &list, append(options, client.InNamespace(namespace))...)
	return list.Items, err
}

// guests are alice's pods at bob, whatever the twin of shop is called.
func (w *world) guests() ([]corev1.Pod, error) {
	return w.pods(w.bob, "", client.HasLabels{v1alpha1.LabelConsumer})
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// well tells what is not as it should be: both daemons connected with the tunnel up, the node of bob Ready, all pods
// of shop Ready, and those abroad reached from alice.
func (w *world) well() string {
	out, in := peerOf(w.t, w.alice, "bob"), peerOf(w.t, w.bob, "alice")
	if out.Outgoing != "connected" || in.Incoming != "connected" || !out.Reachable || !in.Reachable || !out.Tunnel.Up || !in.Tunnel.Up {
		return fmt.Sprintf("alice: %+v; bob: %+v", out, in)
	}
	for p, want := range map[*lab.Laptop]int{w.alice: 2, w.bob: 1} {
		var nodes corev1.NodeList
		if err := w.list(p, &nodes); err != nil {
			return err.Error()
		}
		if len(nodes.Items) != want {
			return fmt.Sprintf("%s has %d nodes", p.Name(), len(nodes.Items))
		}
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return fmt.Sprintf("%s: node %s: %s", p.Name(), n.Name, c.Message)
				}
			}
		}
	}
	pods, err := w.pods(w.alice, "shop")
	if err != nil {
		return err.Error()
	}
	for i := range pods {
		switch p := &pods[i]; {
		case p.DeletionTimestamp != nil:
			return p.Name + " is being deleted"
		case p.Status.Phase == corev1.PodSucceeded:
		case !podReady(p):
			return fmt.Sprintf("%s on %q is not Ready: %s %s", p.Name, p.Spec.NodeName, p.Status.Reason, p.Status.Message)
		case p.Spec.NodeName == "kith-bob" && p.Labels["app"] == "web":
			if err := w.reach(p.Status.PodIP); err != nil {
				return fmt.Sprintf("%s abroad: %v", p.Name, err)
			}
		}
	}
	return ""
}

// reach asks a pod of the echo image from alice.
func (w *world) reach(ip string) error {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: w.alice.Dial, DisableKeepAlives: true}}
	resp, err := c.Get("http://" + ip + ":8080/")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// lives are the containers of shop by pod: what a fault must not change.
func (w *world) lives() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	var pods []corev1.Pod
	eventually(w.t, 10*time.Second, "the pods can be listed", func() string {
		var err error
		if pods, err = w.pods(w.alice, "shop"); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if p.Labels["app"] == "web" || p.Labels["app"] == "serve" {
				all[p.Name] += fmt.Sprintf("%s %s restarts=%d;", p.UID, c.ContainerID, c.RestartCount)
			}
		}
	}
	return all
}

// loading is a pod of the load image; with restart Never it ends with its report.
func loading(name, node, restart string, args ...string) string {
	quoted, _ := json.Marshal(append([]string{"/app"}, args...))
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: %s
  nodeSelector: {kubernetes.io/hostname: %s}
  containers:
  - {name: load, image: "kith.dev/load:1", imagePullPolicy: IfNotPresent, command: %s, resources: {requests: {cpu: 10m, memory: 16Mi}}}
`, name, name, restart, node, quoted)
}

// server runs the far end of streams at bob and gives its address as alice sees it.
func (w *world) server() string {
	w.t.Helper()
	apply(w.t, w.alice, loading("serve", "kith-bob", "Always", "serve"))
	return waitReady(w.t, w.alice, 1, "-n", "shop", "-l", "app=serve")[0].Status.PodIP + ":7000"
}

// report is what `load stream` says in the end.
type report struct {
	Seconds, Gap, GapAt float64
	Bytes, OutOfOrder   int64
	Broken              string
}

func (r *report) UnmarshalJSON(data []byte) error {
	var named struct {
		Seconds    float64 `json:"seconds"`
		Gap        float64 `json:"gapms"`
		GapAt      float64 `json:"gapAt"`
		Bytes      int64   `json:"bytes"`
		OutOfOrder int64   `json:"outOfOrder"`
		Broken     string  `json:"broken"`
	}
	err := json.Unmarshal(data, &named)
	*r = report{named.Seconds, named.Gap, named.GapAt, named.Bytes, named.OutOfOrder, named.Broken}
	return err
}

// stream opens a TCP connection from a pod at home to server and returns once it flows; the function it gives waits
// for its end.
func (w *world) stream(name, server string, lasts time.Duration) func() report {
	w.t.Helper()
	apply(w.t, w.alice, loading(name, "alice", "Never", "stream", "-duration", lasts.String(), server))
	waitReady(w.t, w.alice, 1, "-n", "shop", "-l", "app="+name)
	time.Sleep(time.Second) // its first second is without a fault
	return func() report {
		w.t.Helper()
		var r report
		eventually(w.t, lasts+30*time.Second, name+" reports", func() string {
			list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": name})
			if err != nil || len(list) != 1 || list[0].Status.Phase != corev1.PodSucceeded {
				return fmt.Sprintf("%d pods, %v", len(list), err)
			}
			out, err := w.alice.Kubectl(w.t.Context(), "-n", "shop", "logs", name)
			if err == nil {
				err = json.Unmarshal([]byte(out), &r)
			}
			if err != nil {
				return err.Error()
			}
			return ""
		})
		kubectl(w.t, w.alice, "-n", "shop", "delete", "pod", name)
		return r
	}
}

// contracts of a laptop.
func (w *world) contracts(p *lab.Laptop) ([]v1alpha1.Contract, error) {
	var list v1alpha1.ContractList
	err := w.list(p, &list)
	return list.Items, err
}

// offloaded are all OffloadedPods at bob.
func (w *world) offloaded() ([]v1alpha1.OffloadedPod, error) {
	var list v1alpha1.OffloadedPodList
	err := w.list(w.bob, &list)
	return list.Items, err
}

// paired tells what is not right unless every pod of alice that is abroad has exactly one guest at bob that is its
// own, and bob has nothing else of hers.
func (w *world) paired() string {
	home, err := w.pods(w.alice, "shop")
	if err != nil {
		return err.Error()
	}
	wanted, err := w.offloaded()
	if err != nil {
		return err.Error()
	}
	guests, err := w.guests()
	if err != nil {
		return err.Error()
	}
	abroad := map[string]corev1.Pod{}
	for _, p := range home {
		if p.DeletionTimestamp != nil {
			return "at home " + p.Name + " is being deleted"
		}
		if p.Spec.NodeName == "kith-bob" {
			abroad[p.Name] = p
		}
	}
	if len(wanted) != len(abroad) || len(guests) != len(abroad) {
		return fmt.Sprintf("%d pods abroad, %d OffloadedPods, %d guests", len(abroad), len(wanted), len(guests))
	}
	owned := map[string]v1alpha1.OffloadedPod{}
	for _, o := range wanted {
		p, ok := abroad[o.Name]
		if !ok || o.Spec.HomeUID != p.UID || o.DeletionTimestamp != nil || o.Status.Phase != v1alpha1.OffloadedPodAccepted {
			return fmt.Sprintf("OffloadedPod %s (deleted %v, %s) is for %s, home has %s", o.Name, o.DeletionTimestamp, o.Status.Phase, o.Spec.HomeUID, p.UID)
		}
		owned[o.Name] = o
	}
	for i := range guests {
		g := &guests[i]
		o, owner := owned[g.Name], metav1.GetControllerOf(g)
		if owner == nil || owner.UID != o.UID || o.Status.PodUID != g.UID || g.DeletionTimestamp != nil || !podReady(g) {
			return fmt.Sprintf("guest %s (%s, deleted %v) is not the one of OffloadedPod %s: %s", g.Name, g.UID, g.DeletionTimestamp, o.UID, o.Status.PodUID)
		}
		if p := abroad[g.Name]; p.Status.PodIP == "" || p.Status.PodIP != g.Status.PodIP {
			return fmt.Sprintf("%s has %s at home, %s at bob", g.Name, p.Status.PodIP, g.Status.PodIP)
		}
	}
	return ""
}

// agreed tells what is not right unless both sides hold the same one contract, connected, and bob's book is right.
func (w *world) agreed() string {
	ours, err := w.contracts(w.alice)
	if err != nil {
		return err.Error()
	}
	theirs, err := w.contracts(w.bob)
	if err != nil {
		return err.Error()
	}
	if len(ours) != 1 || len(theirs) != 1 {
		return fmt.Sprintf("alice has %d contracts, bob %d", len(ours), len(theirs))
	}
	a, b := ours[0], theirs[0]
	if string(a.Spec.Document) != string(b.Spec.Document) || a.Status.State != v1alpha1.StateConnected || b.Status.State != v1alpha1.StateConnected {
		return fmt.Sprintf("alice holds %s (%s), bob %s (%s)", a.Spec.ID, a.Status.State, b.Spec.ID, b.Status.State)
	}
	guests, err := w.guests()
	if used := b.Status.Used[corev1.ResourcePods]; err != nil || used.Value() != int64(len(guests)) {
		return fmt.Sprintf("bob's book has %s pods, there are %d guests (%v)", used.String(), len(guests), err)
	}
	return ""
}
