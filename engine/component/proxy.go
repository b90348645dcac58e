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
type Proxy struct {
	PKI
	NodeName    string
	ClusterCIDR netip.Prefix
	Expose      bool // open node ports on all addresses of the laptop
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
	}
	err := setAll(fs, map[string]string{
		"kubeconfig":           p.kubeconfig("proxy"),
		"proxy-mode":           "nftables",
		"cluster-cidr":         p.ClusterCIDR.String(),
		"hostname-override":    p.NodeName,
		"healthz-bind-address": "127.0.0.1:10256",
		"metrics-bind-address": "127.0.0.1:10249",
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
