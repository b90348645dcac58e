// Package daemon is kithd: it makes the rooms of core/, gives them to each other and keeps them running. cmd/kithd calls it with the
// configuration read. What the local API answers is daemon/backend's.
//
// It must never decide what core/ decides: here things are only created, connected, started and stopped.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"kith.dev/core/agree/carry"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/receipts"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relay"
	"kith.dev/core/api"
	"kith.dev/core/base/layout"
	"kith.dev/core/base/memory"
	"kith.dev/core/base/notify"
	"kith.dev/core/base/version"
	giving "kith.dev/core/consume/images"
	"kith.dev/core/find/directory"
	"kith.dev/core/find/discovery"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/find/discovery/mdns"
	"kith.dev/core/local/cluster"
	"kith.dev/core/local/frontdoor"
	"kith.dev/core/local/images"
	"kith.dev/core/local/laptop"
	"kith.dev/core/mode"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/overlay"
	"kith.dev/core/net/portmap"
	"kith.dev/core/provide/exposure"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/guestnet"
	homes "kith.dev/core/provide/images"
	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend"
	"kith.dev/daemon/choose"
	"kith.dev/daemon/config"
	"kith.dev/daemon/controllerlog"
	"kith.dev/daemon/keys"
	"kith.dev/daemon/leader"
	"kith.dev/daemon/localapi"
	"kith.dev/daemon/metrics"
	"kith.dev/daemon/web"
)

const eventsKept = 512

// Daemon is kithd.
type Daemon struct {
	cfg config.Config
	log *slog.Logger
	me  *identity.Identity

	tunnelKey gateway.PrivateKey

	events     *localapi.Broker
	local      *localapi.Server
	page       *web.Server
	peerAPI    *peering.Server
	peersAt    net.Listener // of the peer API
	nearby     *discovery.Table
	names      *dns.Finder
	contacts   *peering.Contacts
	relay      *relay.Relay    // nil with relay: none
	carrier    *carry.Carrier  // nil without it, and without a gateway
	ports      *portmap.Mapper // nil where no router is asked for any
	directory  *directory.Directory
	backend    *backend.Backend
	notices    provider.Notices
	receipts   *receipts.Book
	changed    notify.Broadcast // notifies when something changed that a desktop shows
	moved      notify.Broadcast // notifies when a contact, a Peer or a contract may have changed, and when cluster did
	fenceMoved notify.Broadcast // notifies when the fence is kept as it must be, or is not any more
	term       *leader.Term     // that it works for; nil: always
	ways       overlay.Ways     // what was heard of other nodes, of a cluster that has several
	kernel     hostnet.Changes  // of links and routes, for all who listen
	engine     cluster.Engine   // nil with engine "none"
	uses       cluster.Uses     // of the engine
	laptop     *laptop.Laptop
	gateway    *gateway.Gateway            // nil with engine "none"
	fence      *fence.Fence                // nil with an engine whose ranges are known later
	around     atomic.Pointer[fence.Fence] // the one that is up, whatever the engine
	guests     *guestnet.Kernel            // nil with an engine without guest links
	cluster    atomic.Pointer[clusterPart]
	exposure   *exposure.Exposure
	front      *frontdoor.Door // nil without one
	frontAt    net.Listener    // of the front door
	mode       *mode.Machine
	images     *images.Store // of the engine's container runtime
	giver      *giving.Giver
	homes      *homes.Homes // nil with an engine that does not ask homes for images

	health         health
	audits         *audit.Log
	metrics        *metrics.Metrics
	metricsAt      net.Listener // nil unless metricsAddress is set
	parts          *parts
	controllerLogs logr.Logger
}

// Stores is what this kithd writes into its data directory, and its engine into its own.
func Stores() layout.Version {
	return layout.Version{Layout: layout.Current, Kith: version.Version, Kubernetes: layout.Minor(version.Kubernetes)}
}

// checkData asks whether this kithd, and the engine that it would start, may write into their folders. Of an engine that is elsewhere the
// version is not known here: it asks by itself.
func checkData(cfg config.Config) error {
	if cfg.Engine != config.EngineBuiltin {
		return layout.Check(cfg.DataDir, Stores())
	}
	stores := Stores()
	if cfg.RuntimeDir != "" {
		stores.Kubernetes = ""
	}
	return layout.CheckAll(cfg.DataDir, stores)
}

