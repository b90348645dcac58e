package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"kith.dev/core/base/places"
)

// keys is the table. Its order is that of the manual page and of the example file.
var keys = []Key{
	text("name", "this cluster's name, as its peers see it", "host name", isLabel,
		"a DNS label: 1 to 63 of a-z, 0-9 and -, not at the ends", func(c *Config) *string { return &c.Name }),
	address("listenAddress", "address of this machine on which peers are heard; without it, all",
		func(c *Config) *netip.Addr { return &c.ListenAddress }),
	port("peerAPIPort", "TCP port on which this cluster speaks with peers", "", func(c *Config) *uint16 { return &c.PeerAPIPort }),
	port("wireguardPort", "UDP port of the tunnels", "peerAPIPort", func(c *Config) *uint16 { return &c.WireGuardPort }),
	duration("requestTimeout", "how long a request for resources waits for its answer", func(c *Config) *time.Duration { return &c.RequestTimeout }),
	boolean("discovery.lan", "find clusters on the local network, and be found (mDNS, DNS-SD)", func(c *Config) *bool { return &c.Discovery.LAN }),
	words("discovery.dnsDomains", "domains whose SRV records name clusters", isDomain, "DNS domains, such as kith.example.org",
		func(c *Config) *[]string { return &c.Discovery.DNSDomains }),
	words("discovery.interfaces", "network interfaces on which clusters are looked for, * and ? stand for others; without it, all of a real LAN",
		isPattern, "names or patterns, such as eth0 or wl*", func(c *Config) *[]string { return &c.Discovery.Interfaces }),

	text("share", "part of this machine that is offered to peers until \"kith share\" says otherwise; \"\" offers nothing", "", isShare,
		"a whole percentage from 0% to 100%, or empty", func(c *Config) *string { return &c.Share }),
	boolean("autoAccept", "let that first policy answer requests without asking the owner", func(c *Config) *bool { return &c.AutoAccept }),
	boolean("catalogue", "show peers whose key was accepted what others of them list here (kith share --list-at, kith catalogue)", func(c *Config) *bool { return &c.Catalogue }),
	words("guestImages", "images that guests under that first policy may use as they are here, * stands for anything; others they pull", isImages,
		"names of images, such as kith.dev/* or postgres:17", func(c *Config) *[]string { return &c.GuestImages }),

	word("engine", "which Kubernetes: builtin runs one, k3s uses the K3s of this machine or runs one, kubeconfig uses one that is there, none has none; auto takes a "+
		"K3s that runs, else the cluster of kubeconfig if that is set, else builtin, and stays with it",
		[]string{EngineAuto, EngineBuiltin, EngineK3s, EngineKubeconfig, EngineNone}, func(c *Config) *string { return &c.Engine }),
	noted(prefix("podRange", "range of the pods' addresses; clusters may have the same", func(c *Config) *netip.Prefix { return &c.PodRange }),
		func(c *Config) *bool { return &c.PodRangeSet }),
	prefix("serviceRange", "range of the services' addresses; clusters may have the same", func(c *Config) *netip.Prefix { return &c.ServiceRange }),
	boolean("ipv6", "give pods and services IPv6 addresses, too, of ranges that follow from this cluster's key (engine builtin)", func(c *Config) *bool { return &c.IPv6 }),
	prefixes("aliasPools", "ranges out of which guests get addresses, here and at peers, who must have some of them in common; without it, 198.18.0.0/15",
		func(c *Config) *[]netip.Prefix { return &c.AliasPools }),
	boolean("introducePeers", "tell two providers of this cluster how to reach each other, where the owners of both allow it (kith share --direct): pods at them meet without going by here",
		func(c *Config) *bool { return &c.IntroducePeers }),
	word("relay", "connections with peers that cannot be dialled: none has none, use calls back, lets a common peer pass them on, and carries tunnels where UDP does not pass, offer also passes on those of this cluster's peers with each other",
		[]string{RelayNone, RelayUse, RelayOffer}, func(c *Config) *string { return &c.Relay }),
	word("portMapping", "ports of this laptop that its router is asked to lead to it (NAT-PMP, UPnP): none asks for none, tunnel for WireGuard's, which answers peers alone, all for that of the peer API as well, so that whoever comes to the router's address may ask for resources",
		[]string{PortMappingNone, PortMappingTunnel, PortMappingAll}, func(c *Config) *string { return &c.PortMapping }),
	word("expose", "to whom services of type NodePort and LoadBalancer are open: none is this machine alone, lan its neighbours too (builtin engine)",
		[]string{ExposeNone, ExposeLAN}, func(c *Config) *string { return &c.Expose }),
	portOrNone("frontDoorPort", "TCP port of 127.0.0.1 at which kubeconfigs of \"kith kubeconfig\" reach Kubernetes; 0 has none: they lead to the cluster itself",
		func(c *Config) *uint16 { return &c.FrontDoorPort }),
	durationOrNone("autoUntetherAfter", "after which time without an answer of the company's cluster a tethered laptop takes back control by itself; 0 is never",
		func(c *Config) *time.Duration { return &c.AutoUntetherAfter }),
	words("tetherClusterRoles", "ClusterRoles that TetherPolicies may give to users of laptops that this cluster runs; * stands for all, and Kubernetes decides", notEmpty,
		"names of ClusterRoles, or *", func(c *Config) *[]string { return &c.TetherRoles }),
	durationOrNone("engineIdle", "after which time without use the builtin engine sleeps until somebody needs it, if it runs no pods and no contract is in force; 0 is never",
		func(c *Config) *time.Duration { return &c.EngineIdle }),
	verbatim(words("engineFlags", "more flags for the builtin engine, or for a K3s that kithd runs", notEmpty, "flags of kith-k8s or of k3s server", func(c *Config) *[]string { return &c.EngineFlags })),
	file("runtimeDir", "directory of the container runtime's programs", "beside kithd", func(c *Config) *string { return &c.RuntimeDir }),
	file("k3sBinary", "with engine k3s: the program k3s, which kithd runs with a data directory of its own",
		"the K3s that is a service of this machine, else k3s in PATH", func(c *Config) *string { return &c.K3sBinary }),
	file("imagesDir", "directory of container images that are loaded at start", "none", func(c *Config) *string { return &c.ImagesDir }),
	file("kubeconfig", "with engine kubeconfig: the file that leads to the cluster", cmp.Or(places.Here().Kubeconfig, "the cluster kithd runs in"), func(c *Config) *string { return &c.Kubeconfig }),
	text("kubeconfigContext", "with engine kubeconfig: the context in that file", "current one", notEmpty, "a name",
		func(c *Config) *string { return &c.KubeconfigContext }),
	text("nodeName", "with engine kubeconfig, or k3s that is a service: the node that this machine is", "host name", isDomain, "a DNS name",
		func(c *Config) *string { return &c.NodeName }),
	one("kubeletAddress", "with engine kubeconfig, or k3s that is a service: the address by which that cluster's API server reaches this machine, for logs and exec of pods at peers",
		"an IP address", "the node's", func(c *Config) *netip.Addr { return &c.KubeletAddress }, netip.ParseAddr, netip.Addr.String),

	file("dataDir", "directory of what must survive a reboot: identity, the engine's data", "", func(c *Config) *string { return &c.DataDir }),
	file("runDir", "directory of what need not", "", func(c *Config) *string { return &c.RunDir }),
	file("socket", "unix socket of the local API", "kith.sock in runDir", func(c *Config) *string { return &c.Socket }),
	text("socketGroup", "group whose members may use the local API; \"\" leaves it to root", "", isGroup, "the name of a group, or empty",
		func(c *Config) *string { return &c.SocketGroup }),

	text("lease", "with engine kubeconfig: the Lease that one of several kithd of a cluster holds, and alone works; the others wait for it", "none", isNamespaced,
		"NAMESPACE/NAME", func(c *Config) *string { return &c.Lease }),
	duration("leaseDuration", "after which time without a sign of life of its holder another kithd takes the lease", func(c *Config) *time.Duration { return &c.LeaseDuration }),
	text("identitySecret", "with engine kubeconfig: the Secret that has this cluster's keys, in place of files in dataDir", "none", isNamespaced,
		"NAMESPACE/NAME", func(c *Config) *string { return &c.IdentitySecret }),
	text("podName", "with lease: the pod that kithd runs in, which has the label kith.dev/leader while it holds the lease", "none", isDomain, "a DNS name",
		func(c *Config) *string { return &c.PodName }),
	text("healthAddress", "host:port of /livez and /readyz over HTTP, for the probes of a kubelet", "off",
		isHostPort, "an IP address and a port, such as 127.0.0.1:6453", func(c *Config) *string { return &c.HealthAddress }),

	level("logLevel", "least severe messages that are logged", func(c *Config) *slog.Level { return &c.LogLevel }),
	word("logFormat", "form of the log", []string{LogText, LogJSON}, func(c *Config) *string { return &c.LogFormat }),
	text("metricsAddress", "host:port of Prometheus metrics over HTTP, with no password; the local API has them at /metrics anyway", "off",
		isHostPort, "an IP address and a port, such as 127.0.0.1:6452", func(c *Config) *string { return &c.MetricsAddress }),
	boolean("metricsPublic", "let metricsAddress be one that other machines reach", func(c *Config) *bool { return &c.MetricsPublic }),
	boolean("profiling", "give root Go's profiles of kithd at /debug/pprof/ of the local API", func(c *Config) *bool { return &c.Profiling }),
}

// Example is a configuration file in which every key stands with its default, commented out.
func Example() string {
	var b strings.Builder
	b.WriteString("# Configuration of kithd. Every key may be left out; what stands here are the defaults.\n# See kith.yaml(5).\n")
	section := ""
	for _, k := range keys {
		name, indent := k.Name, ""
		if s, rest, nested := strings.Cut(k.Name, "."); nested {
			if name, indent = rest, "  "; s != section {
				fmt.Fprintf(&b, "\n#%s:\n", s)
			}
			section = s
		} else {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %s%s. Allowed: %s.\n#%s%s: %s\n", indent, upper(k.Help), k.Allowed, indent, name, k.example())
	}
	return b.String()
}

// example is the default as YAML, or what it follows from, as a comment.
func (k Key) example() string {
	switch {
	case k.List && k.Default == "":
		return "[]"
	case k.List: // in quotes: a * means something to YAML
		return `["` + strings.ReplaceAll(k.Default, ",", `", "`) + `"]`
	case k.Follows:
		return "# " + k.Default
	case k.Bool, k.Number:
		return k.Default
	}
	return fmt.Sprintf("%q", k.Default)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
