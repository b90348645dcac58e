// Package config holds what kithd can be told: one table of keys, which is the configuration file, the flags, the
// help text and the manual page at once.
//
// cmd/kithd adds the flags and loads; daemon takes the Config. Flags win over the file, the file over the defaults.
// Whatever is not understood is an error that names the key, the value and what is allowed: nothing is guessed and
// nothing ignored. The package reads one file and the host's name; it must never write, nor look at the network.
package config

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"kith.dev/core/base/places"
	"kith.dev/core/net/netplan"
)

// DefaultPath is where the configuration file is looked for. It need not exist.
var DefaultPath = places.Here().Config

// The engines.
const (
	EngineAuto       = "auto" // package choose makes one of the others of it
	EngineBuiltin    = "builtin"
	EngineK3s        = "k3s"
	EngineKubeconfig = "kubeconfig"
	EngineNone       = "none"
)

// To whom services of type NodePort and LoadBalancer are open.
const (
	ExposeNone = "none"
	ExposeLAN  = "lan"
)

// What this cluster has to do with connections that a common peer passes on.
const (
	RelayNone  = "none"
	RelayUse   = "use"
	RelayOffer = "offer"
)

// Which ports of this laptop its router is asked to map.
const (
	PortMappingNone   = "none"
	PortMappingTunnel = "tunnel"
	PortMappingAll    = "all"
)

// The forms of the log.
const (
	LogText = "text"
	LogJSON = "json"
)

// Config is the configuration of kithd, complete and checked. The keys' help texts in keys.go say what each means.
type Config struct {
	Name           string
	ListenAddress  netip.Addr // invalid: all
	PeerAPIPort    uint16
	WireGuardPort  uint16
	RequestTimeout time.Duration
	Discovery      Discovery

	Share      string // "50%", or "" for nothing
	AutoAccept bool

	GuestImages []string // names of images, with * for anything

	Engine            string
	PodRange          netip.Prefix
	PodRangeSet       bool // by the owner: else a cluster that is there already may know better
	ServiceRange      netip.Prefix
	IPv6              bool           // pods and services have both families (engine builtin)
	Catalogue         bool           // peers are shown what other peers list here
	IntroducePeers    bool           // providers are told how to reach each other, where the owners of both let them
	Relay             string         // RelayNone, RelayUse or RelayOffer
	PortMapping       string         // PortMappingNone, PortMappingTunnel or PortMappingAll
	AliasPools        []netip.Prefix // none: netplan.DefaultPool
	EngineIdle        time.Duration  // 0: the engine never sleeps
	EngineFlags       []string
	RuntimeDir        string
	K3sBinary         string // "": with engine k3s, a K3s that runs as a service
	ImagesDir         string
	Kubeconfig        string // "": the cluster kithd runs in
	KubeconfigContext string // "": the current one
	NodeName          string
	KubeletAddress    netip.Addr    // invalid: the node's
	Expose            string        // ExposeNone or ExposeLAN
	FrontDoorPort     uint16        // 0: none
	AutoUntetherAfter time.Duration // 0: never
	TetherRoles       []string      // ClusterRoles; "*": any

	DataDir     string
	RunDir      string
	Socket      string
	SocketGroup string

	Lease          string // NAMESPACE/NAME, or "" for a kithd that is the only one of its cluster
	LeaseDuration  time.Duration
	IdentitySecret string // NAMESPACE/NAME, or "" for files in DataDir
	PodName        string // "": kithd runs in no pod
	HealthAddress  string // "": off

	LogLevel       slog.Level
	LogFormat      string
	MetricsAddress string // "": off
	MetricsPublic  bool
	Profiling      bool
}

// Discovery says where other clusters are looked for.
type Discovery struct {
	LAN        bool
	DNSDomains []string
	Interfaces []string // patterns; none: all that are a LAN's
}

// Default is the configuration before file and flags. What is left empty follows from the rest when it is complete.
func Default() Config { return defaults(places.Here()) }

func defaults(at places.Places) Config {
	c := Config{
		PeerAPIPort:    6450,
		RequestTimeout: 10 * time.Minute,
		EngineIdle:     10 * time.Minute,
		Discovery:      Discovery{LAN: true},
		Share:          "50%",
		Engine:         EngineAuto,
		IntroducePeers: true,
		Relay:          RelayNone,
		PortMapping:    PortMappingNone,
		Expose:         ExposeNone,
		FrontDoorPort:  6451,
		TetherRoles:    []string{"*"},
		PodRange:       netplan.Usual().Pods,
		ServiceRange:   netplan.Usual().Services,
		DataDir:        at.Data,
		RunDir:         at.Run,
		SocketGroup:    at.Group,
		LeaseDuration:  15 * time.Second,
		LogFormat:      LogText,
	}
	if at.Kubeconfig != "" { // the others are made for Linux
		c.Engine = EngineKubeconfig
	}
	return c
}

// RunsCluster reports whether the cluster of this machine is Kith's own, and not somebody else's or none.
func (c Config) RunsCluster() bool {
	return c.Engine == EngineBuiltin || c.Engine == EngineK3s && c.K3sBinary != ""
}

// Check says what is wrong with a configuration that was changed after it was loaded.
func (c Config) Check() error { return c.check() }

// complete fills in what follows from other keys, and from where things are on this system.
func (c *Config) complete(at places.Places, hostname func() (string, error)) error {
	if c.Engine == EngineKubeconfig && c.Kubeconfig == "" {
		c.Kubeconfig = at.Kubeconfig
	}
	if c.Name == "" {
		host, err := hostname()
		if err != nil {
			return err
		}
		c.Name = labelOf(host)
	}
	if c.WireGuardPort == 0 {
		c.WireGuardPort = c.PeerAPIPort
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(c.RunDir, "kith.sock")
	}
	return nil
}
