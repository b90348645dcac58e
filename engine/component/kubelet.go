package component

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"kith.dev/engine/guests"
)

// podPids is how many processes and threads a pod may have: more than an IDE, a database or a JVM under load takes.
const podPids = 2048

// Kubelet is what the kubelet is told.
type Kubelet struct {
	PKI
	NodeName   string
	NodeIP     netip.Addr
	NodeIPv6   netip.Addr // beside it; the zero value: none
	ClusterDNS netip.Addr
	DataDir    string // volumes, plugins, checkpoints
	PodLogs    string // logs of containers; kubelets that share a folder delete each other's
	ResolvConf string // for pods that want the host's DNS
	Containerd string // unix socket of containerd
	Images     string // unix socket of the image service
	CgroupRoot string
	Joined     bool // it asks the cluster for its certificates (KubeletCertDir), and for new ones before they end
}

// KubeletCertDir is where a kubelet that joined has its certificates.
func KubeletCertDir(dataDir string) string { return filepath.Join(dataDir, "pki") }

// Run runs the node until ctx ends. Pods go on without it.
func (k Kubelet) Run(ctx context.Context) error {
	s, err := options.NewKubeletServer()
	if err != nil {
		return err
	}
	s.KubeConfig = k.kubeconfig("kubelet")
	s.NodeIP = k.NodeIP.String()
	if k.NodeIPv6.IsValid() {
		s.NodeIP += "," + k.NodeIPv6.String()
	}
	s.HostnameOverride = k.NodeName
	s.RootDirectory = k.DataDir
	s.CertDirectory = KubeletCertDir(k.DataDir)

	s.Address = k.NodeIP.String()
	s.HealthzPort = 0 // it says so at its own port, to whom it knows
	if k.Joined {
		s.RotateCertificates, s.ServerTLSBootstrap = true, true
	} else {
		s.TLSCertFile, s.TLSPrivateKeyFile = k.crt("kubelet-serving"), k.key("kubelet-serving")
	}
	// Upstream's defaults, when not read from a file, let everybody in; say all of it.
	s.ReadOnlyPort = 0
	s.Authentication.X509.ClientCAFile = k.crt("ca")
	s.Authentication.Anonymous.Enabled = false
	s.Authentication.Webhook.Enabled = true
	s.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	s.ClusterDomain = "cluster.local"
	s.ClusterDNS = []string{k.ClusterDNS.String()}
	s.ResolverConfig = k.ResolvConf
	s.PodLogsDir = k.PodLogs
	s.VolumePluginDir = filepath.Join(k.DataDir, "volumeplugins")
	s.ContainerRuntimeEndpoint = "unix://" + k.Containerd
	s.ImageServiceEndpoint = "unix://" + k.Images

	s.CgroupDriver = "cgroupfs"
	s.CgroupRoot = k.CgroupRoot
	s.FailCgroupV1 = false
	s.FailSwapOn = false // laptops have swap; pods do not use it
	s.EnforceNodeAllocatable = []string{"pods"}
	s.EnableProfilingHandler = false
	s.EnableDebugFlagsHandler = false
	s.SerializeImagePulls = false
	s.EnableControllerAttachDetach = false // see ControllerManager

	// A pod that says nothing of system calls gets the runtime's filter, as Docker gives it; upstream's default is none.
	s.KubeletConfiguration.SeccompDefault = true
	// Upstream's default is no bound: one pod could take all process numbers of the laptop. The kernel's own bound is some
	// ten thousands on a laptop; when few are left, pods of the lowest priority, which are guests, go first.
	s.PodPidsLimit = podPids
	// The owner's disk is often nearly full; upstream's 15 % would evict every pod of such a laptop.
	s.EvictionHard = map[string]string{"memory.available": "100Mi", "nodefs.available": "2%", "imagefs.available": "2%", "nodefs.inodesFree": "1%", "pid.available": "10%"}
	// Upstream's 5 minutes keep the scheduler off a node that wavers; here there is no other one.
	s.EvictionPressureTransitionPeriod.Duration = 30 * time.Second
	s.ImageGCHighThresholdPercent = 95
	s.ImageGCLowThresholdPercent = 90
	// Renewed every quarter of it: half as many writes to the disk as with upstream's 40, and within a node's grace of 50 s.
	s.NodeLeaseDurationSeconds = 80
	s.NodeStatusUpdateFrequency.Duration = 5 * time.Second // a laptop that wakes should be seen at once
	// See unlimited; the kubelet takes no negative number, and none for its limit.
	s.KubeAPIQPS, s.KubeAPIBurst = 10_000, 10_000

	if s.MaxOpenFiles, err = openFiles(s.MaxOpenFiles); err != nil {
		return fmt.Errorf("kubelet: open files: %w", err)
	}
	if err := guests.Yield(k.CgroupRoot); err != nil {
		return err
	}
	deps, err := kubelet.UnsecuredDependencies(ctx, s, utilfeature.DefaultFeatureGate)
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	return kubelet.Run(ctx, s, deps, utilfeature.DefaultFeatureGate)
}

// openFiles is how many files the process may open: as many as are wanted, or, where its own bound may not be raised (in a
// container without CAP_SYS_RESOURCE), as many as that says. The kubelet would try, and log an error.
func openFiles(want int64) (int64, error) {
	var is unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &is); err != nil {
		return 0, err
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(want), Max: uint64(want)}) != nil {
		return int64(min(is.Max, math.MaxInt64)), nil
	}
	return want, nil
}
