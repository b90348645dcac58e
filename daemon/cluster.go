package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/relations"
	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/agree/relations/waking"
	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/power"
	"kith.dev/core/base/timeline"
	"kith.dev/core/consume/clusterset"
	"kith.dev/core/consume/consumer"
	"kith.dev/core/consume/custom"
	"kith.dev/core/consume/kubelet"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/reflection"
	"kith.dev/core/consume/room"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/local/cluster"
	"kith.dev/core/local/installed"
	"kith.dev/core/mode/company"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/exports"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend"
)

// clusterPart is everything that needs an API server. It is made when the engine is ready, and made anew should it fail.
type clusterPart struct {
	backend.Cluster
	door    *door.Door
	peers   *relations.Reconciler
	seeker  *seeking.Seeker
	company *company.Company
	kept    *installed.Keeper
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
	ready := timeline.Begin(d.log, "Kubernetes")
	if err := d.engine.WaitReady(ctx); err != nil {
		return err
	}
	ready()
	restConfig := rest.CopyConfig(d.engine.RESTConfig())
	restConfig.QPS = -1 // the API server's own priority and fairness decides
	restConfig.Wrap(cluster.Patient(d.engine))
	restConfig.Wrap(cluster.CountedWrites(&d.uses))
	if d.term != nil {
		restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return termed{d.term, next} })
	}
	scheme := newScheme()
	direct, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("talk to the API server: %w", err)
	}
	d.restoreTunnels(ctx, direct)
	ready = timeline.Begin(d.log, "kinds and policies of Kith")
	bounds, err := d.install(ctx, direct)
	if err != nil {
		return err
	}
	ready()
	d.mark(ctx, direct)
	mgr, err := d.newManager(restConfig, scheme)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go d.watchFacts(ctx, cancel)
	c, endpoint, err := d.assemble(ctx, mgr, direct, restConfig, bounds)
	if err != nil {
		return err
	}
	defer func() {
		cancel(nil)
		d.cluster.Store(nil)
		if d.relay != nil { // nobody is accepted now
			d.relay.Review()
		}
		d.peersMoved()
		d.directory.OnChange(func(string) {}) // nobody takes pokes any more, and the directory must not wait for that
		c.peers.Consumer.Close()
		c.Fleet.Wait()
	}()
	go d.keep(ctx, "the kubelet endpoint of virtual nodes", endpoint.Run)
	looked := make(chan bool, 1)
	go func() {
		ready := timeline.Begin(d.log, "what keeps guests apart")
		is := d.untilDone(ctx, "what keeps guests apart cannot be looked at", c.kept.Look)
		if is {
			ready()
		}
		looked <- is
	}()
	go func() {
		ready := timeline.Begin(d.log, "what the controllers watch, and contracts")
		if mgr.GetCache().WaitForCacheSync(ctx) && d.untilDone(ctx, "contracts cannot be read", c.Host.Load) {
			ready()
			if <-looked {
				d.clusterReady(ctx, c)
				go d.keep(ctx, "the receipts of contracts", func(ctx context.Context) error { return d.receipts.Run(ctx, d.backend.Metered, d.backend.Changed) })
			}
		}
	}()
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// errOther says that what the controllers were made for is not what is there any more.
var errOther = errors.New("the cluster's node has another address, or its certificate was renewed; Kith's controllers are made anew")

