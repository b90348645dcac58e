package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/fence"
	"kith.dev/core/hosting"
	"kith.dev/core/netpolicy"
	"kith.dev/core/notify"
	"kith.dev/core/offloading"
	"kith.dev/core/peering"
	"kith.dev/core/reflection"
	"kith.dev/core/relations"
	"kith.dev/core/relations/consumer"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/provider"
	"kith.dev/core/supply"
	"kith.dev/core/virtualnode"
)

// clusterPart is everything that needs an API server. It is made when the engine is ready, and made anew should it fail.
type clusterPart struct {
	client     client.Client
	fresh      client.Reader // past the cache
	host       *hosting.Host
	door       *hosting.Door
	fleet      *fleet
	peers      *relations.Reconciler
	provider   *provider.Provider
	offloading *offloading.Reconciler
	version    string
	changed    notify.Bell // rings when a Peer, a Contract or a NamespaceOffloading changed
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// runCluster installs what Kith needs into the cluster and runs the controllers until ctx ends.
func (d *Daemon) runCluster(ctx context.Context) error {
	if err := d.engine.WaitReady(ctx); err != nil {
		return err
	}
	restConfig := rest.CopyConfig(d.engine.RESTConfig())
	restConfig.QPS = -1 // the API server's own priority and fairness decides
	scheme := newScheme()
	direct, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("talk to the API server: %w", err)
	}
	d.restoreTunnels(ctx, direct)
	if err := installCRDs(ctx, direct); err != nil {
		return err
	}
	if err := d.installDefaults(ctx, direct); err != nil {
		return err
	}
	mgr, err := d.newManager(restConfig, scheme)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, kubelet, err := d.assemble(ctx, mgr, direct, restConfig)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		d.cluster.Store(nil)
		d.changed.Ring()
		d.directory.onChange(func(string) {}) // nobody takes pokes any more, and the directory must not wait for that
		c.peers.Consumer.Close()
		c.fleet.wait()
	}()
	go d.keep(ctx, "the kubelet endpoint of virtual nodes", kubelet.Run)
	go func() {
		if mgr.GetCache().WaitForCacheSync(ctx) && d.loadHost(ctx, c) {
			d.clusterReady(ctx, c)
		}
	}()
	return mgr.Start(ctx)
}

func (d *Daemon) newLinker(c client.Client) *link.Linker {
	return link.New(c, link.Config{
		Identity: d.me, Gateway: d.gateway, Port: d.cfg.WireGuardPort, Pool: d.aliasPool(), Log: d.log,
		Ranges: map[string]netip.Prefix{"pods": d.engine.PodRange()},
	})
}

// restoreTunnels has packets pass again as soon as there is an API server, before anything is installed or watched: after a
// kill, applications wait for them. What cannot be restored yet is, when its Peer is looked at.
func (d *Daemon) restoreTunnels(ctx context.Context, c client.Client) {
	var peers v1alpha1.PeerList
	if c.List(ctx, &peers) != nil { // a cluster in which Kith is not installed yet has none
		return
	}
	linker := d.newLinker(c)
	for i := range peers.Items {
		if err := linker.Restore(ctx, &peers.Items[i]); err != nil {
			d.log.Warn("tunnel was not restored", "peer", peers.Items[i].Name, "err", err)
		}
	}
}

func (d *Daemon) installDefaults(ctx context.Context, c client.Client) error {
	if d.cfg.Share != "" {
		percent, err := strconv.Atoi(strings.TrimSuffix(d.cfg.Share, "%"))
		if err != nil {
			return fmt.Errorf("share: %w", err)
		}
		if err := installPolicy(ctx, c, percent, d.cfg.AutoAccept, d.cfg.GuestImages); err != nil {
			return err
		}
	}
	for _, object := range d.policies() {
		if err := apply(ctx, c, object); err != nil {
			return fmt.Errorf("install the admission policy %s: %w", object.GetName(), err)
		}
	}
	if err := offloading.KeepDaemonSetsHome(ctx, c, d.log); err != nil {
		d.log.Warn("a DaemonSet may wait for a place on a virtual node, where it is refused; kithd tries again when it starts", "err", err)
	}
	if err := d.markHome(ctx, c); err != nil {
		d.log.Warn("the node of this machine has no zone: pods are not spread over it", "err", err)
	}
	return nil
}

