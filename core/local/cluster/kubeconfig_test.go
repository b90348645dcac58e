package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"kith.dev/core/net/netplan"
)

const twoContexts = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://a.example:6443"}}, {name: b, cluster: {server: "https://b.example:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}]
current-context: a
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestContextDecidesTheCluster(t *testing.T) {
	path := writeFile(t, twoContexts)
	for context, host := range map[string]string{"": "https://a.example:6443", "b": "https://b.example:6443"} {
		k, err := NewKubeconfig(KubeconfigConfig{Path: path, Context: context})
		if err != nil {
			t.Fatal(err)
		}
		if k.RESTConfig().Host != host {
			t.Errorf("context %q leads to %s, want %s", context, k.RESTConfig().Host, host)
		}
		text, err := k.Kubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), host) || strings.Count(string(text), "server:") != 1 {
			t.Errorf("context %q: the kubeconfig given on is\n%s", context, text)
		}
	}
	_, err := NewKubeconfig(KubeconfigConfig{Path: path, Context: "c"})
	if err == nil || !strings.Contains(err.Error(), `no context "c"`) {
		t.Errorf("unknown context: %v", err)
	}
}

func node(name, ip, cidr string, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{PodCIDR: cidr},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func services(cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

func TestNodeAndRangesAreFoundOrAskedFor(t *testing.T) {
	alice := node("alice", "192.0.2.7", "10.1.0.0/24", nil)
	usual := netplan.Usual()
	virtual := node("kith-bob", "10.1.255.1", "", map[string]string{"type": "virtual-kubelet"})
	for _, tt := range []struct {
		name    string
		cfg     KubeconfigConfig
		objects []runtime.Object
		want    Facts
		says    string
	}{
		{name: "all found", cfg: KubeconfigConfig{NodeName: "alice"}, objects: []runtime.Object{alice, services("fd00::/108", "10.2.0.0/16")},
			want: Facts{NodeName: "alice", NodeIP: netip.MustParseAddr("192.0.2.7"), Network: netplan.Cluster{Pods: netip.MustParsePrefix("10.1.0.0/16"), Services: netip.MustParsePrefix("10.2.0.0/16")}}},
		{name: "ranges given win", cfg: KubeconfigConfig{NodeName: "alice", Network: netplan.Cluster{Pods: netip.MustParsePrefix("10.1.0.0/16"), Services: netip.MustParsePrefix("10.9.0.0/16")}},
			objects: []runtime.Object{alice, services("10.2.0.0/16")},
			want:    Facts{NodeName: "alice", NodeIP: netip.MustParseAddr("192.0.2.7"), Network: netplan.Cluster{Pods: netip.MustParsePrefix("10.1.0.0/16"), Services: netip.MustParsePrefix("10.9.0.0/16")}}},
		{name: "what is usual does not hide what the cluster says", cfg: KubeconfigConfig{NodeName: "alice", Assumed: true, Network: usual}, objects: []runtime.Object{alice, node("dave", "192.0.2.8", "10.1.9.0/24", nil)},
			says: "10.1.0.0/16, and kithd began with 10.42.0.0/16"},
		{name: "what is usual is so", cfg: KubeconfigConfig{NodeName: "eve", Assumed: true, Network: usual}, objects: []runtime.Object{node("eve", "192.0.2.7", "10.42.7.0/24", nil), virtual},
			want: Facts{NodeName: "eve", NodeIP: netip.MustParseAddr("192.0.2.7"), Network: usual}},
		{name: "parts that nothing holds", cfg: KubeconfigConfig{NodeName: "alice", Assumed: true, Network: usual}, objects: []runtime.Object{alice, node("dave", "192.0.2.8", "172.16.9.0/24", nil)}, says: "set podRange"},
		{name: "the only real node", objects: []runtime.Object{alice, virtual, services("10.2.0.0/16")},
			want: Facts{NodeName: "alice", NodeIP: netip.MustParseAddr("192.0.2.7"), Network: netplan.Cluster{Pods: netip.MustParsePrefix("10.1.0.0/16"), Services: netip.MustParsePrefix("10.2.0.0/16")}}},
		{name: "in a virtual machine that has another address for this one", cfg: KubeconfigConfig{NodeName: "alice", NodeIP: netip.MustParseAddr("192.168.5.2")}, objects: []runtime.Object{alice, services("10.2.0.0/16")},
			want: Facts{NodeName: "alice", NodeIP: netip.MustParseAddr("192.168.5.2"), Network: netplan.Cluster{Pods: netip.MustParsePrefix("10.1.0.0/16"), Services: netip.MustParsePrefix("10.2.0.0/16")}}},
		{name: "wrong node", cfg: KubeconfigConfig{NodeName: "carol"}, objects: []runtime.Object{alice, services("10.2.0.0/16")}, says: "alice"},
		{name: "several nodes", objects: []runtime.Object{alice, node("dave", "192.0.2.8", "10.1.1.0/24", nil)}, says: "set nodeName"},
		{name: "no pod range", cfg: KubeconfigConfig{NodeName: "erin"}, objects: []runtime.Object{node("erin", "192.0.2.9", "", nil), services("10.2.0.0/16")}, says: "set podRange"},
		{name: "no service range", cfg: KubeconfigConfig{NodeName: "alice"}, objects: []runtime.Object{alice}, says: "set serviceRange"},
		{name: "no IPv4 services", cfg: KubeconfigConfig{NodeName: "alice"}, objects: []runtime.Object{alice, services("fd00::/108")}, says: "set serviceRange"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &Kubeconfig{status: newStatus(Starting, ""), cfg: tt.cfg, client: fake.NewClientset(tt.objects...)}
			err := k.findOut(t.Context())
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error %v, want it to say %q", err, tt.says)
				}
				return
			}
			tt.want.Version = k.version()
			if err != nil || k.Facts() != tt.want {
				t.Errorf("found %+v, %v; want %+v", k.Facts(), err, tt.want)
			}
		})
	}
}

