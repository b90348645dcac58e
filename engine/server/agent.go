package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/base/layout"
	"kith.dev/engine/component"
	"kith.dev/engine/config"
	"kith.dev/engine/containerd"
	"kith.dev/engine/dns"
	"kith.dev/engine/images"
	"kith.dev/engine/join"
	"kith.dev/engine/network"
	"kith.dev/engine/policy"
	"kith.dev/engine/routes"
	"kith.dev/engine/storage"
)

// Agent is a node of a cluster whose server runs elsewhere: all parts of a node, and none of what decides.
type Agent struct {
	Config *config.Config // of the node; what is the whole cluster's is asked of the server
	Join   join.Options   // but for its folders, which follow from Config
	Log    *slog.Logger
}

// membership says what the node is a member by, and where it keeps that.
func (a *Agent) membership() join.Options {
	o := a.Join
	o.NodeName, o.Dir, o.CertDir = a.Config.NodeName, pkiDir(a.Config), component.KubeletCertDir(kubeletDir(a.Config))
	return o
}

// Run runs the node until ctx ends or a part of it fails. It joins the cluster first, if it has not. It returns nil only after ctx has ended.
func (a *Agent) Run(ctx context.Context, stores layout.Version) error {
	unlock, err := claim(a.Config, stores, agentFolder)
	if err != nil {
		return err
	}
	defer unlock()
	member := a.membership()
	joined, err := join.Joined(member, time.Now())
	if err != nil {
		return err
	}
	if !joined {
		switch {
		case member.Server == "":
			return errors.New("server is missing: this machine has joined no cluster yet; kith-k8s token create --print-join-command prints the whole command on the server")
		case member.Token == (join.Token{}):
			return errors.New("token is missing: this machine has joined no cluster yet; kith-k8s token create makes one on the server")
		}
		if err := join.Join(ctx, member, a.Log); err != nil {
			return err
		}
	}
	s := &server{config: a.Config, log: a.Log, began: time.Now()}
	return s.runAgent(ctx)
}

// Reset makes the machine free to join a cluster, the same or another one. What pods left, their volumes too, stays.
func (a *Agent) Reset(stores layout.Version) error {
	unlock, err := claim(a.Config, stores, agentFolder)
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(join.Forget(a.membership()), routes.Remove())
}

// runAgent has two lifetimes, as run.
func (s *server) runAgent(ctx context.Context) error {
	c := s.config
	s.runtime = containerd.New(containerd.Options{
		RuntimeDir: c.RuntimeDir, DataDir: filepath.Join(c.DataDir, "containerd"), StateDir: filepath.Join(c.RunDir, "containerd"),
		CNIConf: s.cniConf(), GuestConf: s.guestConf(), PauseImage: c.PauseImage, RestrictOOM: !mayLowerOOM(),
		NVIDIA: containerd.FindNVIDIA("/"),
	}, s.log)
	rest, err := clientcmd.BuildConfigFromFlags("", filepath.Join(pkiDir(c), "kubelet.kubeconfig"))
	if err != nil {
		return err
	}
	if s.client, err = kubernetes.NewForConfig(rest); err != nil {
		return err
	}
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	supervised := make(chan error, 1)
	go func() { supervised <- s.runtime.Run(base) }()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.node(ctx, group) })
	group.Go(func() error {
		select {
		case err := <-supervised:
			return fmt.Errorf("containerd: %w", err)
		case <-ctx.Done():
			return nil
		}
	})
	err = s.ended(ctx, group)
	stopBase()
	select {
	case <-supervised:
	case <-time.After(goodbye / 2):
	}
	return err
}