func (d *Daemon) newManager(restConfig *rest.Config, scheme *runtime.Scheme) (manager.Manager, error) {
	objects := hosting.SharedCacheOptions()
	objects.ByObject[&corev1.Pod{}] = cache.ByObject{Transform: supply.Slim}
	return ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                 scheme,
		Logger:                 d.controllerLogs,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  objects,
		// A restarted part registers its controllers under the same names.
		Controller:              config.Controller{SkipNameValidation: new(true)},
		GracefulShutdownTimeout: new(3 * time.Second),
	})
}

// assemble makes the rooms that work on the cluster and gives them to each other.
func (d *Daemon) assemble(ctx context.Context, mgr manager.Manager, direct client.Client, restConfig *rest.Config) (*clusterPart, *virtualnode.Kubelet, error) {
	c := &clusterPart{client: mgr.GetClient(), fresh: mgr.GetAPIReader()}
	binary := rest.CopyConfig(restConfig) // pods in JSON cost both sides several times as much
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	home, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return nil, nil, err
	}
	if v, err := home.Discovery().ServerVersion(); err == nil {
		c.version = v.GitVersion
	}
	if c.host, err = hosting.New(mgr, d.audits, d.log); err != nil {
		return nil, nil, fmt.Errorf("hosting: %w", err)
	}
	if d.marksGuests() { // the DNS is the built-in engine's
		c.host.ResolveBy(hosting.Resolver{Server: clusterDNS(d.engine.ServiceRange()).Addr(), Domain: "cluster.local"})
	}
	if err := c.host.Install(ctx); err != nil {
		return nil, nil, fmt.Errorf("hosting: %w", err)
	}
	if d.marksGuests() {
		c.host.Confine(fence.GuestRuntime)
	}
	if err := d.keepInstalled(mgr, direct, c.host); err != nil {
		return nil, nil, fmt.Errorf("keep what is installed: %w", err)
	}
	if c.door, err = hosting.NewDoor(restConfig, c.host, d.audits, d.log); err != nil {
		return nil, nil, fmt.Errorf("hosting: %w", err)
	}
	c.host.OnShut(c.door.Shut)
	c.host.ReachBy(func(ctx context.Context, id string) error { _, err := d.gateway.RTT(ctx, id); return err })
	c.host.OnRefused(d.changed.Ring)
	kubelet, err := virtualnode.NewKubelet(virtualnode.KubeletConfig{Home: home, HomeREST: restConfig, IP: d.engine.NodeIP(), Log: d.log, Audit: d.audits})
	if err != nil {
		return nil, nil, err
	}
	reflected, err := reflection.NewHome(restConfig)
	if err != nil {
		return nil, nil, err
	}
	c.fleet = newFleet(ctx, c.client, home, restConfig, kubelet, d.directory, d.engine.NodeIP(), reflected, offloading.NewPermits(c.client, c.fresh), d.place, d.homeAPI(), d.log)
	c.fleet.older = d.directory.foundOlder
	if c.fleet.policies, err = netpolicy.NewHome(mgr, !d.marksGuests()); err != nil {
		return nil, nil, err
	}
	linker := d.newLinker(c.client)
	c.provider = provider.New(provider.Config{
		Client: c.client, Fresh: c.fresh, Identity: d.me, Name: d.cfg.Name, Patience: d.cfg.RequestTimeout, Host: c.host, Linker: linker,
		Notices: &d.notices, Announce: d.publish, Log: d.log,
	})
	c.peers = relations.New(relations.Config{
		Client: c.client, Fresh: c.fresh, Directory: d.directory, Linker: linker, Fleet: c.fleet, Provider: c.provider, Announce: d.publish, Log: d.log,
		Consumer: consumer.New(consumer.Config{
			Client: c.client, Fresh: c.fresh, Identity: d.me, Name: d.cfg.Name, Endpoints: d.endpoints, Directory: d.directory, Fleet: c.fleet,
			Announce: d.publish, Log: d.log,
		}),
	})
	c.offloading = offloading.New(c.client, c.fleet, d.log)
	around, err := d.followGuests(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, setup := range []func() error{
		func() error { return c.peers.SetupWithManager(mgr) },
		func() error { return c.provider.SetupWithManager(mgr) },
		func() error { return c.offloading.SetupWithManager(mgr) },
		func() error { return around.SetupWithManager(mgr) },
		func() error { return d.exposeServices(mgr) },
		func() error { return d.watchPeers(ctx, mgr, c) },
		func() error { return d.countAnswers(ctx, mgr) },
		func() error { return d.tellDesktops(ctx, mgr) },
	} {
		if err := setup(); err != nil {
			return nil, nil, err
		}
	}
	return c, kubelet, nil
}

