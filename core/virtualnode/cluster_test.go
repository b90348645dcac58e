package virtualnode

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/remote"
)

// These tests want a real cluster, which is home and peer at once: KITH_TEST_KUBECONFIG names its
// administrator's kubeconfig and KITH_TEST_NODE_IP an address of this machine that its API server can dial.
// The CRDs and the image kith.dev/echo:1 must be there, and kubectl in PATH.

type cluster struct {
	t        *testing.T
	rest     *rest.Config
	client   kubernetes.Interface
	provider *provider
	link     *link
	kubelet  *Kubelet
	node     *Node
	stop     func()
	ip       netip.Addr
	port     int32
}

const (
	testNode      = "kith-bob"
	testNamespace = "vn-shop"
	testTwin      = testNamespace + "-twin"
	testGrace     = 3 * time.Second
)

func newCluster(t *testing.T) *cluster {
	t.Helper()
	kubeconfig := os.Getenv("KITH_TEST_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("KITH_TEST_KUBECONFIG is not set: no cluster to try it with")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	c := &cluster{t: t, rest: cfg, client: kubernetes.NewForConfigOrDie(cfg), ip: netip.MustParseAddr(os.Getenv("KITH_TEST_NODE_IP"))}
	c.provider = newProvider(t, cfg)
	u, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	c.link = newLink(t, u.Host)
	background := context.Background()
	ctx, cancel := context.WithCancel(background) // the provider works through the cleaning up too
	done := make(chan struct{})
	go func() { defer close(done); c.provider.run(ctx, t) }()

	c.kubelet, err = NewKubelet(KubeletConfig{Home: c.client, HomeREST: cfg, IP: c.ip, Log: c.log()})
	if err != nil {
		t.Fatal(err)
	}
	if c.port, err = c.kubelet.Port(testNode); err != nil {
		t.Fatal(err)
	}
	kubeletDone := make(chan error, 1)
	go func() { kubeletDone <- c.kubelet.Run(ctx) }()

	_, err = c.client.CoreV1().Namespaces().Create(background, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(func() {
		bounded, stop := context.WithTimeout(background, 20*time.Second)
		defer stop()
		if err := Retire(bounded, c.client, testNode, nil, c.log()); err != nil {
			t.Errorf("retire: %v", err)
		}
		if c.condition(corev1.NodeReady).Status != "" {
			t.Error("the node is still there after Retire")
		}
		c.stop()
		c.t = t
		for _, name := range []string{testNamespace, testTwin} {
			namespaces := c.client.CoreV1().Namespaces()
			_ = namespaces.Delete(background, name, metav1.DeleteOptions{})
			c.until(60*time.Second, "namespace "+name+" is gone", func() bool {
				_, err := namespaces.Get(background, name, metav1.GetOptions{})
				return err != nil
			})
		}
		cancel()
		<-done
		if err := <-kubeletDone; err != nil {
			t.Errorf("kubelet: %v", err)
		}
	})
	return c
}

func (c *cluster) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start makes the node as the daemon does after a contract.
func (c *cluster) start() {
	c.t.Helper()
	abroad := rest.CopyConfig(c.rest)
	abroad.Host = "https://" + c.link.Addr().String()
	node, err := New(Config{
		Home: c.client, HomeREST: c.rest, Abroad: abroad, Twins: c.provider, Permit: anybody,
		View:     remote.New(remote.Config{Open: c.provider.view(abroad), Log: c.log()}),
		PeerName: "bob", PeerID: "BOB-ID", NodeName: testNode, NodeIP: c.ip, KubeletPort: c.port,
		Resources: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("4"), corev1.ResourceMemory: apiresource.MustParse("8Gi"), corev1.ResourcePods: apiresource.MustParse("50")},
		Grace:     testGrace,
		Translate: alias,
		Log:       c.log(),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	c.node = node
	c.kubelet.Add(node)
	c.stop = func() {
		cancel()
		c.kubelet.Remove(node)
		if err := <-done; err != nil {
			c.t.Errorf("run: %v", err)
		}
	}
}

// until waits for want, and notes how long it took.
func (c *cluster) until(limit time.Duration, what string, want func() bool) {
	c.t.Helper()
	began := time.Now()
	for !want() {
		if time.Since(began) > limit {
			c.t.Fatalf("after %s still not: %s\n%s", limit, what, c.kubectl("get", "pods,offloadedpods", "-A", "-o", "wide"))
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(context.Background(), "kubectl", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv("KITH_TEST_KUBECONFIG"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v", out, err)
	}
	return string(out)
}

func (c *cluster) want(contains string, args ...string) {
	c.t.Helper()
	if out := c.kubectl(args...); !strings.Contains(out, contains) {
		c.t.Errorf("kubectl %s: %q lacks %q", strings.Join(args, " "), out, contains)
	}
}

func (c *cluster) pod(name string) *corev1.Pod { return c.get(testNamespace, name) }

func (c *cluster) guest(name string) *corev1.Pod { return c.get(testTwin, name) }

func (c *cluster) get(namespace, name string) *corev1.Pod {
	pod, err := c.client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return pod
}

func (c *cluster) ready(name string) func() bool {
	return func() bool { p := c.pod(name); return p != nil && readiness(p.Status) == corev1.ConditionTrue }
}

func (c *cluster) gone(namespace, name string) func() bool {
	return func() bool { return c.get(namespace, name) == nil }
}

// run makes a pod that only the virtual node may take.
func (c *cluster) run(name string, change ...podOption) *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{v1alpha1.LabelPeer: "bob"},
			Tolerations:  []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			Containers:   []corev1.Container{{Name: "echo", Image: "kith.dev/echo:1", ImagePullPolicy: corev1.PullNever}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	made, err := c.client.CoreV1().Pods(testNamespace).Create(context.Background(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

func (c *cluster) condition(t corev1.NodeConditionType) corev1.NodeCondition {
	node, err := c.client.CoreV1().Nodes().Get(context.Background(), testNode, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}
	}
	return conditionOf(node.Status.Conditions, t)
}

func (c *cluster) offloadedGone(name string) bool {
	_, err := c.provider.offloaded.get(context.Background(), testTwin, name)
	return err != nil
}

// TestLifeOfAVirtualNode tells one story, since a cluster is dear.
func TestLifeOfAVirtualNode(t *testing.T) {
	began := time.Now()
	c := newCluster(t)
	background := context.Background()

	c.until(5*time.Second, "node is Ready", func() bool { return c.condition(corev1.NodeReady).Status == corev1.ConditionTrue })
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("the node took %s to be Ready", d)
	}
	c.until(5*time.Second, "node has its lease", func() bool {
		l, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(background, testNode, metav1.GetOptions{})
		return err == nil && l.Spec.RenewTime != nil
	})

	web := c.run("web")
	c.until(20*time.Second, "pod is Ready", c.ready("web"))
	if p := c.pod("web"); p.Spec.NodeName != testNode || !strings.HasPrefix(p.Status.PodIP, "10.71.") || p.Status.HostIP != c.ip.String() {
		t.Errorf("pod on %s with address %s, host %s", p.Spec.NodeName, p.Status.PodIP, p.Status.HostIP)
	}
	c.until(10*time.Second, "the guest's events are told at home", func() bool {
		return strings.Contains(c.kubectl("-n", testNamespace, "get", "events", "--field-selector", "involvedObject.name=web,reason=Started"), "Started")
	})

	part := func(name string, f func(*testing.T)) {
		t.Run(name, func(sub *testing.T) {
			c.t = sub
			defer func() { c.t = t }()
			f(sub)
		})
	}
	part("the kubelet endpoint relays", c.tryKubelet)
	part("the kubelet endpoint refuses strangers", c.tryStrangers)

	c.kubectl("-n", testNamespace, "label", "pod", "web", "color=blue")
	c.until(5*time.Second, "a new label reaches the peer", func() bool {
		o, err := c.provider.offloaded.get(background, testTwin, "web")
		return err == nil && o.Spec.Template.Labels["color"] == "blue"
	})

	first := c.guest("web")
	_ = c.client.CoreV1().Pods(testTwin).Delete(background, "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	c.until(20*time.Second, "a guest lost abroad is made again", func() bool { g := c.guest("web"); return g != nil && g.UID != first.UID })
	c.until(20*time.Second, "and the home pod is Ready again", func() bool {
		p := c.pod("web")
		return c.ready("web")() && p.UID == web.UID && p.Status.PodIP == strings.Replace(c.guest("web").Status.PodIP, "10.42.", "10.71.", 1)
	})

	c.run("slow", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 25}}}
	})
	c.until(20*time.Second, "slow pod is Ready", c.ready("slow"))
	grace := int64(4)
	_ = c.client.CoreV1().Pods(testNamespace).Delete(background, "slow", metav1.DeleteOptions{GracePeriodSeconds: &grace})
	deleted := time.Now()
	c.until(20*time.Second, "slow guest ended", func() bool {
		if c.pod("slow") == nil {
			t.Error("the pod left home before its guest ended")
		}
		return c.guest("slow") == nil
	})
	ended := time.Now()
	c.until(20*time.Second, "slow pod is gone at home, after the guest", c.gone(testNamespace, "slow"))
	t.Logf("grace of %d s: guest ended after %s, home pod %s later", grace, ended.Sub(deleted).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
	if time.Since(ended) > 2*time.Second {
		t.Error("the home pod stayed although its guest was gone")
	}

	c.run("job", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Args = []string{"echo", "done"}
	})
	c.until(20*time.Second, "a pod that ends has Succeeded at home", func() bool { p := c.pod("job"); return p != nil && p.Status.Phase == corev1.PodSucceeded })
	c.want("done", "-n", testNamespace, "logs", "job")

	c.run("host", func(p *corev1.Pod) { p.Labels["forbidden"] = "yes" })
	c.until(10*time.Second, "a refusal shows its reason", func() bool {
		p := c.pod("host")
		return p.Status.Phase == corev1.PodPending && p.Status.Reason == "HostNetwork" && strings.Contains(p.Status.Message, "not on my laptop")
	})
	c.until(10*time.Second, "and makes an event", func() bool {
		return strings.Contains(c.kubectl("-n", testNamespace, "get", "events", "--field-selector", "involvedObject.name=host"), "not on my laptop")
	})
	c.kubectl("-n", testNamespace, "label", "pod", "host", "forbidden-")
	c.until(20*time.Second, "allowed after all, it runs", c.ready("host"))

	part("a new pod of the same name", func(t *testing.T) {
		c.kubectl("-n", testNamespace, "delete", "pod", "host", "--force", "--grace-period=0")
		again := c.run("host")
		c.until(60*time.Second, "runs after the old one ended", func() bool {
			o, err := c.provider.offloaded.get(background, testTwin, "host")
			return err == nil && o.Spec.HomeUID == again.UID && c.ready("host")()
		})
	})
	part("a restart", c.tryRestart)
	part("a cut link", c.tryCut)
}

func (c *cluster) tryKubelet(t *testing.T) {
	ns := []string{"-n", testNamespace}
	k := func(args ...string) []string { return append(ns[:2:2], args...) }
	c.until(15*time.Second, "logs come", func() bool {
		out := c.kubectl(k("logs", "web", "--tail=1")...)
		return out != "" && !strings.Contains(out, "rror")
	})
	c.want("previous terminated container", k("logs", "web", "--previous")...)
	c.want("hello", k("exec", "web", "--", "echo", "hello")...)
	c.want("exit code 127", k("exec", "web", "--", "/app", "no-such-tool")...)
	c.want("container nope is not valid", k("exec", "web", "-c", "nope", "--", "echo")...)

	in := exec.CommandContext(t.Context(), "kubectl", k("exec", "-i", "web", "--", "cat")...)
	in.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv("KITH_TEST_KUBECONFIG"))
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	in.Stdin = bytes.NewReader(payload)
	if out, err := in.Output(); err != nil || !bytes.Equal(out, payload) {
		t.Errorf("exec -i cat: %d bytes of %d came back: %v", len(out), len(payload), err)
	}

	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, payload, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Log(c.kubectl(k("cp", from, "web:/tmp/copied")...))
	t.Log(c.kubectl(k("cp", "web:/tmp/copied", to)...))
	if back, err := os.ReadFile(to); err != nil || !bytes.Equal(back, payload) {
		t.Errorf("kubectl cp there and back: %d bytes of %d: %v", len(back), len(payload), err)
	}

	forward := exec.CommandContext(t.Context(), "kubectl", k("port-forward", "pod/web", "18080:8080")...)
	forward.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv("KITH_TEST_KUBECONFIG"))
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forward.Process.Kill(); _ = forward.Wait() }()
	c.until(10*time.Second, "port-forward answers", func() bool {
		resp, err := http.Get("http://127.0.0.1:18080/")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == 200 && len(body) > 0
	})

	follow := exec.CommandContext(t.Context(), "kubectl", k("logs", "-f", "web")...)
	follow.Env = forward.Env
	var said bytes.Buffer
	follow.Stdout = &said
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	_ = follow.Process.Kill()
	_ = follow.Wait()
	if said.Len() == 0 {
		t.Error("logs -f said nothing")
	}
}

func (c *cluster) tryStrangers(t *testing.T) {
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 5 * time.Second}
	url := fmt.Sprintf("https://%s:%d/containerLogs/%s/web/echo", c.ip, c.port, testNamespace)
	if resp, err := insecure.Get(url); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a client without a certificate got %v, %v", resp, err)
	}
	// The administrator's certificate is of the right authority, so now it depends on its rights: it has them.
	admin, err := rest.TLSConfigFor(c.rest)
	if err != nil {
		t.Fatal(err)
	}
	known := &http.Client{Transport: &http.Transport{TLSClientConfig: admin}, Timeout: 5 * time.Second}
	resp, err := known.Get(url)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the administrator: %v %v", resp, err)
	}
	if allowed, err := c.kubelet.access.allowed(t.Context(), "mallory", nil, "get", "proxy", testNode); err != nil || allowed {
		t.Errorf("mallory may use nodes/proxy: %v %v", allowed, err)
	}
}

