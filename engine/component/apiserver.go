// Package component runs the programs of Kubernetes as functions of one process: API server,
// controller-manager, scheduler, kube-proxy and kubelet. The server package decides when each starts.
//
// Upstream's commands cannot be used for it: each installs a signal handler, and the second panics. So each
// function here does what the command does after parsing its flags. But for the scheduler and the controller-manager, none may be started
// twice in a process.
package component

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"weak"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"kith.dev/engine/listener"
)

// PKI names the files of package pki by folder and name.
type PKI struct{ Dir string }

func (p PKI) crt(name string) string { return filepath.Join(p.Dir, name+".crt") }
func (p PKI) key(name string) string { return filepath.Join(p.Dir, name+".key") }
func (p PKI) kubeconfig(name string) string {
	return filepath.Join(p.Dir, name+".kubeconfig")
}

// APIServer is what the API server is told.
type APIServer struct {
	PKI
	NodeIP      netip.Addr
	Port        int
	ServiceCIDR netip.Prefix
	IPv6        netip.Prefix      // of services, beside ServiceCIDR; the zero value: none
	Datastore   string            // unix socket of the datastore
	Egress      string            // file of the egress selector's configuration; "" dials nodes as it is
	Flags       map[string]string // what somebody else sets, before what is set here
	// Agents is where nodes that join reach it, besides NodeIP; the zero value: none may join, and no token lets anybody ask to.
	Agents netip.Addr
	// Install has the server serve more than upstream's; nil: nothing. The informers are those that the server runs anyway.
	Install func(*genericapiserver.GenericAPIServer, informers.SharedInformerFactory) error
}

const issuer = "https://kubernetes.default.svc.cluster.local"

// Run serves until ctx ends.
func (a APIServer) Run(ctx context.Context) error {
	o := options.NewServerRunOptions()
	err := parse("kube-apiserver", o.Flags(), with(a.Flags, map[string]string{
		"egress-selector-config-file":        a.Egress,
		"etcd-servers":                       "unix://" + a.Datastore,
		"bind-address":                       a.NodeIP.String(),
		"advertise-address":                  a.NodeIP.String(),
		"secure-port":                        fmt.Sprint(a.Port),
		"service-cluster-ip-range":           both(a.ServiceCIDR, a.IPv6),
		"authorization-mode":                 "Node,RBAC",
		"enable-admission-plugins":           "NodeRestriction",
		"allow-privileged":                   "true",
		"client-ca-file":                     a.crt("ca"),
		"tls-cert-file":                      a.crt("apiserver"),
		"tls-private-key-file":               a.key("apiserver"),
		"kubelet-certificate-authority":      a.crt("ca"),
		"kubelet-client-certificate":         a.crt("apiserver-kubelet-client"),
		"kubelet-client-key":                 a.key("apiserver-kubelet-client"),
		"kubelet-preferred-address-types":    "InternalIP,Hostname", // virtual nodes have no name that resolves
		"service-account-issuer":             issuer,
		"api-audiences":                      issuer,
		"service-account-key-file":           a.key("service-account"),
		"service-account-signing-key-file":   a.key("service-account"),
		"requestheader-client-ca-file":       a.crt("front-proxy-ca"),
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file":             a.crt("front-proxy-client"),
		"proxy-client-key-file":              a.key("front-proxy-client"),
		"enable-aggregator-routing":          "true", // reach aggregated servers by endpoint, the node may lack the service route
		// There is one API server. What tells several of them apart are two leases that it renews every ten seconds, each
		// renewal a write to the disk (docs/performance.md); it needs neither.
		"endpoint-reconciler-type": "master-count",
		// WatchList needs progress of watches, which the datastore does not tell: lists come as lists. And the other parts of this process, whose
		// switches these are, too, need not ask for it, two hundred of them at each start. The last three keep what a cache was a moment ago for
		// lists in pages, compare it with the datastore, and guess what a list would cost: seventy goroutines each, for clusters of other sizes.
		"feature-gates": strings.Join([]string{
			"APIServerIdentity=false", "UnknownVersionInteroperabilityProxy=false", "WatchList=false", "WatchListClient=false",
			"ListFromCacheSnapshot=false", "DetectCacheInconsistency=false", "SizeBasedListCostEstimate=false",
		}, ","),
		// Told to end, it answers what it has begun and gives the watches of our own clients 2 s instead of 60.
		"shutdown-send-retry-after":   "true",
		"profiling":                   "false",
		"anonymous-auth":              "true", // /readyz; RBAC gives anonymous nothing else, but for package join's cluster-info
		"enable-bootstrap-token-auth": fmt.Sprint(a.Agents.IsValid()),
	}))
	if err != nil {
		return err
	}
	// The LAN must not reach it unless nodes are to join from there: two addresses or three, not all.
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.NodeIP}
	if a.Agents.IsValid() && a.Agents != a.NodeIP {
		addrs = append(addrs, a.Agents)
	}
	sockets, err := listener.Listen(ctx, a.Port, addrs...)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w; another server may be running", err)
	}
	o.SecureServing.Listener = sockets
	defer sockets.Close()

	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // its own clients need not be told of deprecations
	completed, err := o.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return utilerrors.NewAggregate(errs)
	}
	return a.serve(ctx, completed)
}