// node starts all parts in group, each when it has what it needs. With a server that cannot be reached it waits; pods that ran, run on.
func (s *server) node(ctx context.Context, group *errgroup.Group) error {
	c := s.config
	start := starter(ctx, group)
	var cluster join.Cluster
	if s.insist(ctx, "the cluster's settings", func() (err error) {
		cluster, err = join.ReadCluster(ctx, s.client)
		return err
	}) != nil {
		return nil // ctx ended
	}
	c.ClusterCIDR, c.ServiceCIDR, c.ClusterDNS, c.DNSPort = cluster.Pods, cluster.Services, cluster.DNS, cluster.DNSPort
	var before netip.Prefix
	if s.insist(ctx, "the node", func() (err error) {
		before, err = s.podRange(ctx)
		return err
	}) != nil {
		return nil
	}
	if err := network.Withhold(s.cniConf(), before); err != nil {
		return fmt.Errorf("the pods' network of before: %w", err)
	}
	resolver := dns.Options{NodeIP: c.NodeIP, ClusterDNS: c.ClusterDNS, ResolvConf: filepath.Join(c.DataDir, "resolv.conf")}
	if err := dns.WriteResolvConf(resolver); err != nil {
		return fmt.Errorf("resolv.conf for pods: %w", err)
	}
	start("resolv.conf", now, func(ctx context.Context) error { return dns.KeepResolvConf(ctx, resolver, s.log) })
	imageService, err := images.Open(images.Options{
		Socket: s.imagesSocket(), Containerd: s.runtime.Socket(), Root: s.runtime.Root(), Program: filepath.Join(c.RuntimeDir, "kith-image"), Homes: filepath.Join(c.RunDir, "homes.sock"), Annotations: s.annotations,
	}, s.log)
	if err != nil {
		return err
	}
	start("images", now, imageService.Run)
	if err := s.prepareRuntime(ctx); err != nil {
		return err
	}
	files := component.PKI{Dir: pkiDir(c)}
	start("kubelet", now, component.Kubelet{
		PKI: files, NodeName: c.NodeName, NodeIP: c.NodeIP, ClusterDNS: c.ClusterDNS, Joined: true,
		DataDir: kubeletDir(c), PodLogs: filepath.Join(c.DataDir, "pod-logs"), ResolvConf: resolver.ResolvConf,
		Containerd: s.runtime.Socket(), Images: s.imagesSocket(), CgroupRoot: c.CgroupRoot,
	}.Run)
	// The node is not Ready before there is a network for pods, which is made here.
	if s.insist(ctx, "the node's range of pods", func() error {
		if c.PodCIDR, _ = s.podRange(ctx); !cluster.Pods.Overlaps(c.PodCIDR) {
			return errNotYet
		}
		return nil
	}) != nil {
		return nil
	}
	policies, err := policy.Open(policy.Options{
		Client: s.client, NodeName: c.NodeName, NodeIP: known(c.NodeIP, c.IPv6.Node()), ClusterDNS: known(c.ClusterDNS, c.IPv6.DNS()),
		Pods: known(cluster.Pods, c.IPv6.Pods), Local: known(c.PodCIDR, c.IPv6.NodePods()), Guests: network.GuestGroup, Socket: s.policiesSocket(),
	}, s.log)
	if err != nil {
		return err
	}
	if err := policies.Shut(ctx); err != nil {
		s.log.Warn("NetworkPolicies are not in force between pods here and at peers until they were read", "err", err)
	}
	start("network-policies", now, policies.Run)
	if err := network.Setup(ctx, network.Options{
		NodeIP: c.NodeIP, PodCIDR: c.PodCIDR, ServiceCIDR: c.ServiceCIDR, MTU: c.PodMTU,
		CNIConf: s.cniConf(), GuestConf: s.guestConf(), CNIData: filepath.Join(c.DataDir, "cni", "addresses"), Policies: s.policiesSocket(),
		GuestNetworks: c.GuestNetworks, Cluster: true, DNSPort: c.DNSPort,
	}, s.log); err != nil {
		return err
	}
	start("kube-proxy", now, component.Proxy{PKI: files, NodeName: c.NodeName, As: "kubelet", Expose: c.Expose == config.ExposeLAN}.Run)
	start("routes", now, func(ctx context.Context) error {
		return routes.Run(ctx, routes.Options{
			Client: s.client, NodeName: c.NodeName, Cluster: cluster.Pods, Server: cluster.Server, ServerLAN: cluster.ServerLAN, Others: network.Others,
		}, s.log)
	})
	start("storage", now, func(ctx context.Context) error {
		return storage.Keep(ctx, s.client, filepath.Join(c.DataDir, "storage"), c.NodeName, s.log)
	})
	s.log.Info("this node is part of the cluster", "pods", c.PodCIDR, "after", time.Since(s.began).Round(time.Millisecond))
	return nil
}

// podRange is that of this node as the API server has it now; the zero value when the node is not there, or has none yet.
func (s *server) podRange(ctx context.Context) (pods netip.Prefix, err error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.config.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return netip.Prefix{}, nil
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	pods, _ = netip.ParsePrefix(node.Spec.PodCIDR)
	return pods, nil
}

// Who a data folder is of. A server's has the authority's key, and an agent's must never have it.
const (
	serverFolder = "server"
	agentFolder  = "agent"
)

// claim takes the data folder for this process, and keeps it from one of the other kind.
func claim(c *config.Config, stores layout.Version, as string) (unlock func() error, err error) {
	if err := layout.Check(c.DataDir, stores); err != nil {
		return nil, err
	}
	_, agents := os.Stat(filepath.Join(pkiDir(c), "kubelet.kubeconfig"))
	_, servers := os.Stat(filepath.Join(pkiDir(c), "ca.key"))
	switch {
	case as == agentFolder && servers == nil:
		return nil, fmt.Errorf("data-dir %s is that of a cluster's server: a node that joins another cluster needs a folder of its own", c.DataDir)
	case as == serverFolder && agents == nil && servers != nil:
		return nil, fmt.Errorf("data-dir %s is that of a node that joined a cluster: kith-k8s agent reset ends that, or give another --data-dir", c.DataDir)
	}
	for _, d := range []string{c.DataDir, c.RunDir} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return nil, fmt.Errorf("folder: %w; run as root", err)
		}
	}
	lock, err := lockFolder(c.DataDir)
	if err != nil {
		return nil, err
	}
	if err := layout.Start(c.DataDir, stores); err != nil {
		lock.Close()
		return nil, err
	}
	return lock.Close, nil
}

func kubeletDir(c *config.Config) string { return filepath.Join(c.DataDir, "kubelet") }
