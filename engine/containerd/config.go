package containerd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/template"

	"kith.dev/engine/network"
)

// Options say where things are.
type Options struct {
	RuntimeDir string // containerd, shim, runc, ctr; cni/
	DataDir    string // images and containers
	StateDir   string // socket, pid file
	CNIConf    string // folder of the CNI configuration
	GuestConf  string // folder of the CNI configuration of guests
	PauseImage string
	// RestrictOOM keeps a container's oom_score_adj at or above containerd's: without CAP_SYS_RESOURCE the
	// kernel refuses to lower it, and no pod would start.
	RestrictOOM bool
}

// Socket is where containerd answers.
func (o Options) Socket() string { return filepath.Join(o.StateDir, "containerd.sock") }

func (o Options) root() string { return filepath.Join(o.DataDir, "root") }

func (o Options) config() string { return filepath.Join(o.DataDir, "config.toml") }
func (o Options) pidFile() string {
	return filepath.Join(o.StateDir, "containerd.pid")
}
func (o Options) program(name string) string { return filepath.Join(o.RuntimeDir, name) }

// Snapshotters and tracers that need a special file system or a collector only cost start time and warnings.
var configTemplate = template.Must(template.New("config").Funcs(template.FuncMap{"q": quote}).Parse(`# Written by kith-k8s at every start.
version = 3
root = {{q .Root}}
state = {{q .State}}
disabled_plugins = [
  'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs', 'io.containerd.differ.v1.erofs',
  'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing', 'io.containerd.nri.v1.nri',
]
oom_score = {{.OOMScore}}

[grpc]
  address = {{q .Socket}}

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {{q .Pause}}

[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  disable_apparmor = {{.NoAppArmor}}
  restrict_oom_score_adj = {{.RestrictOOM}}
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [{{q .CNIBin}}]
    conf_dir = {{q .CNIConf}}
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'
      runtime_path = {{q .Shim}}
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = {{q .Runc}}
        SystemdCgroup = false
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.Guest}}]
      runtime_type = 'io.containerd.runc.v2'
      runtime_path = {{q .Shim}}
      cni_conf_dir = {{q .GuestConf}}
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.Guest}}.options]
        BinaryName = {{q .Runc}}
        SystemdCgroup = false
`))

// quote makes a TOML basic string; JSON's quoting is a subset of it.
func quote(s string) (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

func (o Options) render() ([]byte, error) {
	oom := -999 // below every pod, as the kubelet wants its runtime
	if o.RestrictOOM {
		oom = 0 // 0 leaves it as it is
	}
	var b bytes.Buffer
	err := configTemplate.Execute(&b, map[string]any{
		"Root": o.root(), "State": filepath.Join(o.StateDir, "state"), "Socket": o.Socket(),
		"Pause": o.PauseImage, "CNIBin": network.PluginDir(o.RuntimeDir), "CNIConf": o.CNIConf,
		"Guest": network.GuestRuntime, "GuestConf": o.GuestConf,
		"Shim": o.program("containerd-shim-runc-v2"), "Runc": o.program("runc"),
		"RestrictOOM": o.RestrictOOM, "OOMScore": oom, "NoAppArmor": !hasAppArmor(),
	})
	if err != nil {
		return nil, fmt.Errorf("configuration of containerd: %w", err)
	}
	return b.Bytes(), nil
}