// watchPeers tells the directory which Peers there are, and rings for those who wait for a change.
func (d *Daemon) watchPeers(ctx context.Context, mgr manager.Manager, c *clusterPart) error {
	list := func() {
		var peers v1alpha1.PeerList
		if c.client.List(ctx, &peers) == nil {
			d.directory.setPeers(peers.Items)
		}
	}
	onPeer := func(any) {
		list()
		c.changed.Ring()
	}
	ring := func(any) { c.changed.Ring() }
	for _, watch := range []struct {
		obj     client.Object
		changed func(any)
	}{{&v1alpha1.Peer{}, onPeer}, {&v1alpha1.Contract{}, ring}, {&v1alpha1.NamespaceOffloading{}, ring}} {
		informer, err := mgr.GetCache().GetInformer(ctx, watch.obj, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    watch.changed,
			UpdateFunc: func(_, obj any) { watch.changed(obj) },
			DeleteFunc: watch.changed,
		}); err != nil {
			return err
		}
	}
	return nil
}

// loadHost has hosting know the contracts before peers are let in. False: ctx ended.
func (d *Daemon) loadHost(ctx context.Context, c *clusterPart) bool {
	for {
		err := c.host.Load(ctx)
		if err == nil {
			return true
		}
		d.log.Warn("contracts cannot be read, trying again", "err", err)
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return false
		}
	}
}

// clusterReady opens the doors behind which the cluster is needed.
func (d *Daemon) clusterReady(ctx context.Context, c *clusterPart) {
	d.cluster.Store(c)
	d.changed.Ring()
	var peers v1alpha1.PeerList
	if c.client.List(ctx, &peers) == nil {
		d.directory.setPeers(peers.Items)
	}
	d.directory.onChange(c.peers.Poke)
	for i := range peers.Items {
		c.peers.Poke(peers.Items[i].Name)
	}
	d.log.Info("ready", "node", d.engine.NodeName(), "kubernetes", c.version)
}

// heard has the books compared when a peer tells that something changed.
func (d *Daemon) heard(ctx context.Context) error {
	for {
		select {
		case h := <-d.contacts.Notices():
			c := d.cluster.Load()
			k, err := d.directory.find(h.ID.String())
			if c == nil || err != nil || k.peer == nil {
				continue
			}
			switch h.Notice.Type {
			case peering.NoticeContractEnded, peering.NoticeContractChanged:
				c.peers.Told(ctx, k.peer.Name, h.Notice)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// hostingRoutes adds what hosting answers to the peer API.
func (d *Daemon) hostingRoutes() {
	with := func(serve func(*clusterPart, http.ResponseWriter, *http.Request, string)) func(http.ResponseWriter, *http.Request, peering.Caller) {
		return func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
			c := d.cluster.Load()
			if c == nil {
				answerProblem(w, r, errNotReady)
				return
			}
			serve(c, w, r, caller.ID.String())
		}
	}
	d.peerAPI.server.Handle("PUT /kith/v2/namespaces/{home}", with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.host.PutNamespace(w, r, id) }))
	d.peerAPI.server.Handle("DELETE /kith/v2/namespaces/{home}", with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) {
		c.host.DeleteNamespace(w, r, id)
	}))
	d.peerAPI.server.Handle("PUT "+netpolicy.Path, with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.host.PutPolicies(w, r, id) }))
	d.peerAPI.server.Handle("GET /kith/v2/view", with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.host.GetView(w, r, id) }))
	d.peerAPI.server.Handle("GET /kith/v2/usage", with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.host.GetUsage(w, r, id) }))
	d.peerAPI.server.Handle("GET /kith/v2/machine", with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.host.GetMachine(w, r, id) }))
	d.peerAPI.server.Handle("/kube/", with(func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.door.Serve(w, r, id) }))
}

// answerProblem writes what the peer API refuses; Kubernetes clients understand a Status.
func answerProblem(w http.ResponseWriter, r *http.Request, problem *peering.Problem) {
	if strings.HasPrefix(r.URL.Path, "/kube/") {
		hosting.Refuse(w, problem.HTTPStatus(), problem.Error())
		return
	}
	peering.WriteProblem(w, problem)
}

// follow calls check now and after every change of a Peer, a Contract or a NamespaceOffloading, until it is done.
func (c *clusterPart) follow(ctx context.Context, check func() (done bool, err error)) error {
	for {
		rung := c.changed.Wait()
		if done, err := check(); done || err != nil {
			return err
		}
		select {
		case <-rung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