// TestAClusterSaysItsRangeOfPods to those who ask before they begin.
func TestAClusterSaysItsRangeOfPods(t *testing.T) {
	usual := netplan.Usual()
	k := &Kubeconfig{
		status: newStatus(Starting, ""), cfg: KubeconfigConfig{NodeName: "alice", Network: usual, Assumed: true}, facts: Facts{Network: usual},
		client: fake.NewClientset(node("alice", "192.0.2.7", "10.244.0.0/24", nil), node("dave", "192.0.2.8", "10.244.3.0/24", nil)),
	}
	want := netip.MustParsePrefix("10.244.0.0/16")
	if got, err := k.FindPods(t.Context()); err != nil || got != want || k.Facts().Network.Pods != want {
		t.Errorf("%s, %v; the facts say %s", got, err, k.Facts().Network.Pods)
	}
	if err := k.findOut(t.Context()); err != nil || k.Facts().Network.Pods != want {
		t.Errorf("%v; the facts say %s", err, k.Facts().Network.Pods)
	}
	for _, c := range []struct {
		services string
		parts    []string
		want     string
	}{
		{"10.96.0.0/12", []string{"10.244.1.0/24"}, "10.244.0.0/16"}, {"10.0.0.0/16", []string{"10.0.128.0/24"}, ""}, {"10.0.0.0/17", []string{"10.0.128.0/24", "10.0.130.0/24"}, "10.0.128.0/17"},
		{"10.96.0.0/12", []string{"10.244.1.0/24", "10.245.1.0/24"}, "10.244.0.0/15"}, {"10.96.0.0/12", []string{"10.0.0.0/10"}, ""},
	} {
		var parts []netip.Prefix
		for _, p := range c.parts {
			parts = append(parts, netip.MustParsePrefix(p))
		}
		got, err := around(usual.Pods, netip.MustParsePrefix(c.services), parts)
		if (err != nil) != (c.want == "") || err == nil && got.String() != c.want {
			t.Errorf("%v beside %s: %s, %v", c.parts, c.services, got, err)
		}
	}
}

// TestClusterComesAndGoes follows a cluster through a real HTTP server's answers; the objects come from client-go's fake.
func TestClusterComesAndGoes(t *testing.T) {
	var code atomic.Int32
	code.Store(http.StatusInternalServerError)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(int(code.Load()))
		_, _ = w.Write([]byte("[-]etcd failed: reason withheld\n"))
	}))
	defer server.Close()
	k := &Kubeconfig{
		cfg: KubeconfigConfig{NodeName: "alice"}, status: newStatus(Starting, ""), asking: time.Millisecond,
		client: fake.NewClientset(node("alice", "192.0.2.7", "10.1.0.0/24", nil), services("10.2.0.0/16")),
	}
	k.cfg.Log = slog.New(slog.DiscardHandler)
	k.probe = func(ctx context.Context) error { return askReadyz(ctx, server.Client(), server.URL) }
	k.watching = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()

	eventually(t, "the failing check as reason", func() bool { return strings.Contains(k.State().Why, "etcd failed") })
	if k.State().Phase != Starting {
		t.Errorf("%s before it was ever ready", k.State())
	}
	code.Store(http.StatusOK)
	if err := k.WaitReady(t.Context()); err != nil || k.Facts().NodeIP.String() != "192.0.2.7" {
		t.Errorf("ready: %v, node IP %s", err, k.Facts().NodeIP)
	}
	code.Store(http.StatusServiceUnavailable)
	eventually(t, "degraded", func() bool { return k.State().Phase == Degraded })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := k.Decide(t.Context(), false); !errors.Is(err, ErrNotOurs) || !k.Decides() {
		t.Errorf("Decide: %v, %t", err, k.Decides())
	}
}
