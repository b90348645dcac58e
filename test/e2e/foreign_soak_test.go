//go:build lab && soak

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/chart"
	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// kubeadmCluster is a cluster that nobody of Kith wrote: kubeadm made it, of Kubernetes' own programs, with flannel as its network and
// CoreDNS in pods (test/foreign).
type kubeadmCluster struct {
	l     *lab.Lab
	names []string
	one   *lab.Laptop // has the control plane
	two   *lab.Laptop
	home  string // of the programs
	bin   string // of Kith's, for the runtime
}

// foreignCluster makes a lab of laptops, and a foreign cluster of two nodes beside them.
func foreignCluster(t *testing.T, archives []string, laptopNames ...string) *kubeadmCluster {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	build := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/foreign.sh"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs of a foreign cluster: %v\n%s", err, out)
	}
	f := &kubeadmCluster{names: []string{"dave", "erin"}, home: filepath.Join(root, "build/foreign")}
	f.l = laptops(t, lab.Options{Names: laptopNames, Images: archives})
	built, err := images.Build(t.Context(), filepath.Join(t.TempDir(), "images"))
	must(t, err)
	archives = append(built, archives...)
	f.bin, err = lab.FindBin("")
	must(t, err)
	for _, name := range f.names {
		_, err := lab.Up(t.Context(), lab.Options{
			Name: f.l.Name(), Names: []string{name}, Daemon: []string{filepath.Join(root, "test/foreign/node.sh"), f.bin, f.home}, NoEngine: true, Images: archives, Bin: f.bin,
		})
		must(t, err)
	}
	f.one, f.two = f.l.Laptop(f.names[0]), f.l.Laptop(f.names[1])
	f.init(t)
	return f
}

// in runs a script in a node, whose programs are found.
func (f *kubeadmCluster) in(t *testing.T, p *lab.Laptop, script string, input ...string) string {
	t.Helper()
	out, stderr, err := p.ExecInput(t.Context(), strings.NewReader(strings.Join(input, "")), "sh", "-ec", "export PATH="+f.home+":$PATH\n"+script)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	return out
}

