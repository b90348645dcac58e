package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/core/net/netplan"
)

func k3sAt(l laptop) K3sConfig {
	return K3sConfig{Binary: filepath.Join(engineDir, "k3s"), NodeName: "alice", DataDir: l.dir, RunDir: l.path("run"), Network: netplan.Usual(), Log: slog.New(slog.DiscardHandler)}
}

// k3s is a supervisor of a K3s at work. The configuration keeps the node's address away from this machine.
func (l laptop) k3s(change func(*K3sConfig)) *K3s {
	l.t.Helper()
	if err := os.MkdirAll(l.path("config.yaml.d"), 0o700); err != nil {
		l.t.Fatal(err)
	}
	l.write("config.yaml.d/address.yaml", "node-ip: 192.0.2.7\n")
	cfg := k3sAt(l)
	if change != nil {
		change(&cfg)
	}
	k, err := NewK3s(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	k.pace = pace{asking: 5 * time.Millisecond, watching: 20 * time.Millisecond, patience: 3, pause: 10 * time.Millisecond, most: 50 * time.Millisecond, settled: time.Minute, goodbye: 200 * time.Millisecond}
	k.probe = func(context.Context) error {
		b, err := os.ReadFile(l.path("ready"))
		if pid, e := strconv.Atoi(string(b)); err != nil || e != nil || !alive(pid) {
			return errors.New("not ready")
		}
		return nil
	}
	return k
}

func (l laptop) runK3s(k *K3s) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("Run: %v", err)
		}
		done <- nil
	}
	l.t.Cleanup(stop)
	return stop
}

func (k *K3s) waitFor(t *testing.T, phase Phase) {
	daemon{Builtin: &Builtin{child: k.child}}.waitFor(t, phase)
}

