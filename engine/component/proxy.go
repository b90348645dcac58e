package component

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	"sigs.k8s.io/knftables"
)

// Proxy is what kube-proxy is told.
//
// It is not told which traffic is that of pods (detect-local-mode ClusterCIDR without cluster-cidr; getLocalDetectors in
// k8s.io/kubernetes/cmd/kube-proxy/app makes that the no-op detector, and pkg/proxy/nftables writes no rule then). With a range it would
// have everybody outside of it, so all guests, ask for services by an address of this node: the guest that answers would not see who asks,
// and in the tunnel the address would be nobody's. What follows:
//   - Pods, the owner's and guests, ask by their own addresses, as the owner's did with the range.
//   - This host's own questions are masqueraded by package network, where their source would mean nothing to who answers.
//   - A pod that its own service leads back to itself is recognised by its address (the set hairpin-connections), with or without.
//   - Node ports, external and load balancer addresses with externalTrafficPolicy Cluster are always masqueraded, with or without.
//   - With externalTrafficPolicy Local a pod here that asks for the service by such an address reaches endpoints on this node alone,
//     as the LAN does, and no longer those at peers; by the service's own address it reaches all.
type Proxy struct {
	PKI
	NodeName string
	As       string // whose kubeconfig it has, such as proxy
	Expose   bool   // open node ports on all IPv4 addresses of the laptop
	NodeIPv6 netip.Addr
}

// Run keeps the nftables rules of services until ctx ends, and leaves them: pods go on using them.
func (p Proxy) Run(ctx context.Context) error {
	o := proxy.NewOptions()
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	o.AddFlags(fs)
	// Node ports on the node's address alone, which no LAN reaches; or on all addresses that the laptop has, whichever these are
	// at the moment: kube-proxy would not hear of new ones. Package network says from which devices.
	nodePorts := "primary"
	if p.Expose {
		nodePorts = "0.0.0.0/0"
		if p.NodeIPv6.IsValid() { // without one of its family kube-proxy would take all
			nodePorts += "," + netip.PrefixFrom(p.NodeIPv6, 128).String()
		}
	}
	err := setAll(fs, map[string]string{
		"kubeconfig":        p.kubeconfig(p.As),
		"proxy-mode":        "nftables",
		"hostname-override": p.NodeName,
		// By what it answers there, kube-proxy says at the health check ports of services (externalTrafficPolicy Local) whether this node
		// takes their traffic; without it they would not answer. It says when rules were written last, and nothing else.
		"healthz-bind-address": "127.0.0.1:10256",
		"nodeport-addresses":   nodePorts,
		// The kernel's connection tracking belongs to the laptop's owner; in a namespace it is read-only besides.
		"conntrack-max-per-core":            "0",
		"conntrack-min":                     "0",
		"conntrack-tcp-timeout-established": "0s",
		"conntrack-tcp-timeout-close-wait":  "0s",
		"conntrack-udp-timeout":             "0s",
		"conntrack-udp-timeout-stream":      "0s",
	})
	if err != nil {
		return err
	}
	if err := o.Complete(fs); err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	// No metrics of its own, which would be those of the whole process (one registry), and every component's configuration with them, for
	// whoever is on this machine. Upstream's check takes that for a mistake (it wants an address, though empty means off), so it comes after.
	if err := fs.Lookup("metrics-port").Value.Set("0"); err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	if err := o.Complete(fs); err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	if err := tables(ctx); err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done(): // its own loop does not look at the context
		return nil
	}
}

// tables makes the proxy's nftables tables, should they not be there: it looks into them before it makes them, and takes it for
// an error that they are missing, as they are on every first start and after every boot. A kernel without IPv6 has but one.
func tables(ctx context.Context) error {
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		nft, err := knftables.New(family, "kube-proxy")
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		tx.Add(&knftables.Table{})
		if err := nft.Run(ctx, tx); err != nil && family == knftables.IPv4Family {
			return err
		}
	}
	return nil
}