// serve does what apiserver.Run does. In the chain of servers the aggregator is first and kube-apiserver second; both are made
// when Install is called, and neither has written its description of the API yet.
func (a APIServer) serve(ctx context.Context, o options.CompletedOptions) error {
	config, err := apiserver.NewConfig(o)
	if err != nil {
		return err
	}
	generic := config.KubeAPIs.ControlPlane.Generic
	generic.OpenAPIConfig.GetOperationIDAndTagsFromRoute = operation
	generic.OpenAPIV3Config.GetOperationIDAndTagsFromRoute = operation
	generic.OpenAPIV3Config.GetDefinitions = weakly(generic.OpenAPIV3Config.GetDefinitions)
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := apiserver.CreateServerChain(completed)
	if err != nil {
		return err
	}
	if a.Install != nil {
		kube, ok := chain.GenericAPIServer.NextDelegate().(*genericapiserver.GenericAPIServer)
		if !ok {
			return fmt.Errorf("kube-apiserver: behind the aggregator is a %T", chain.GenericAPIServer.NextDelegate())
		}
		if err := a.Install(kube, config.KubeAPIs.ControlPlane.VersionedInformers); err != nil {
			return err
		}
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	// The types of all fields are known from them by now. OpenAPI, when it is asked for, has them made again.
	generic.OpenAPIV3Config.Definitions = nil
	return prepared.Run(ctx)
}

// operation names a route in OpenAPI as upstream's builders do. Where it is not set they set it themselves, to what keeps the builder and the
// definitions of all types for as long as the program runs.
func operation(r openapicommon.Route) (id string, tags []string, err error) {
	adapter, ok := r.(*restfuladapter.RouteAdapter)
	if !ok {
		return "", nil, fmt.Errorf("kube-apiserver: no name for the operations of a %T", r)
	}
	return apiopenapi.GetOperationIDAndTags(adapter.Route)
}

// weakly keeps the definitions of all types, 15 MB, only until the next collection of garbage: documents of OpenAPI are asked for many at a
// time, and then for days not at all. All who ask want references of the same form.
func weakly(get openapicommon.GetOpenAPIDefinitions) openapicommon.GetOpenAPIDefinitions {
	var mu sync.Mutex
	var last weak.Pointer[map[string]openapicommon.OpenAPIDefinition]
	return func(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		mu.Lock()
		defer mu.Unlock()
		if known := last.Value(); known != nil {
			return *known
		}
		all := get(ref)
		last = weak.Make(&all)
		return all
	}
}

// both are a range of IPv4 and, where there is one, that of IPv6 behind it.
func both(ipv4, ipv6 netip.Prefix) string {
	if !ipv6.IsValid() {
		return ipv4.String()
	}
	return ipv4.String() + "," + ipv6.String()
}

// with gives flags and others, which win.
func with(others, flags map[string]string) map[string]string {
	all := maps.Clone(flags)
	maps.Copy(all, others)
	return all
}

// parse sets named flags; a name that upstream dropped is an error at start, not a silent change.
func parse(component string, sets cliflag.NamedFlagSets, values map[string]string) error {
	fs := pflag.NewFlagSet(component, pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	return setAll(fs, values)
}

func setAll(fs *pflag.FlagSet, values map[string]string) error {
	for name, value := range values {
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("%s: flag --%s=%s: %w", fs.Name(), name, value, err)
		}
	}
	return nil
}
