// Package server puts the parts of one laptop's Kubernetes together: who starts when, who waits for whom,
// and in what order they stop. The main program calls Run once in a process.
//
// It must never stop a container. When it ends, for whatever reason, pods run on; a new server takes over.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"kith.dev/core/base/layout"
	"kith.dev/core/base/process"
	"kith.dev/core/base/timeline"
	"kith.dev/engine/component"
	"kith.dev/engine/config"
	"kith.dev/engine/containerd"
	"kith.dev/engine/datastore"
	"kith.dev/engine/deciding"
	"kith.dev/engine/dns"
	"kith.dev/engine/egress"
	"kith.dev/engine/images"
	"kith.dev/engine/join"
	"kith.dev/engine/listener"
	"kith.dev/engine/network"
	"kith.dev/engine/policy"
	"kith.dev/engine/routes"
	"kith.dev/engine/storage"
)

// longest is how long a server runs at most. The API server's loopback certificate is made in memory at
// start and ends after a year; a clean restart, which no pod notices, is the way to a new one.
const longest = 300 * 24 * time.Hour

// goodbye is how long the API server and the others have to stop.
const goodbye = 10 * time.Second

var errTooOld = errors.New("this server has run for 300 days and must be started anew to renew its inner certificate")

type server struct {
	config  *config.Config
	log     *slog.Logger
	runtime *containerd.Runtime
	client  kubernetes.Interface
	began   time.Time

	apiServices apiregistration.APIServiceInterface
}

// Run runs the cluster until ctx ends or a part of it fails. It returns nil only after ctx has ended. stores is who it is: on what a newer
// one wrote it does not start, and changes nothing.
func Run(ctx context.Context, c *config.Config, stores layout.Version, log *slog.Logger) error {
	s := &server{config: c, log: log, began: time.Now()}
	unlock, err := claim(c, stores, serverFolder)
	if err != nil {
		return err
	}
	defer unlock()
	return s.run(ctx)
}

func snapshotsDir(c *config.Config) string { return filepath.Join(c.DataDir, "snapshots") }

// run has two lifetimes: the components', which ends with ctx or the first failure, and below it the
// datastore's and containerd's supervisor's, which ends when the components are done.
func (s *server) run(ctx context.Context) error {
	c := s.config
	s.runtime = containerd.New(containerd.Options{
		RuntimeDir: c.RuntimeDir, DataDir: filepath.Join(c.DataDir, "containerd"), StateDir: filepath.Join(c.RunDir, "containerd"),
		CNIConf: s.cniConf(), GuestConf: s.guestConf(), PauseImage: c.PauseImage, RestrictOOM: !mayLowerOOM(),
		NVIDIA: containerd.FindNVIDIA("/"),
	}, s.log)

	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, longest, errTooOld)
	defer cancel()

	baseDone := make(chan struct{}, 2)
	below := func(f func(context.Context) error) { // a failure below ends the components too
		group.Go(func() error {
			failed := make(chan error, 1)
			go func() { failed <- f(base); baseDone <- struct{}{} }()
			select {
			case err := <-failed:
				return err
			case <-ctx.Done():
				return nil
			}
		})
	}
	storage.Awake(filepath.Join(c.DataDir, "storage"), s.log)
	storage.LetGo(snapshotsDir(c), c.CgroupRoot, s.log)
	below(s.runtime.Run)

	ready := s.begin("certificates")
	if _, err := certificates(c); err != nil {
		return err
	}
	ready()
	ready = s.begin("datastore")
	store, err := datastore.Open(filepath.Join(c.DataDir, "db", "state.db"), s.datastoreSocket(), s.log)
	if err != nil {
		return err
	}
	below(store.Run)
	ready()
	ready = s.begin("network")
	var flannel netip.Prefix
	if c.K3s.Stands {
		flannel = c.ClusterCIDR
	}
	if err := network.Setup(ctx, network.Options{
		Flannel: flannel,
		NodeIP:  c.NodeIP, PodCIDR: c.PodCIDR, ServiceCIDR: c.ServiceCIDR, IPv6: c.IPv6, MTU: c.PodMTU,
		CNIConf: s.cniConf(), GuestConf: s.guestConf(), CNIData: filepath.Join(c.DataDir, "cni", "addresses"), Policies: s.policiesSocket(),
		GuestNetworks: c.GuestNetworks, Cluster: c.Agents, DNSPort: c.DNSPort,
	}, s.log); err != nil {
		return err
	}
	ready()
	if err := s.components(ctx, group); err != nil {
		return err
	}

	err = s.ended(ctx, group)
	stopBase()
	for range 2 {
		select {
		case <-baseDone:
		case <-time.After(goodbye / 2):
		}
	}
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, errTooOld) {
		return cause
	}
	return err
}