// New makes everything that can be made before anything runs, and takes the sockets, so that a second daemon, a
// taken port or a damaged key is an error at once. What a newer Kith stored is a *layout.Refusal, before anything is changed.
func New(cfg config.Config, log *slog.Logger) (d *Daemon, err error) {
	cfg, choice, err := choose.Engine(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	if err := checkData(cfg); err != nil {
		return nil, err
	}
	d = &Daemon{cfg: cfg, log: log, events: localapi.NewBroker(eventsKept)}
	d.backend = &backend.Backend{
		Settings: cfg, Choice: choice, Started: time.Now(), Uses: &d.uses, Cluster: d.seen, Listening: d.listening, Exposed: d.exposedStatus, Publish: d.publish, News: &d.changed, Log: log,
	}
	d.health.well = d.works
	d.audits = d.newAudit()
	d.page = web.New(web.Options{Log: log, Audit: d.audits, Changed: d.changed.Notify})
	d.local = localapi.New(localapi.Options{Socket: cfg.Socket, Group: cfg.SocketGroup, Backend: d.backend, Events: d.events, Page: d.page, Log: log, Audit: d.audits})
	if err := d.local.Listen(); err != nil {
		return nil, err
	}
	if cfg.Profiling {
		d.profile()
	}
	d.controllerLogs = controllerlog.To(log)
	if err := d.newMetrics(); err != nil {
		return nil, err
	}
	stores := Stores()
	if err := layout.Start(cfg.DataDir, layout.Version{Layout: stores.Layout, Kith: stores.Kith}); err != nil { // nobody else runs: the socket is ours
		return nil, err
	}
	if err := choose.Note(cfg); err != nil {
		return nil, fmt.Errorf("note which engine was chosen: %w", err)
	}
	if d.me, d.tunnelKey, err = keys.Load(cfg); err != nil {
		return nil, err
	}
	if err := d.makeEngine(); err != nil {
		return nil, err
	}
	if err := d.makeImages(); err != nil {
		return nil, err
	}
	if err := d.makeDiscovery(); err != nil {
		return nil, err
	}
	contacts := peering.ContactsConfig{Identity: d.me, Log: log, Silent: func(id identity.ID) { d.peerAPI.Cut(id) }}
	if cfg.Relay != config.RelayNone {
		contacts.Ways = func(id identity.ID) []peering.Way { return d.relay.Ways(id) }
		contacts.CallBack = func(from identity.ID, c peering.CallBack) { d.relay.CallBack(from, c) }
	}
	d.contacts = peering.NewContacts(contacts)
	d.laptop = laptop.New(laptop.Config{
		Tell: d.sleeps, Woke: d.awake, Guests: d.backend.GuestCount, GuestsMoved: d.changed.Wait, Kept: d.backend.TellAwake, Log: log,
	})
	d.exposure = exposure.New(exposure.Config{On: cfg.Expose == config.ExposeLAN, Addresses: d.exposed, Log: log})
	d.directory = directory.New(d.me, d.contacts, d.nearby, log)
	d.directory.FollowNames(d.names.Follow)
	if err := d.openReceipts(); err != nil {
		return nil, err
	}
	b := d.backend
	b.Laptop, b.Me, b.Directory, b.Names, b.Contacts, b.Engine, b.Stored, b.Giver, b.Gateway, b.Failing = d.laptop, d.me, d.directory, d.names, d.contacts, d.engine, d.images, d.giver, d.gateway, d.failing
	if err := d.openFrontDoor(); err != nil {
		return nil, err
	}
	if err := d.makeMode(); err != nil {
		return nil, err
	}
	return d, d.openPeerAPI()
}

// seen is what the local API reads of the cluster; nil while there is none.
func (d *Daemon) seen() *backend.Cluster {
	if c := d.cluster.Load(); c != nil {
		return &c.Cluster
	}
	return nil
}

// tunnelsChanged has all who show tunnels, or act upon them, look again. The gateway does not wait for it.
func (d *Daemon) tunnelsChanged() {
	d.changed.Notify()
	if d.carrier != nil {
		d.carrier.Look()
	}
	go d.directory.TellAll()
}

func (d *Daemon) makeDiscovery() (err error) {
	var finders []discovery.Finder
	if d.cfg.Discovery.LAN {
		finders = append(finders, mdns.New(mdns.Config{
			ID: d.me.ID(), Name: d.cfg.Name, Port: d.cfg.PeerAPIPort, Interfaces: d.cfg.Discovery.Interfaces,
			Trusted: d.trusted, Kernel: &d.kernel, Log: d.log,
		}))
	}
	d.names, err = dns.New(dns.Config{Domains: d.cfg.Discovery.DNSDomains, Port: d.cfg.PeerAPIPort, Changed: d.changed.Notify, Log: d.log})
	if err != nil {
		return err
	}
	d.nearby = discovery.NewTable(d.log, append(finders, d.names)...)
	return nil
}

// trusted tells discovery whose announcements a flood of strangers must not displace.
func (d *Daemon) trusted(id identity.ID) bool { return d.directory != nil && d.directory.IsPeer(id) }

// Run keeps everything running until ctx ends, then tells peers goodbye and stops. Pods, and the engine, go on.
func (d *Daemon) Run(ctx context.Context) error {
	d.log.Info("kithd started", "name", d.cfg.Name, "id", d.me.ID().String(), "version", version.Version, "engine", d.cfg.Engine)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer d.page.Close()
	keep := func(name string, run func(context.Context) error) { running.Go(func() { d.keep(ctx, name, run) }) }
	keep("discovery", d.nearby.Run)
	keep("contacts", d.contacts.Run)
	keep("the directory", d.directory.Run)
	keep("notices", d.heard)
	keep("the memory", func(ctx context.Context) error { return memory.Tidy(ctx, memory.Daemon) })
	keep("events of neighbours", func(ctx context.Context) error { return d.directory.Report(ctx, d.publish, d.peersMoved) })
	keep("the watch of this laptop's addresses", d.watchAddresses)
	if runtime.GOOS == "linux" { // logind's and NetworkManager's are Linux'
		keep("the watch of this laptop's sleep", d.laptop.Run)
	}
	if d.ports != nil {
		keep("the mapping of ports at the router", d.ports.Run)
	}
	if d.engine != nil {
		keep("the engine", d.fenced(d.engine.Run))
		keep("the watch of the engine", d.backend.WatchEngine)
		keep("the watch of the disk", d.backend.WatchDisk)
		if d.fence != nil {
			keep("the fence around guests", d.fence.Run)
		}
		if d.guests != nil {
			keep("the network of guests", d.guests.Run)
		}
		if d.homes != nil {
			keep("the images of guests' homes", d.homes.Run)
		}
		keep("the gateway", d.gateway.Run)
		if d.carrier != nil {
			keep("carrying packets", d.carrier.Run)
		}
		if d.cfg.Lease != "" { // also while the cluster is away: they say then whether it is for all
			keep("the answers to other nodes", func(ctx context.Context) error { return d.ways.Listen(ctx, &d.kernel, d.fenceMoved.Notify) })
		}
		keep("the cluster's controllers", d.runCluster)
		keep("the mode", d.mode.Run)
		if d.engine.Facts().Sleeps && d.cfg.EngineIdle > 0 {
			keep("the sleep of the engine", d.letSleep)
		}
	}
	if d.metricsAt != nil {
		running.Go(func() {
			if err := d.metrics.Serve(ctx, d.metricsAt); err != nil {
				d.log.Error("metrics are served no more", "err", err)
			}
		})
	}
	failed := make(chan error, 3)
	if d.front != nil {
		running.Go(func() { failed <- d.front.Serve(ctx, d.frontAt) })
	}
	running.Go(func() { failed <- d.peerAPI.Serve(ctx, d.peersAt) })
	running.Go(func() { failed <- d.local.Run(ctx) })
	d.publish(api.Event{Type: api.EventDaemonStarted, Severity: api.SeverityInfo, Message: "kithd " + version.Version + " started"})
	select {
	case err := <-failed:
		if ctx.Err() == nil && err == nil {
			err = errors.New("a listener ended by itself")
		}
		return err
	case <-ctx.Done():
		d.log.Info("kithd stops; pods go on")
		return nil
	}
}

// woke has whoever was there before this laptop slept asked, before anybody is missed.
func (d *Daemon) woke() {
	d.contacts.Poke()
	d.names.Again()
}

// watchAddresses has all contacts looked after when this laptop is on another network: connections from an address
// that it left would be waited for in vain.
func (d *Daemon) watchAddresses(ctx context.Context) error {
	return mdns.WatchLAN(ctx, &d.kernel, d.cfg.Discovery.Interfaces, func() {
		d.contacts.Poke()
		d.names.Again()
		d.exposure.Moved()
		d.changed.Notify()
	})
}

func (d *Daemon) publish(e api.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	d.metrics.Event(string(e.Type), string(cmp.Or(e.Severity, api.SeverityInfo)))
	d.events.Publish(e)
	d.changed.Notify()
}

// endpoints are the addresses of the peer API that are told to those who are asked: those of the LAN, and what the router maps to it.
func (d *Daemon) endpoints() []string {
	addresses, err := mdns.ToldAddresses(d.cfg.Discovery.Interfaces)
	if err != nil {
		d.log.Warn("own addresses are not known", "err", err)
	}
	var list []string
	for _, a := range addresses {
		list = append(list, netip.AddrPortFrom(a, d.cfg.PeerAPIPort).String())
	}
	if at := d.mapped(portmap.TCP); at.IsValid() {
		list = append(list, at.String())
	}
	return list
}

func (d *Daemon) listening() []api.Listener {
	list := []api.Listener{
		{Name: "local-api", Network: "unix", Address: d.cfg.Socket},
		{Name: "peer-api", Network: "tcp", Address: d.peersAt.Addr().String()},
	}
	if d.front != nil {
		list = append(list, api.Listener{Name: "front-door", Network: "tcp", Address: d.frontAt.Addr().String()})
	}
	if d.engine != nil {
		list = append(list, api.Listener{Name: "wireguard", Network: "udp", Address: fmt.Sprintf(":%d", d.cfg.WireGuardPort)})
	}
	if address := d.page.Address(); address != "" {
		list = append(list, api.Listener{Name: "page", Network: "tcp", Address: address})
	}
	if d.metricsAt != nil {
		list = append(list, api.Listener{Name: "metrics", Network: "tcp", Address: d.metricsAt.Addr().String()})
	}
	return list
}