func TestK3sIsToldByFilesOfItsOwn(t *testing.T) {
	l := newLaptop(t)
	k := l.k3s(nil)
	if args := k.args(); !slices.Equal(args, []string{"server", "--config=" + l.path("config.yaml")}) {
		t.Errorf("arguments %q", args)
	}
	got, err := k3sconfig.Read(l.path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][]string{
		"data-dir": {l.dir}, "node-name": {"alice"}, "node-ip": {"192.0.2.7"}, "cluster-cidr": {"10.42.0.0/16"}, "service-cidr": {"10.43.0.0/16"},
		"cluster-dns": {"10.43.0.10"}, "write-kubeconfig": {l.path("admin.kubeconfig")}, "write-kubeconfig-mode": {"0600"}, "egress-selector-mode": {"disabled"},
		"disable": {"traefik", "servicelb"}, "tls-san": {"10.42.255.1", "alice"}, "kube-proxy-arg": {"nodeport-addresses=127.0.0.0/8,10.42.255.1/32"},
		"disable-scheduler": nil, "kube-controller-manager-arg": nil,
	} {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	f := k.Facts()
	if !f.Ours || !f.Switchable || f.GuestLinks || f.TenantDNS || !f.NodePorts || f.NoTunnel || f.NodeName != "alice" || f.API.String() != "192.0.2.7:6443" ||
		f.Kubeconfig != l.path("admin.kubeconfig") || f.Runtime != K3sRuntime {
		t.Errorf("%+v", f)
	}
}

func TestOwnersFilesBesideOursHoldButForWhatKithNeeds(t *testing.T) {
	l := newLaptop(t)
	if err := os.MkdirAll(l.path("config.yaml.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.write("config.yaml.d/mine.yaml", "cluster-cidr: 10.44.0.0/16\nservice-cidr: fd00::/112,10.45.0.0/16\nhttps-listen-port: 7443\nwrite-kubeconfig: /elsewhere\negress-selector-mode: agent\n")
	k := l.k3s(nil)
	f := k.Facts()
	if f.Network.Pods.String() != "10.44.0.0/16" || f.Network.Services.String() != "10.45.0.0/16" || f.API.Port() != 7443 {
		t.Errorf("%+v", f)
	}
	got, err := k3sconfig.Read(l.path("config.yaml"))
	if err != nil || got.Last("write-kubeconfig") != l.path("admin.kubeconfig") || got.Last("egress-selector-mode") != "disabled" {
		t.Errorf("%v, %v", got, err)
	}
	l.write("config.yaml.d/mine.yaml", "cluster-cidr: many\n")
	if _, err := NewK3s(k3sAt(l)); err == nil || !strings.Contains(err.Error(), "cluster-cidr") {
		t.Errorf("a range that is none: %v", err)
	}
	cfg := k3sAt(l)
	cfg.Flags = []string{"--data-dir=/elsewhere"}
	if _, err := NewK3s(cfg); err == nil || !strings.Contains(err.Error(), "--data-dir=/elsewhere is set by kithd") {
		t.Errorf("a flag that is ours: %v", err)
	}
}

func TestK3sDecidesOrNotByItsConfiguration(t *testing.T) {
	l := newLaptop(t)
	k := l.k3s(nil)
	stop := l.runK3s(k)
	k.waitFor(t, Ready)
	if err := k.Decide(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	told := func() (k3sconfig.Values, int) {
		got, err := k3sconfig.Read(l.path("config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return got, len(l.starts())
	}
	got, starts := told()
	controllers := got.Last("kube-controller-manager-arg")
	if got.Last("disable-scheduler") != "true" || !strings.HasPrefix(controllers, "controllers=") || strings.Contains(controllers, "deployment") ||
		!strings.Contains(controllers, "namespace-controller") || starts != 2 {
		t.Errorf("told not to decide: %v, %d starts", got, starts)
	}
	if alive(l.starts()[0].pid) {
		t.Error("the one that decides still runs")
	}
	stop()

	next := l.k3s(nil) // another kithd
	l.runK3s(next)
	next.waitFor(t, Ready)
	if got, starts := told(); next.Decides() || starts != 2 || got.Last("disable-scheduler") != "true" {
		t.Errorf("the next kithd: decides %t, %d starts", next.Decides(), starts)
	}
	if err := next.Decide(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got, starts := told(); !next.Decides() || starts != 3 || got["disable-scheduler"] != nil {
		t.Errorf("told to decide again: %v, %d starts", got, starts)
	}
	if err := next.Decide(t.Context(), true); err != nil || len(l.starts()) != 3 {
		t.Errorf("told what it does: %v, %d starts", err, len(l.starts()))
	}
}

func TestUpgradedK3sIsStartedAnew(t *testing.T) {
	l := newLaptop(t)
	program := l.path("k3s")
	put := func(age time.Duration) {
		t.Helper()
		from, err := os.Open(filepath.Join(engineDir, Program))
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		to, err := os.OpenFile(program+".new", os.O_CREATE|os.O_WRONLY, 0o755)
		if err == nil {
			_, err = io.Copy(to, from)
		}
		if err = errors.Join(err, to.Close(), os.Chtimes(program+".new", time.Time{}, time.Now().Add(-age)), os.Rename(program+".new", program)); err != nil {
			t.Fatal(err)
		}
	}
	put(time.Hour)
	k := l.k3s(func(c *K3sConfig) { c.Binary = program })
	l.runK3s(k)
	k.waitFor(t, Ready)
	put(2 * time.Hour) // whichever is older
	eventually(t, "a start of the new one", func() bool { return len(l.starts()) == 2 })
	k.waitFor(t, Ready)
	put(0) // as if it were being written
	time.Sleep(100 * time.Millisecond)
	if n := len(l.starts()); n != 2 {
		t.Errorf("a program that is just being written was started: %d starts", n)
	}
	l.write("config.yaml.d/mine.yaml", "disable: []\n")
	if err := os.Chtimes(program, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a start with what the owner changed", func() bool { return len(l.starts()) == 3 })
	k.waitFor(t, Ready)
}

func TestK3sThatEndsIsExplainedAndStartedAgain(t *testing.T) {
	l := newLaptop(t)
	l.write("refuse", "listen tcp :6443: bind: address already in use")
	k := l.k3s(nil)
	l.runK3s(k)
	k.waitFor(t, Failed)
	if why := k.State().Why; !strings.Contains(why, "k3s ended") || !strings.Contains(why, "address already in use") {
		t.Errorf("why %q", why)
	}
	if err := os.Remove(l.path("refuse")); err != nil {
		t.Fatal(err)
	}
	k.waitFor(t, Ready)
	starts := l.starts()
	if err := syscall.Kill(starts[len(starts)-1].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another start", func() bool { return len(l.starts()) > len(starts) })
	k.waitFor(t, Ready)
	if err := l.k3s(nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another kithd") {
		t.Errorf("a second kithd: %v", err)
	}
}

func TestRenewedCertificateOfK3sIsTold(t *testing.T) {
	l := newLaptop(t)
	k := l.k3s(nil)
	if _, err := k.load(); err == nil || !strings.Contains(err.Error(), "being made") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	if host := k.RESTConfig().Host; host != "https://127.0.0.1:6443" {
		t.Errorf("leads to %s", host)
	}
	l.write("admin.kubeconfig", twoContexts)
	first := k.RESTConfig()
	if first.Host != "https://a.example:6443" || k.RESTConfig() != first {
		t.Errorf("leads to %s", first.Host)
	}
	changed := k.Changed()
	l.write("admin.kubeconfig", strings.ReplaceAll(twoContexts, "secret", "newer"))
	if k.RESTConfig().BearerToken != "newer" {
		t.Error("the old credentials are used")
	}
	select {
	case <-changed:
	default:
		t.Error("nobody hears of it")
	}
}

var _ Engine = (*K3s)(nil)
var _ Engine = (*K3sService)(nil)

func TestRangesOfK3sAreOfIPv4(t *testing.T) {
	for text, want := range map[string]string{"": "10.42.0.0/16", "10.44.0.0/16": "10.44.0.0/16", "fd00::/48, 10.46.0.0/16": "10.46.0.0/16", "fd00::/48": "10.42.0.0/16"} {
		got, err := rangesOf(k3sconfig.Values{"cluster-cidr": {text}}, netplan.Usual())
		if err != nil || got.Pods != netip.MustParsePrefix(want) {
			t.Errorf("%q: %s, %v", text, got.Pods, err)
		}
	}
}