// begin notes that a part of the start begins; what it returns, that others can go on with it (kith-k8s timeline).
func (s *server) begin(part string) (ready func()) { return timeline.Begin(s.log, part) }

// known leaves out what a cluster of IPv4 alone does not have.
func known[T interface{ IsValid() bool }](list ...T) []T {
	return slices.DeleteFunc(list, func(one T) bool { return !one.IsValid() })
}

// ended waits for the parts of a group, and not much longer than ctx.
func (s *server) ended(ctx context.Context, group *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(goodbye):
		s.log.Warn("some parts did not stop in time; ending without them")
		return nil
	}
}

// now is for parts that wait for nothing.
var now = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// starter starts parts of a group, each when what it waits for is there. One that ends before ctx ends the group.
func starter(ctx context.Context, group *errgroup.Group) func(name string, after <-chan struct{}, run func(context.Context) error) {
	return func(name string, after <-chan struct{}, run func(context.Context) error) {
		group.Go(func() error {
			select {
			case <-after:
			case <-ctx.Done():
				return nil
			}
			err := run(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				err = errors.New("ended by itself")
			}
			return fmt.Errorf("%s: %w", name, err)
		})
	}
}

// components starts everything above the datastore.
func (s *server) components(ctx context.Context, group *errgroup.Group) error {
	c := s.config
	files := component.PKI{Dir: pkiDir(c)}
	rest, err := clientcmd.BuildConfigFromFlags("", filepath.Join(files.Dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	rest.QPS = -1 // the API server is in this process, and decides itself
	if s.client, err = kubernetes.NewForConfig(rest); err != nil {
		return err
	}
	registration, err := apiregistration.NewForConfig(rest)
	if err != nil {
		return err
	}
	s.apiServices = registration.APIServices()
	kinds, err := dynamic.NewForConfig(rest)
	if err != nil {
		return err
	}
	definitions, err := apiextensions.NewForConfig(rest)
	if err != nil {
		return err
	}
	resolver := dns.Options{
		NodeIP: c.NodeIP, Port: c.DNSPort, ClusterDNS: c.ClusterDNS, Pods: c.ClusterCIDR, ClusterID: c.ClusterID,
		Kubeconfig: filepath.Join(files.Dir, "dns.kubeconfig"), ResolvConf: filepath.Join(c.DataDir, "resolv.conf"),
	}
	if err := dns.WriteResolvConf(resolver); err != nil {
		return fmt.Errorf("resolv.conf for pods: %w", err)
	}

	imageService, err := images.Open(images.Options{
		Socket: s.imagesSocket(), Containerd: s.runtime.Socket(), Root: s.runtime.Root(), Program: filepath.Join(c.RuntimeDir, "kith-image"), Homes: filepath.Join(c.RunDir, "homes.sock"), Annotations: s.annotations,
	}, s.log)
	if err != nil {
		return err
	}

	policies, err := policy.Open(policy.Options{
		Client: s.client, NodeName: c.NodeName, NodeIP: known(c.NodeIP, c.IPv6.Node()), ClusterDNS: known(c.ClusterDNS, c.IPv6.DNS()),
		Pods: known(c.ClusterCIDR, c.IPv6.Pods), Local: known(c.PodCIDR, c.IPv6.NodePods()), Guests: network.GuestGroup, Socket: s.policiesSocket(),
	}, s.log)
	if err != nil {
		return err
	}
	if err := policies.Shut(ctx); err != nil {
		s.log.Warn("NetworkPolicies are not in force between pods here and at peers until they were read", "err", err)
	}

	socket, err := listener.Unix(s.decidingSocket())
	if err != nil {
		return fmt.Errorf("socket of the switch of what decides: %w", err)
	}

	storage.Mount(filepath.Join(c.DataDir, "storage"), s.log)
	ready := make(chan struct{})
	start := starter(ctx, group)

	api := component.APIServer{
		PKI: files, NodeIP: c.NodeIP, Port: c.Port, ServiceCIDR: c.ServiceCIDR, IPv6: c.IPv6.Services, Datastore: s.datastoreSocket(), Agents: s.agentsAt(), Flags: c.K3s.APIServer, Install: s.resourceMetrics(),
	}
	if c.K3s.Egress {
		proxy, err := s.egress()
		if err != nil {
			return err
		}
		api.Egress = s.egressConfig()
		start("egress selector", now, proxy.Run)
		start("nodes of the egress selector", ready, proxy.Watch)
	}
	apiReady := s.begin("API server")
	start("kube-apiserver", now, api.Run)
	group.Go(func() error { return s.announce(ctx, func() { apiReady(); close(ready) }) })
	// Starting beside the API server it would only be refused, log it, and come back late.
	prepared := make(chan error, 1)
	go func() { prepared <- s.prepareRuntime(ctx) }()
	reserved := make(chan struct{})
	group.Go(func() error {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
		if s.insist(ctx, "the node's range of pods", func() error { return s.reserve(ctx) }) == nil {
			close(reserved)
		}
		return nil
	})
	start("kubelet", reserved, func(ctx context.Context) error {
		if err := <-prepared; err != nil {
			return err
		}
		go s.awaitNode(ctx, s.begin("node"))
		return component.Kubelet{
			PKI: files, NodeName: c.NodeName, NodeIP: c.NodeIP, NodeIPv6: c.IPv6.Node(), ClusterDNS: c.ClusterDNS,
			DataDir: kubeletDir(c), PodLogs: filepath.Join(c.DataDir, "pod-logs"), ResolvConf: resolver.ResolvConf,
			Containerd: s.runtime.Socket(), Images: s.imagesSocket(), CgroupRoot: c.CgroupRoot,
		}.Run(ctx)
	})
	start("images", now, imageService.Run)
	start("kube-proxy", ready, component.Proxy{PKI: files, NodeName: c.NodeName, As: "proxy", Expose: c.Expose == config.ExposeLAN, NodeIPv6: c.IPv6.Node()}.Run)
	decides := deciding.New(c.Deciding, func(ctx context.Context, on bool) error {
		s.log.Info("what decides is turned", "on", on)
		parts, ctx := errgroup.WithContext(ctx)
		if !c.K3s.NoControllers {
			parts.Go(func() error {
				return component.ControllerManager{PKI: files, ClusterCIDR: c.ClusterCIDR, ServiceCIDR: c.ServiceCIDR, IPv6: c.IPv6, Deciding: on, NodeRanges: s.nodeRanges(), Flags: c.K3s.Controllers}.Run(ctx)
			})
		} else {
			parts.Go(func() error { <-ctx.Done(); return nil })
		}
		if on && !c.K3s.NoScheduler {
			parts.Go(func() error { return component.Scheduler{PKI: files}.Run(ctx) })
		}
		return parts.Wait()
	})
	start("control plane", reserved, decides.Run)
	start("switch of what decides", now, func(ctx context.Context) error { return decides.Serve(ctx, socket) })
	start("network-policies", ready, policies.Run)
	permitted := make(chan struct{})
	start("objects", ready, func(ctx context.Context) error { return s.keepObjects(ctx, permitted) })
	start("dns", permitted, func(ctx context.Context) error { return dns.Run(ctx, resolver, s.log) })
	start("storage", ready, func(ctx context.Context) error {
		return storage.Run(ctx, storage.Options{
			Root: filepath.Join(c.DataDir, "storage"), Node: c.NodeName, Snapshots: snapshotsDir(c), CgroupRoot: c.CgroupRoot, Agents: c.Agents,
			Client: s.client, Kinds: kinds, Definitions: definitions.CustomResourceDefinitions(), Log: s.log,
		})
	})
	start("certificates", now, s.keepCertificates)
	if !c.Agents {
		if err := routes.Remove(); err != nil {
			s.log.Warn("routes to nodes that were are left", "err", err)
		}
		return nil
	}
	start("routes", ready, func(ctx context.Context) error {
		return routes.Run(ctx, routes.Options{
			Client: s.client, NodeName: c.NodeName, Cluster: c.ClusterCIDR, Server: c.NodeName, ServerLAN: c.AtLAN(), Others: network.Others,
		}, s.log)
	})
	start("nodes that join", ready, func(ctx context.Context) error { return join.Approve(ctx, s.client, itself(s.config), s.log) })
	return nil
}

// egress makes what the API server asks for the way to nodes.
func (s *server) egress() (*egress.Proxy, error) {
	if err := egress.WriteConfig(s.egressConfig(), s.egressSocket()); err != nil {
		return nil, fmt.Errorf("configuration of the egress selector: %w", err)
	}
	return egress.Open(egress.Options{Socket: s.egressSocket(), Node: s.config.NodeName, Client: s.client}, s.log)
}

// agentsAt is where nodes that join reach the API server; the zero value where none may.
func (s *server) agentsAt() netip.Addr {
	if !s.config.Agents {
		return netip.Addr{}
	}
	return s.config.AtLAN()
}

// nodeRanges is what nodes get their ranges of pods from; the zero value where there is one node.
func (s *server) nodeRanges() netip.Prefix {
	if !s.config.Agents {
		return netip.Prefix{}
	}
	return s.config.NodeRanges()
}

// prepareRuntime waits for containerd and imports the pause image, without which no pod starts. All other
// images are imported while the node is already at work.
func (s *server) prepareRuntime(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ready := s.begin("containerd")
	if err := s.runtime.WaitReady(patience); err != nil {
		return err
	}
	ready()
	ready = s.begin("pause image")
	if err := s.runtime.Import(ctx, filepath.Join(s.config.RuntimeDir, "images", "pause.tar")); err != nil {
		return err
	}
	ready()
	go func() {
		archives, err := filepath.Glob(filepath.Join(s.config.ImagesDir, "*.tar"))
		if err == nil {
			err = s.runtime.Import(ctx, archives...)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("some images were not imported", "err", err)
		}
	}()
	return nil
}

// awaitNode calls ready when the kubelet of this life has said that the node is.
func (s *server) awaitNode(ctx context.Context, ready func()) {
	_ = s.insist(ctx, "the node's readiness", func() error {
		one := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.config.NodeName).String()}
		nodes, err := s.client.CoreV1().Nodes().Watch(ctx, one)
		if err != nil {
			return err
		}
		defer nodes.Stop()
		for event := range nodes.ResultChan() {
			if node, is := event.Object.(*corev1.Node); is && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(s.began.Truncate(time.Second))
			}) {
				ready()
				return nil
			}
		}
		return errNotYet
	})
}

