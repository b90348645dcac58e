package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"kith.dev/core/api"
)

// Engine is the local Kubernetes as the daemon sees it.
type Engine struct {
	Kind string // "" or "none": there is none
	// Chosen is why it is that kind, where kithd chose it, and Others are sentences about what else could be.
	Chosen string
	Others []string
	State  string // the word, and why
	Why    string
	// Ready asks the API server now.
	Ready func(ctx context.Context) (version string, err error)
	// Node reads this machine's node.
	Node func(ctx context.Context) (Node, error)
	// Cluster reads what else there is of the cluster.
	Cluster func(ctx context.Context) (Cluster, error)
	NodeIP  netip.Addr // of this machine's node; that of no device here: the cluster is elsewhere
	Routed  bool       // this machine has a route to the pods of each node
	Bridge  string     // of this node's pods, where it is known
	Runtime string     // the unix socket of the container runtime, where it is known
	// Address is the node's, ClusterDNS the DNS server's; both are looked at when Kith gave them.
	Address    netip.Addr
	ClusterDNS netip.AddrPort
	Woken      bool   // a moment ago: its DNS may answer a moment later than its API server
	Log        string // where its log is
}

// Node is what a node says of itself.
type Node struct {
	Name  string
	Ready bool
	Why   string       // when not ready, or under pressure
	Pods  netip.Prefix // from which its pods have their addresses; the zero value where nobody gives ranges to nodes
	Users string       // whether guests can have user namespaces: "yes", why not, or "" when nobody tried
}

const step = 5 * time.Second

// Check is the group of the engine's checks.
func (e Engine) Check(ctx context.Context, report func(api.Finding)) {
	in := about{area: api.AreaEngine}
	if e.Kind == "" || e.Kind == "none" {
		report(in.ok("engine", "this kithd runs without a Kubernetes, as configured"))
		return
	}
	if e.Chosen != "" {
		report(in.ok("engine", "%s: %s", e.Kind, strings.Join(append([]string{e.Chosen}, e.Others...), "; ")))
	}
	see := "`kith status` shows how far it is"
	if e.Log != "" {
		see = "see " + e.Log
	}
	began := time.Now()
	version, err := bounded(ctx, e.Ready)
	if err != nil {
		why := err.Error()
		if e.Why != "" && !strings.Contains(why, e.Why) {
			why = e.Why + "; " + why
		}
		report(in.fail("api-server", "the API server does not answer; the engine is "+e.State, why, see))
	} else {
		report(in.ok("api-server", "the API server answers in %s, Kubernetes %s", short(time.Since(began)), version))
		e.node(ctx, in, see, report)
		e.cluster(ctx, in, see, report)
	}
	if e.Runtime != "" {
		report(e.runtime(ctx, in, see))
	}
	if e.Address.IsValid() {
		report(e.device(in, see))
		report(e.dns(ctx, in, see))
	}
}

func (e Engine) node(ctx context.Context, in about, see string, report func(api.Finding)) {
	n, err := bounded(ctx, e.Node)
	switch {
	case err != nil && e.Why != "": // what the engine says of it, as kith status does
		report(in.fail("node", "this machine's node cannot be read", e.Why, see))
	case err != nil:
		report(in.fail("node", "this machine's node cannot be read", err.Error(), see))
	case !n.Ready:
		report(in.fail("node", "node "+n.Name+" is not Ready", n.Why, see))
	case n.Why != "":
		report(in.warn("node", "node "+n.Name+" is Ready, with a reservation", n.Why, "free what it lacks, before it ends pods"))
	default:
		report(in.ok("node", "node %s is Ready", n.Name))
	}
	switch {
	case err != nil || n.Users == "":
	case n.Users == "yes":
		report(in.ok("user-namespaces", "guests run in user namespaces: root in them is nobody here"))
	default:
		report(in.warn("user-namespaces", "guests run without user namespaces of their own: root in them is root here, held by capabilities and seccomp alone", n.Users,
			"a kernel from 6.3 on that allows them to root; or `kith share --pod-security restricted`, where nobody is root"))
	}
}

func (e Engine) cluster(ctx context.Context, in about, see string, report func(api.Finding)) {
	if e.Cluster == nil {
		return
	}
	c, err := bounded(ctx, e.Cluster)
	if err != nil {
		report(in.fail("nodes", "the nodes and pods of this cluster cannot be read", err.Error(), see))
		return
	}
	c.others(in, report)
	c.led(in, report)
	c.Fencing.check(in, report)
	e.pods(ctx, in, c, report)
}

// runtime connects to the container runtime, and asks it nothing.
func (e Engine) runtime(ctx context.Context, in about, see string) api.Finding {
	conn, err := bounded(ctx, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Runtime)
	})
	if err != nil {
		return in.fail("runtime", "the container runtime does not take connections: no container starts", err.Error(), see)
	}
	conn.Close()
	return in.ok("runtime", "the container runtime listens at %s", e.Runtime)
}

// hasAddress reports whether a device of this machine has an address.
func hasAddress(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(one net.Addr) bool {
		p, err := netip.ParsePrefix(one.String())
		return err == nil && p.Addr() == a
	})
}

// device looks for the node's address on this machine.
func (e Engine) device(in about, see string) api.Finding {
	links, err := net.Interfaces()
	if err != nil {
		return in.warn("node-address", "the network devices of this machine are not known", err.Error(), "look again; if it stays so, "+see)
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err != nil || p.Addr() != e.Address {
				continue
			}
			if link.Flags&net.FlagUp == 0 {
				return in.fail("node-address", fmt.Sprintf("device %s, which has the node's address %s, is down", link.Name, e.Address), "", "ip link set "+link.Name+" up")
			}
			return in.ok("node-address", "the node's address %s is on device %s", e.Address, link.Name)
		}
	}
	return in.fail("node-address", fmt.Sprintf("no device has the node's address %s", e.Address), "another program took it away; "+see,
		"end kith-k8s (pkill -x kith-k8s): kithd starts it again, it takes the address again, and pods run on")
}

// dns asks the cluster's DNS for the one name that each cluster has.
func (e Engine) dns(ctx context.Context, in about, see string) api.Finding {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	const name = "kubernetes.default.svc.cluster.local."
	server := e.ClusterDNS.String()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	began := time.Now()
	addrs, err := r.LookupNetIP(ctx, "ip4", name)
	for e.Woken && err != nil && ctx.Err() == nil {
		time.Sleep(dnsAgain)
		began = time.Now()
		if found, failed := r.LookupNetIP(ctx, "ip4", name); failed == nil || ctx.Err() == nil { // that time is over explains nothing
			addrs, err = found, failed
		}
	}
	if err != nil {
		why := err.Error()
		var lookup *net.DNSError
		if errors.As(err, &lookup) { // its text names a server that was not asked
			why = lookup.Err
		}
		return in.fail("dns", "the cluster's DNS at "+server+" does not answer", why, see)
	}
	return in.ok("dns", "the cluster's DNS at %s answers in %s: kubernetes is %s", server, short(time.Since(began)), addrs[0])
}

// dnsAgain is how soon a DNS server that does not answer is asked again.
const dnsAgain = 300 * time.Millisecond

func bounded[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	return f(ctx)
}

// short writes a duration as people read it: 1.84ms, 120ms, 2.3s.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