func (c *cluster) tryRestart(t *testing.T) {
	c.run("stray")
	c.until(20*time.Second, "stray is Ready", c.ready("stray"))
	restarts := c.guest("web").UID
	events := c.kubectl("-n", testNamespace, "get", "events", "-o", "name", "--field-selector", "involvedObject.name=web")
	c.stop()
	c.kubectl("-n", testNamespace, "delete", "pod", "stray", "--force", "--grace-period=0")
	c.kubectl("-n", testNamespace, "delete", "pod", "web", "--wait=false")
	made := c.run("later")
	c.start()
	c.until(60*time.Second, "what was deleted by force meanwhile goes abroad too", func() bool { return c.offloadedGone("stray") })
	c.until(60*time.Second, "what was being deleted is", func() bool { return c.offloadedGone("web") && c.pod("web") == nil })
	c.until(20*time.Second, "what was made meanwhile runs", func() bool { return c.ready("later")() && c.pod("later").UID == made.UID })
	if restarts == "" || strings.Count(events, "\n") < 3 {
		t.Errorf("events before the restart: %s", events)
	}
}

func (c *cluster) tryCut(t *testing.T) {
	background := context.Background()
	c.run("kept")
	c.until(20*time.Second, "kept is Ready", c.ready("kept"))
	kept := c.guest("kept")
	c.link.set(true)
	c.node.SetReady(false, "NoHandshake", "tunnel: no handshake for 40 s")
	c.until(2*time.Second, "PeerReachable is False at once", func() bool { return c.condition(PeerReachable).Status == corev1.ConditionFalse })
	if s := c.condition(corev1.NodeReady).Status; s != corev1.ConditionTrue {
		t.Errorf("Ready is %s at once", s)
	}
	// "later" is deleted gracefully, "host" by force, "new" is made, while nobody hears of it abroad.
	c.kubectl("-n", testNamespace, "delete", "pod", "later", "--wait=false", "--grace-period=1")
	c.kubectl("-n", testNamespace, "delete", "pod", "host", "--force", "--grace-period=0")
	made := c.run("new")
	c.until(testGrace+3*time.Second, "Ready is False after the grace", func() bool {
		r := c.condition(corev1.NodeReady)
		return r.Status == corev1.ConditionFalse && r.Reason == reasonUnreachable && strings.Contains(r.Message, "no handshake")
	})
	c.until(20*time.Second, "its pods are not ready either", func() bool { return !c.ready("kept")() })
	time.Sleep(4 * time.Second)
	if c.pod("later") == nil || c.guest("later") == nil || c.ready("kept")() {
		t.Error("a pod left home though its guest may run on, or was called Ready")
	}

	c.link.set(false)
	c.node.SetReady(true, "", "")
	c.until(2*time.Second, "Ready at once after the link healed", func() bool { return c.condition(corev1.NodeReady).Status == corev1.ConditionTrue })
	c.until(20*time.Second, "pods are ready again", c.ready("kept"))
	c.until(20*time.Second, "the deletion is done", func() bool { return c.pod("later") == nil && c.guest("later") == nil })
	c.until(60*time.Second, "what was deleted by force is gone abroad", func() bool { return c.offloadedGone("host") })
	c.until(30*time.Second, "the new pod runs", func() bool { return c.ready("new")() && c.pod("new").UID == made.UID })
	if g := c.guest("kept"); g == nil || g.UID != kept.UID {
		t.Error("the guest did not outlive the cut")
	}
	pods, err := c.client.CoreV1().Pods(testTwin).List(background, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if c.pod(p.Name) == nil {
			t.Errorf("guest %s has no pod at home", p.Name)
		}
	}
}