// announce calls ready when the API server says it is: not when it lives, because before its RBAC bootstrap
// it refuses the components.
func (s *server) announce(ctx context.Context, ready func()) error {
	// A server that starts on a busy laptop may think for a while; to be asked anew it calls an error.
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // asks nothing but its health, over loopback
	}}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("https://127.0.0.1:%d/readyz", s.config.Port)
	if wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		resp, err := client.Get(url)
		if err != nil {
			return false, nil
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	}) == nil {
		ready()
	}
	return nil
}

// annotations of a namespace, as they are now: what the owner says of guests' images holds at once.
func (s *server) annotations(ctx context.Context, namespace string) (map[string]string, error) {
	ns, err := s.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return ns.Annotations, nil
}

func (s *server) policiesSocket() string { return filepath.Join(s.config.RunDir, "policies.sock") }
func (s *server) imagesSocket() string   { return filepath.Join(s.config.RunDir, "images.sock") }
func (s *server) egressSocket() string   { return filepath.Join(s.config.RunDir, "egress.sock") }
func (s *server) egressConfig() string {
	return filepath.Join(s.config.DataDir, "egress-selector.yaml")
}
func (s *server) decidingSocket() string  { return filepath.Join(s.config.RunDir, "deciding.sock") }
func (s *server) cniConf() string         { return filepath.Join(s.config.DataDir, "cni", "net.d") }
func (s *server) guestConf() string       { return filepath.Join(s.config.DataDir, "cni", "guests.d") }
func (s *server) datastoreSocket() string { return filepath.Join(s.config.RunDir, "datastore.sock") }

// lockFolder keeps two servers, or agents, from sharing one folder. One that is just ending is waited for.
func lockFolder(dir string) (*os.File, error) {
	for deadline := time.Now().Add(2 * goodbye); ; time.Sleep(100 * time.Millisecond) {
		f, err := process.Lock(filepath.Join(dir, "lock"))
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("data-dir %s is in use by another kith-k8s; stop it, or give another --data-dir", dir)
		}
	}
}

// mayLowerOOM tells whether containers may get a lower oom_score_adj than ours.
func mayLowerOOM() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
