package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/core/net/netplan"
)

// unit is a service of a test.
type unit struct {
	state    string
	restarts int
	fails    error
	restart  func()
}

func (u *unit) Name() string                          { return "k3s.service" }
func (u *unit) State(context.Context) (string, error) { return u.state, nil }
func (u *unit) Restart(context.Context) error {
	u.restarts++
	if u.fails == nil && u.restart != nil {
		u.restart()
	}
	return u.fails
}

// installed is a K3s of an owner: its configuration, and a server that answers with code.
func installed(t *testing.T, config string, u Unit) (*K3sService, *atomic.Int32) {
	t.Helper()
	var code atomic.Int32
	code.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "k3s.yaml"), filepath.Join(dir, "config.yaml")
	text := strings.Replace(twoContexts, "https://a.example:6443", server.URL, 1)
	if err := errors.Join(os.WriteFile(kubeconfig, []byte(text), 0o600), os.WriteFile(file, []byte("write-kubeconfig: "+kubeconfig+"\n"+config), 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err := NewK3sService(K3sServiceConfig{Config: file, NodeName: "alice", Network: netplan.Usual(), Unit: u, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.client = fake.NewClientset(node("alice", "192.0.2.7", "10.44.0.0/24", nil), services("10.45.0.0/16"))
	s.asking, s.watching = 5*time.Millisecond, 5*time.Millisecond
	return s, &code
}

func runs(t *testing.T, s *K3sService) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

const ranges = "cluster-cidr: 10.44.0.0/16\nservice-cidr: 10.45.0.0/16\n"

func TestOwnersK3sIsReadFromItsConfigurationAndNode(t *testing.T) {
	s, _ := installed(t, ranges, nil)
	if f := s.Facts(); f.Network.Pods.String() != "10.44.0.0/16" || f.Network.Services.String() != "10.45.0.0/16" {
		t.Errorf("before it answers: %+v", f)
	}
	runs(t, s)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := s.Facts(); f.NodeIP.String() != "192.0.2.7" || f.Ours || f.Switchable || f.GuestLinks || f.NodePorts || !f.NoTunnel || f.Runtime != K3sRuntime || f.Network.Pods.String() != "10.44.0.0/16" {
		t.Errorf("%+v", f)
	}
	if err := s.Decide(t.Context(), false); !errors.Is(err, ErrNotOurs) || !s.Decides() {
		t.Errorf("without a unit: %v", err)
	}
	if err := s.Decide(t.Context(), true); err != nil {
		t.Errorf("what it does anyway: %v", err)
	}
}

func TestRangesThatAreNotThoseOfTheOwnersK3sAreSaid(t *testing.T) {
	s, _ := installed(t, "", nil) // as if they stood on its unit's command line
	runs(t, s)
	eventually(t, "it says what to set", func() bool {
		return strings.Contains(s.State().Why, "addresses of 10.44.0.0/24") && strings.Contains(s.State().Why, "set podRange")
	})
}

func TestDisabledEgressSelectorNeedsNoCare(t *testing.T) {
	if s, _ := installed(t, ranges+"egress-selector-mode: disabled\n", nil); s.Facts().NoTunnel {
		t.Error("virtual nodes hide their address from an API server that dials them")
	}
}

func TestK3sThatIsNotThereOrNotReadableIsSaid(t *testing.T) {
	dir := t.TempDir()
	for what, tt := range map[string]struct{ config, kubeconfig, says string }{
		"absent":                    {"", "", "no such file"},
		"a kubeconfig that is none": {"", "hello", "k3s.yaml"},
		"no YAML":                   {"a: [", twoContexts, "configuration of K3s"},
		"a range that is none":      {"cluster-cidr: many\n", twoContexts, "cluster-cidr"},
		"dual-stack, IPv6 alone":    {"cluster-cidr: fd00::/48\nservice-cidr: 10.43.0.0/30\n", twoContexts, "service range"},
	} {
		file, kubeconfig := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "k3s.yaml")
		_ = os.Remove(kubeconfig)
		if err := os.WriteFile(file, []byte(tt.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if tt.kubeconfig != "" {
			if err := os.WriteFile(kubeconfig, []byte(tt.kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := NewK3sService(K3sServiceConfig{Config: file, Kubeconfig: kubeconfig, Network: netplan.Usual(), Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want it to say %q", what, err, tt.says)
		}
	}
}

func TestStoppedUnitIsNamed(t *testing.T) {
	u := &unit{state: "active (running)"}
	s, code := installed(t, ranges, u)
	runs(t, s)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for state, says := range map[string]string{
		"inactive (dead)": "k3s.service is inactive (dead); start it: systemctl start k3s.service", "failed (Result: exit-code)": "k3s.service is failed",
		"activating (start)": "k3s.service is starting", "active (running)": "its API server answers 503",
	} {
		u := &unit{state: state}
		if err := (&K3sService{cfg: K3sServiceConfig{Unit: u}}).why(t.Context(), errors.New("its API server answers 503")); !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", state, err, says)
		}
	}
	code.Store(http.StatusServiceUnavailable)
	eventually(t, "degraded", func() bool { return s.State().Phase == Degraded })
	if u.restarts != 0 {
		t.Error("a service of the owner was restarted")
	}
}

func TestOwnersK3sIsStartedAnewToDecideOrNot(t *testing.T) {
	u := &unit{state: "active (running)"}
	s, _ := installed(t, ranges+"kube-controller-manager-arg: [v=2]\n", u)
	runs(t, s)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.Facts().Switchable {
		t.Error("it cannot be told")
	}
	if err := s.Decide(t.Context(), false); err != nil || u.restarts != 1 || s.Decides() {
		t.Fatalf("%v, %d restarts, decides %t", err, u.restarts, s.Decides())
	}
	got, err := k3sconfig.Read(s.cfg.Config)
	if args := got["kube-controller-manager-arg"]; err != nil || got.Last("disable-scheduler") != "true" || len(args) != 2 || args[0] != "v=2" || !strings.HasPrefix(args[1], "controllers=") {
		t.Errorf("%v, %v", got, err)
	}
	if err := s.Decide(t.Context(), false); err != nil || u.restarts != 1 {
		t.Errorf("told the same again: %v, %d restarts", err, u.restarts)
	}
	u.fails = fmt.Errorf("Job for k3s.service failed")
	if err := s.Decide(t.Context(), true); err == nil || !strings.Contains(err.Error(), "restart k3s.service") {
		t.Errorf("a restart that fails: %v", err)
	}
	u.fails = nil // the next kithd, too, knows that the restart is still to be done
	if err := s.Decide(t.Context(), true); err != nil || u.restarts != 3 || !s.Decides() {
		t.Errorf("%v, %d restarts, decides %t", err, u.restarts, s.Decides())
	}
	left, err := os.ReadDir(k3sconfig.Dropins(s.cfg.Config))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the owner's folder: %v, %v", left, err)
	}
}

func TestRestartedK3sIsReadAgain(t *testing.T) {
	s, code := installed(t, ranges, nil)
	runs(t, s)
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	code.Store(http.StatusServiceUnavailable)
	eventually(t, "degraded", func() bool { return s.State().Phase == Degraded })
	moved := node("alice", "192.0.2.99", "10.44.0.0/24", nil)
	if _, err := s.client.CoreV1().Nodes().Update(t.Context(), moved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := s.Changed()
	code.Store(http.StatusOK)
	eventually(t, "the new address", func() bool { return s.Facts().NodeIP.String() == "192.0.2.99" && s.State().Phase == Ready })
	select {
	case <-changed:
	default:
		t.Error("nobody hears of it")
	}
}

func TestK3sIsKnownByItsVersion(t *testing.T) {
	for version, want := range map[string]bool{"v1.36.3": false, "v1.36.3+k3s1": true, "v1.36.3+rke2r1": true, "v1.36.3-eks-1": false} {
		if isK3s(version) != want {
			t.Errorf("%s: %t", version, isK3s(version))
		}
	}
}
