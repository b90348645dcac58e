package containerd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
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
	NVIDIA      string // NVIDIA's container runtime, see FindNVIDIA; "" for none
}

// Socket is where containerd answers.
func (o Options) Socket() string { return filepath.Join(o.StateDir, "containerd.sock") }

func (o Options) root() string { return filepath.Join(o.DataDir, "root") }

func (o Options) config() string { return filepath.Join(o.DataDir, "config.toml") }
func (o Options) pidFile() string {
	return filepath.Join(o.StateDir, "containerd.pid")
}
func (o Options) program(name string) string { return filepath.Join(o.RuntimeDir, name) }

// Snapshotters and tracers that need a special file system or a collector only cost start time and warnings. Devices by CDI (enable_cdi, of
// specifications in /etc/cdi and /var/run/cdi) are on without a word.
//
// An idle containerd is felt by its timers. The CPU time of containers, which it has from each shim each second, nobody reads here, as the
// kubelet has cadvisor's. For garbage it looks four times a second, now once in two; after an image is deleted at once all the same.
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

[plugins.'io.containerd.gc.v1.scheduler']
  pause_threshold = 0.0025

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {{q .Pause}}

[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  disable_apparmor = {{.NoAppArmor}}
  restrict_oom_score_adj = {{.RestrictOOM}}
  stats_collect_period = '1m'
  stats_retention_period = '2m'
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [{{q .CNIBin}}]
    conf_dir = {{q .CNIConf}}
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
{{- range .Runtimes}}
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.Name}}]
      runtime_type = 'io.containerd.runc.v2'
      runtime_path = {{q $.Shim}}
{{- if .CNIConf}}
      cni_conf_dir = {{q .CNIConf}}
{{- end}}
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.Name}}.options]
        BinaryName = {{q .Program}}
        SystemdCgroup = false
{{- end}}
`))

// handler is a runtime that pods can name by a RuntimeClass.
type handler struct{ Name, Program, CNIConf string }

// handlers: each twice, for the owner's pods and for guests, which have a network of their own.
func (o Options) handlers() []handler {
	list := []handler{{"runc", o.program("runc"), ""}, {network.GuestRuntime, o.program("runc"), o.GuestConf}}
	if o.NVIDIA != "" {
		list = append(list, handler{network.NVIDIARuntime, o.NVIDIA, ""}, handler{network.GuestNVIDIARuntime, o.NVIDIA, o.GuestConf})
	}
	return list
}

// FindNVIDIA looks for NVIDIA's container runtime where its packages put it, and its operator; "" when there is none. It stands before runc, and
// shows a container the devices that it was given.
func FindNVIDIA(root string) string {
	for _, dir := range []string{"usr/bin", "usr/local/bin", "usr/local/nvidia/toolkit"} {
		path := filepath.Join(root, dir, "nvidia-container-runtime")
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

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
		"Shim": o.program("containerd-shim-runc-v2"), "Runtimes": o.handlers(),
		"RestrictOOM": o.RestrictOOM, "OOMScore": oom, "NoAppArmor": !hasAppArmor(),
	})
	if err != nil {
		return nil, fmt.Errorf("configuration of containerd: %w", err)
	}
	return b.Bytes(), nil
}