// watchFacts ends what was made for the cluster when something else is known of it. Another version alone is no reason: watches go on, and several
// API servers that are being upgraded say now this one, now that.
func (d *Daemon) watchFacts(ctx context.Context, cancel context.CancelCauseFunc) {
	known := func() cluster.Facts {
		facts := d.engine.Facts()
		facts.Version = ""
		return facts
	}
	facts, credentials := known(), d.engine.RESTConfig().TLSClientConfig
	for {
		changed := d.engine.Changed()
		if d.engine.State().Phase == cluster.Ready {
			now := d.engine.RESTConfig().TLSClientConfig
			if known() != facts || !bytes.Equal(now.CertData, credentials.CertData) || !bytes.Equal(now.CAData, credentials.CAData) {
				cancel(errOther)
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (d *Daemon) newLinker(c *ledger.Ledger) *link.Linker {
	facts := d.engine.Facts()
	return link.New(c, link.Config{
		Identity: d.me, Gateway: d.gateway, Port: d.cfg.WireGuardPort, Network: facts.Network, Pool: d.cfg.AliasPools,
		Provides: noGuests(facts) == "", Links: facts.GuestLinks, Guests: link.Pods(c), Addresses: link.Addresses(c), WentOn: link.WentOn(c), Introduces: d.cfg.IntroducePeers, Log: d.log,
	})
}

// noGuests says why a cluster can take no guests in; "" if it can. One whose network plugin gives pods their addresses needs as many for each
// consumer.
func noGuests(facts cluster.Facts) string {
	if pods := facts.Network.Pods; !facts.GuestLinks && pods.Bits() < netplan.MinGuestBits {
		return fmt.Sprintf("its pods have addresses of %s, and peers agree on no more than a /%d", pods, netplan.MinGuestBits)
	}
	return ""
}

// restoreTunnels has packets pass again as soon as there is an API server, before anything is installed or watched: after a
// kill, applications wait for them. What cannot be restored yet is, when its Peer is looked at.
func (d *Daemon) restoreTunnels(ctx context.Context, c client.Client) {
	now, err := ledger.Read(ctx, c)
	if err != nil { // a cluster in which Kith is not installed yet has nothing
		return
	}
	linker := d.newLinker(ledger.Of(c, func() *ledger.Snapshot { return now }))
	for _, peer := range now.Peers {
		if err := linker.Restore(ctx, peer.DeepCopy()); err != nil {
			d.log.Warn("tunnel was not restored", "peer", peer.Name, "err", err)
		}
	}
}

func (d *Daemon) newManager(restConfig *rest.Config, scheme *runtime.Scheme) (manager.Manager, error) {
	objects := hosting.CacheOptions()
	objects.ByObject[&corev1.Pod{}] = cache.ByObject{Transform: supply.Slim}
	objects.ByObject[&coordinationv1.Lease{}] = fence.Lease(d.engine.Facts().NodeName)
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

// assemble makes the rooms that work on the cluster and gives them to each other. bounds are the objects that hold tenants.
func (d *Daemon) assemble(ctx context.Context, mgr manager.Manager, direct client.Client, restConfig *rest.Config, bounds []client.Object) (*clusterPart, *kubelet.Kubelet, error) {
	agreed, err := ledger.New(ctx, mgr.GetClient(), mgr.GetCache())
	if err != nil {
		return nil, nil, err
	}
	c := &clusterPart{Cluster: backend.Cluster{Client: agreed, Fresh: mgr.GetAPIReader()}}
	binary := rest.CopyConfig(restConfig) // pods in JSON cost both sides several times as much
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	home, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return nil, nil, err
	}
	if v, err := home.Discovery().ServerVersion(); err == nil {
		c.Version = v.GitVersion
	}
	if c.Host, err = hosting.New(mgr, agreed, d.audits, d.log); err != nil {
		return nil, nil, fmt.Errorf("hosting: %w", err)
	}
	c.Host.SetBinding(!d.engine.Decides())
	if d.homes != nil {
		c.Host.AskHomes()
	}
	facts := d.engine.Facts()
	if facts.TenantDNS {
		c.Host.ResolveBy(guestnet.Resolver{Server: facts.Network.DNS(), Domain: "cluster.local"})
	}
	if facts.GuestLinks {
		c.Host.Confine(guestnet.Runtime)
		if err := c.Host.Address(mgr, facts.GuestNetworks, d.guests); err != nil {
			return nil, nil, fmt.Errorf("hosting: %w", err)
		}
	} else {
		c.Host.Translate(facts.Network.Pods)
		c.Host.CloseWhile(d.closedToGuests)
	}
	if c.kept, err = d.keepInstalled(mgr, direct, bounds); err != nil {
		return nil, nil, fmt.Errorf("keep what is installed: %w", err)
	}
	if c.door, err = door.NewDoor(restConfig, c.Host, d.audits, d.log); err != nil {
		return nil, nil, fmt.Errorf("hosting: %w", err)
	}
	c.Host.OnShut(c.door.Shut)
	c.Host.ReachBy(func(ctx context.Context, id string) error { _, err := d.gateway.RTT(ctx, id); return err })
	c.Host.OnRefused(d.changed.Notify)
	endpoint, err := kubelet.New(kubelet.Config{Home: home, HomeREST: restConfig, IP: facts.NodeIP, Listen: d.kubeletAt(facts), Log: d.log, Audit: d.audits})
	if err != nil {
		return nil, nil, err
	}
	reflected, err := reflection.NewHome(restConfig)
	if err != nil {
		return nil, nil, err
	}
	policies, err := netpolicy.NewHome(mgr, !facts.GuestLinks)
	if err != nil {
		return nil, nil, err
	}
	objects, err := custom.NewHome(mgr, d.log)
	if err != nil {
		return nil, nil, err
	}
	services, err := clusterset.NewSet(ctx, mgr, agreed, d.me.ID().Compact(), d.log)
	if err != nil {
		return nil, nil, err
	}
	var apiServer netip.Addr // as guests abroad reach it
	if facts.API.IsValid() {
		apiServer = facts.Network.API()
	}
	c.Fleet = consumer.New(ctx, consumer.Config{
		Client: c.Client, Fresh: c.Fresh, Home: home, NodeIP: facts.NodeIP, NoTunnel: facts.NoTunnel, Pods: []netip.Prefix{facts.Network.Pods, facts.Network.IPv6.Pods}, APIServer: apiServer,
		Kubelet: endpoint, Directory: d.directory, Reflected: reflected, Policies: policies, Custom: objects, Services: services, Permits: offloading.NewPermits(c.Client, c.Fresh),
		Place: func(peer *v1alpha1.Peer) map[string]string {
			return consumer.Place(peer, d.cfg.Name, d.cfg.Discovery.DNSDomains)
		},
		Onward: c.Host.Onward, Load: c.Host.Load, DNS: facts.Network.DNS(),
		Taking: d.giver.Taking,
		Older:  d.directory.FoundOlder, Log: d.log,
		Keep: func(ctx context.Context, name string, run func(context.Context) error) {
			supervise(ctx, d.log, name, run)
		},
	})
	if c.company, err = company.New(company.Config{Client: c.Client, Fresh: c.Fresh, REST: restConfig, Roles: d.cfg.TetherRoles, Audit: d.audits, Announce: d.publish, Log: d.log}); err != nil {
		return nil, nil, fmt.Errorf("company: %w", err)
	}
	linker := d.newLinker(c.Client)
	c.Host.ExportBy(exports.Config{
		Own: services, Share: linker.Share, Ledger: agreed, Log: d.log,
		Mine: func(a netip.Addr) bool {
			own := facts.Network
			return own.Pods.Contains(a) && a != facts.NodeIP && a != own.Node() && a != own.Gateway()
		},
	})
	c.Provider = provider.New(provider.Config{
		Client: c.Client, Fresh: c.Fresh, Identity: d.me, Name: d.cfg.Name, Patience: d.cfg.RequestTimeout, Host: c.Host, Disk: d.disk, Laptop: d.used, NoGuests: noGuests(facts), Linker: linker, Company: c.company, Mode: d.mode,
		Notices: &d.notices, Announce: d.publish, Log: d.log,
	})
	c.peers = relations.New(relations.Config{
		Client: c.Client, Fresh: c.Fresh, Directory: d.directory, Linker: linker, Fleet: c.Fleet, Provider: c.Provider, Announce: d.publish, Log: d.log,
		Consumer: asking.New(asking.Config{
			Client: c.Client, Fresh: c.Fresh, Identity: d.me, Name: d.cfg.Name, Endpoints: d.endpoints, Directory: d.directory, Fleet: c.Fleet, Mode: d.mode,
			Announce: d.publish, Log: d.log,
		}),
	})
	c.NotRenewed = c.peers.Consumer.NotRenewed
	kept := volumes.New(c.Client, c.Fresh, c.Fleet, facts.NodeName, d.log)
	c.Snapshots = kept.HeldSnapshots
	c.seeker = seeking.New(seeking.Config{Client: c.Client, Directory: d.directory, Nearby: d.nearbyOf, Pods: room.New(c.Client, kept.HeldSnapshots), Mode: d.mode, Events: mgr.GetEventRecorder("kith-peering"), Log: d.log})
	c.Waking = waking.New(waking.Config{
		Client: c.Client, Identity: d.me, Directory: d.directory, Pods: room.New(c.Client, kept.HeldSnapshots), Devices: d.wakeDevices, Power: func() power.State { return power.Read(power.Root) },
		Events: mgr.GetEventRecorder("kith-waking"), Announce: d.publish, Log: d.log,
	})
	c.Offloading = offloading.New(c.Client, c.Fresh, c.Fleet, d.log)
	c.Offloading.Purse = purse{d.receipts, c.Client.Now}
	c.Moves, c.Host.Claims.Node = volumes.NewMover(kept), facts.NodeName
	around, err := d.followGuests(ctx)
	if err != nil {
		return nil, nil, err
	}
	if c.Fenced, err = d.keepFenced(ctx, mgr, c.Client, around); err != nil {
		return nil, nil, err
	}
	for _, setup := range []func() error{
		func() error { return c.peers.SetupWithManager(mgr) },
		func() error { return c.seeker.SetupWithManager(mgr) },
		func() error { return c.Waking.SetupWithManager(mgr) },
		func() error { return c.Provider.SetupWithManager(mgr) },
		func() error { return c.Offloading.SetupWithManager(mgr) },
		func() error { return kept.SetupWithManager(mgr) },
		func() error { return c.Moves.SetupWithManager(mgr) },
		func() error { return c.company.SetupWithManager(mgr) },
		func() error { return around.SetupWithManager(mgr, mgr.GetCache()) },
		func() error { return d.translate(ctx, mgr) },
		func() error { return d.exposeServices(mgr) },
		func() error { return d.watchPeers(ctx, mgr, c) },
		func() error { return d.countAnswers(ctx, mgr) },
		func() error { return mgr.Add(manager.RunnableFunc(c.Host.RunExports)) },
		func() error { return d.backend.TellDesktops(ctx, mgr) },
	} {
		if err := setup(); err != nil {
			return nil, nil, err
		}
	}
	return c, endpoint, nil
}

// nearbyOf finds a cluster that answers and is no Peer here.
func (d *Daemon) nearbyOf(id identity.ID) (found seeking.Nearby, ok bool) {
	k, err := d.directory.Find(id.String())
	if err != nil || k.Peer != nil || !k.Contact.Reachable() || len(k.Addresses) == 0 {
		return seeking.Nearby{}, false
	}
	return seeking.Nearby{Name: k.Name, Endpoints: k.Addresses[:1], Source: v1alpha1.Source(k.Source)}, true
}

// watchPeers tells the directory which Peers there are, and notifies those who wait for a change.
func (d *Daemon) watchPeers(ctx context.Context, mgr manager.Manager, c *clusterPart) error {
	changed := func(obj any) {
		if _, isPeer := obj.(*v1alpha1.Peer); isPeer {
			d.directory.SetPeers(c.Client.Now().Peers)
		}
		if d.relay != nil && d.cluster.Load() == c {
			d.relay.Review()
		}
		if d.carrier != nil {
			d.carrier.Look()
		}
		c.Changed.Notify()
		d.moved.Notify()
	}
	return backend.Watch(ctx, mgr, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if gone, missed := obj.(toolscache.DeletedFinalStateUnknown); missed {
				obj = gone.Obj
			}
			changed(obj)
		},
	}, &v1alpha1.Peer{}, &v1alpha1.Contract{}, &v1alpha1.NamespaceOffloading{})
}

// untilDone does what must be done before peers are let in. False: ctx ended.
func (d *Daemon) untilDone(ctx context.Context, failed string, do func(context.Context) error) bool {
	for {
		err := do(ctx)
		if err == nil {
			return true
		}
		d.log.Warn(failed+", trying again", "err", err)
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
	c.Host.SetBinding(!d.engine.Decides()) // it may have changed since c was made, when nobody knew of this one
	d.peersMoved()
	peers := c.Client.Now().Peers
	d.directory.SetPeers(peers)
	d.directory.OnChange(func(peer string) {
		c.peers.Poke(peer)
		c.seeker.Poke()
		c.Waking.Poke(peer)
	})
	for _, peer := range peers {
		c.peers.Poke(peer.Name)
		c.Waking.Poke(peer.Name)
	}
	d.log.Info("ready", "node", d.engine.Facts().NodeName, "kubernetes", c.Version)
}
