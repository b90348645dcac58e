package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nodedevice"
)

// K3sConfig says how a K3s is run.
type K3sConfig struct {
	Binary    string // its program
	NodeName  string
	DataDir   string // what it keeps, and its configuration, such as /var/lib/kith/k3s
	RunDir    string // where kithd notes that it runs, such as /run/kith/k3s
	ImagesDir string // image archives imported at start; by default agent/images in DataDir
	Network   netplan.Cluster
	ExposeLAN bool     // open node ports to the LAN
	Flags     []string // more flags for k3s server
	Log       *slog.Logger
}

// K3s is a K3s that Kith runs: `k3s server` as a child, with a configuration and a data directory of its own, so that another K3s of this
// machine is not touched. All of it is K3s' documented interface; addresses are as those of the built-in Kubernetes, but what gives guests
// theirs is K3s' network plugin.
type K3s struct {
	*child
	cfg   K3sConfig
	facts Facts

	mu      sync.Mutex
	made    []byte       // the kubeconfig that rest was made of
	rest    *rest.Config // nil before there is one
	version string       // of Kubernetes, as the one that runs says
	asked   string       // fingerprint of the one that said so
}

// K3sRuntime is the socket of the container runtime that K3s runs.
const K3sRuntime = "/run/k3s/containerd/containerd.sock"

// k3sOwn are the flags that the owner must not give, since kithd sets them and relies on them.
var k3sOwn = []string{"config", "c", "data-dir", "d", "write-kubeconfig", "o", "disable-scheduler", "disable-controller-manager"}

// NewK3s checks the configuration, and reads what the owner has put beside ours. Nothing runs before Run.
func NewK3s(cfg K3sConfig) (*K3s, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("K3s needs Linux, this is " + runtime.GOOS + ": set engine to kubeconfig, and kubeconfig to a cluster in a virtual machine or elsewhere")
	}
	if err := cfg.Network.Validate(); err != nil {
		return nil, err
	}
	for _, flag := range cfg.Flags {
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if slices.Contains(k3sOwn, name) {
			return nil, fmt.Errorf("engineFlags: %s is set by kithd itself for the K3s that it runs", flag)
		}
	}
	k := &K3s{child: newChild(cfg.Log), cfg: cfg}
	k.what, k.kind, k.name = "K3s", "K3s", filepath.Base(cfg.Binary)
	k.program, k.node, k.dataDir, k.runDir = cfg.Binary, cfg.NodeName, cfg.DataDir, cfg.RunDir
	k.args = func() []string { return append([]string{"server", "--config=" + k.file()}, cfg.Flags...) }
	k.settings, k.prepare, k.probe, k.converge = k.wanted, k.ready, k.askReadyz, k.compare
	k.recall()
	all, err := k.merged()
	if err != nil {
		return nil, fmt.Errorf("configuration of K3s: %w", err)
	}
	if k.facts, err = k.factsOf(all); err != nil {
		return nil, fmt.Errorf("configuration of K3s in %s: %w", k3sconfig.Dropins(k.file()), err)
	}
	return k, nil
}

// ready prepares what K3s needs at its start: its configuration, the node's address, the images.
func (k *K3s) ready() error {
	if err := k.write(); err != nil {
		return fmt.Errorf("configuration of K3s: %w", err)
	}
	if all, err := k3sconfig.Read(k.file()); err == nil {
		if now, err := k.factsOf(all); err != nil || now != k.facts {
			k.log.Warn("the configuration of K3s was changed in what kithd builds upon, and needs kithd to be started anew: systemctl restart kithd", "file", k.file(), "err", err)
		}
	}
	if k.facts.NodeIP == k.cfg.Network.Node() {
		if err := nodedevice.Ensure(netplan.Node, k.facts.NodeIP); err != nil {
			return fmt.Errorf("node device %s: %w", netplan.Node, err)
		}
	}
	images := filepath.Join(k.dataDir, "agent", "images")
	if k.cfg.ImagesDir == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(images), 0o711); err != nil {
		return err
	}
	if err := os.Symlink(k.cfg.ImagesDir, images); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("images of K3s: %w", err)
	}
	return nil
}

// whole is how long a program file must have been unchanged until an upgrade counts as completely written.
const whole = 5 * time.Second

// compare restarts K3s (errAnew) when its program or configuration has changed, or when Decide was called. While the program file is being
// replaced it waits.
func (k *K3s) compare(context.Context) error {
	want, news := k.deciding.next()
	now, err := k.fingerprint()
	if err != nil {
		return nil // the program is being replaced, or was removed: K3s keeps running
	}
	if now != k.running {
		if st, err := os.Stat(k.program); err != nil || time.Since(st.ModTime()) < whole {
			return nil
		}
		return errAnew
	}
	k.deciding.told(want)
	if news {
		k.changed.Notify()
	}
	k.learn()
	return nil
}

// learn asks each K3s once for its version.
func (k *K3s) learn() {
	k.mu.Lock()
	known := k.asked == k.running
	k.mu.Unlock()
	cfg, err := k.load()
	if known || err != nil {
		return
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return
	}
	v, err := client.ServerVersion()
	if err != nil { // asked again at the next look
		return
	}
	k.mu.Lock()
	k.version, k.asked = v.GitVersion, k.running
	k.mu.Unlock()
	k.changed.Notify()
}

// load reads the kubeconfig that K3s wrote, again each time K3s has written it, as it does when it renews the certificate in it.
func (k *K3s) load() (*rest.Config, error) {
	text, err := os.ReadFile(k.kubeconfig())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("its certificates are being made")
	} else if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rest != nil && bytes.Equal(text, k.made) {
		return k.rest, nil
	}
	made, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.kubeconfig(), err)
	}
	if k.rest != nil {
		defer k.changed.Notify()
	}
	k.rest, k.made = made, text
	return made, nil
}

// askReadyz asks the API server, and believes only this K3s's: its certificate must be of its authority.
func (k *K3s) askReadyz(ctx context.Context) error {
	cfg, err := k.load()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	return askReadyz(ctx, client, cfg.Host)
}

// RESTConfig is what the kubeconfig says that K3s wrote.
func (k *K3s) RESTConfig() *rest.Config {
	cfg, err := k.load()
	if err != nil {
		return &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", k.facts.API.Port())}
	}
	return cfg
}

// Kubeconfig is the administrator's, as K3s wrote it.
func (k *K3s) Kubeconfig() ([]byte, error) { return os.ReadFile(k.kubeconfig()) }

// Facts follow from the configuration, the owner's part included, as it was when kithd started.
func (k *K3s) Facts() Facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.facts
	f.Version = k.version
	return f
}