// init is what an administrator does, by kubeadm's manual and flannel's.
func (f *kubeadmCluster) init(t *testing.T) {
	t.Helper()
	address, err := f.one.Address()
	must(t, err)
	const load = `until ctr -a /run/containerd/containerd.sock version > /dev/null 2>&1; do sleep 0.3; done
for image in "$@"; do ctr -a /run/containerd/containerd.sock -n k8s.io images import --local "$image" > /dev/null; done`
	for _, p := range []*lab.Laptop{f.one, f.two} {
		f.in(t, p, "set -- "+f.bin+"/images/pause.tar "+f.home+"/images/*.tar /var/lib/kith/k8s/images/*.tar\n"+load)
		f.in(t, p, "mkdir -p /etc/kubernetes; cat > /etc/kubernetes/net-conf.json", `{"Network": "10.42.0.0/16", "EnableNFTables": true, "Backend": {"Type": "vxlan"}}`)
	}
	f.in(t, f.one, `cat > /etc/kubernetes/kubeadm.yaml
kubeadm init --config /etc/kubernetes/kubeadm.yaml --ignore-preflight-errors=all --skip-phases=addon/kube-proxy
mkdir -p /var/lib/kith/k8s; cp /etc/kubernetes/admin.conf `+lab.Kubeconfig, fmt.Sprintf(foreignConfig, address, address))
	apply(t, f.one, foreignRoles)
	kubectl(t, f.one, "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
	join := strings.TrimSpace(f.in(t, f.one, "kubeadm token create --print-join-command"))
	f.in(t, f.two, join+" --ignore-preflight-errors=all")
	for name, user := range map[string]string{"flannel.conf": "flannel", "kube-proxy.conf": "system:kube-proxy"} {
		config := f.in(t, f.one, "kubeadm kubeconfig user --config /etc/kubernetes/kubeadm.yaml --client-name="+user+" 2> /dev/null")
		for _, p := range []*lab.Laptop{f.one, f.two} {
			f.in(t, p, "cat > /etc/kubernetes/"+name, config)
		}
	}
	admin := f.in(t, f.one, "cat /etc/kubernetes/admin.conf")
	f.in(t, f.two, "mkdir -p /var/lib/kith/k8s; cat > "+lab.Kubeconfig, admin)
	for _, p := range []*lab.Laptop{f.one, f.two} {
		f.in(t, p, "cat > /etc/kubernetes/kube-proxy.yaml", foreignProxy)
	}
	eventually(t, 2*time.Minute, "both nodes are Ready, and there is DNS", func() string {
		out, err := f.one.Kubectl(t.Context(), "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=3m")
		if err == nil {
			out, err = f.one.Kubectl(t.Context(), "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=3m")
		}
		if err != nil {
			return out + err.Error()
		}
		return ""
	})
}

const foreignConfig = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: "%s", bindPort: 6443}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: "%s:6443"
networking: {podSubnet: 10.42.0.0/16, serviceSubnet: 10.43.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
evictionHard: {memory.available: 100Mi, nodefs.available: 2%%, imagefs.available: 2%%} # the disk is the machine's, which others fill
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
`

// foreignRoles are those of flannel's manual.
const foreignRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flannel}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flannel}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: flannel}]
`

// foreignProxy leaves the sysctls of connection tracking alone, which are the machine's.
const foreignProxy = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.42.0.0/16
clientConnection: {kubeconfig: /etc/kubernetes/kube-proxy.conf}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// TestAForeignClusterHasKithByItsChart is the chart's story where everything but Kith is somebody else's.
func TestAForeignClusterHasKithByItsChart(t *testing.T) {
	f := foreignCluster(t, []string{kithImage(t)}, "alice")
	t.Log(kubectl(t, f.one, "get", "nodes,pods", "-A", "-o", "wide"))
	(&server{at: f.one}).story(t, f.l.Laptop("alice"), []*lab.Laptop{f.one, f.two}, false)
}

// TestWhatGuestsReachInAForeignCluster is the table for the chart there.
func TestWhatGuestsReachInAForeignCluster(t *testing.T) {
	f := foreignCluster(t, []string{kithImage(t)}, "alice", "carol")
	chartTable(t, f.l, f.one, f.two)
}

// TestWhatGuestsReachByTheChartOnThreeNodes is the table for the chart in a cluster of the built-in engine.
func TestWhatGuestsReachByTheChartOnThreeNodes(t *testing.T) {
	l := laptops(t, lab.Options{Names: []string{"alice", "carol"}, Clusters: []lab.Cluster{{Name: "corp", Nodes: 3}}, Images: []string{kithImage(t)}})
	chartTable(t, l, l.Laptop("corp-1"), l.Laptop("corp-2"), l.Laptop("corp-3"))
}

// chartTable is the table for the chart on these nodes; that of the kithd that works is the first.
func chartTable(t *testing.T, l *lab.Lab, nodes ...*lab.Laptop) {
	s := &server{at: nodes[0]}
	kubectl(t, s.at, "label", "node", s.at.Name(), "gateway=yes")
	s.carry(t)
	s.install(t, "replicas=1", "nodeSelector.gateway=yes")
	o := newOutpost(l, "corp", nodes...)
	o.ofNodes, o.lapses = true, calmFor
	o.befriend = func(t *testing.T, consumer *lab.Laptop, ask []string) { s.lend(t, consumer, ask...) }
	o.ready = func(t *testing.T) string {
		if _, err := s.at.Kubectl(t.Context(), "-n", serverNamespace, "rollout", "status", "daemonset/kith-nodes", "--timeout=3m"); err != nil {
			return err.Error()
		}
		if pod, _ := chart.Leader(t.Context(), s.at); pod == "" {
			return "no kithd works"
		}
		return ""
	}
	// Killed on every node, the agents of the nodes too, and kept from coming again.
	o.stop = func(t *testing.T) {
		for _, n := range nodes {
			if _, stderr, err := n.Exec(t.Context(), "sh", "-c", "kill -9 $(pidof kithd)"); err != nil {
				t.Fatal(err, stderr)
			}
		}
		kubectl(t, s.at, "-n", serverNamespace, "scale", "deployment/kith", "--replicas=0")
		kubectl(t, s.at, "-n", serverNamespace, "patch", "daemonset/kith-nodes", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"off":"yes"}}}}}`)
	}
	o.start = func(t *testing.T) {
		kubectl(t, s.at, "-n", serverNamespace, "patch", "daemonset/kith-nodes", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/nodeSelector/off"}]`)
		kubectl(t, s.at, "-n", serverNamespace, "scale", "deployment/kith", "--replicas=1")
	}
	eventually(t, 2*time.Minute, "Kith is ready", func() string { return o.ready(t) })
	o.settle(t)
	o.table(t)
}
