package server

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"kith.dev/engine/config"
	"kith.dev/engine/join"
	"kith.dev/engine/pki"
)

func pkiDir(c *config.Config) string { return filepath.Join(c.DataDir, "pki") }

// leaves are the certificates of a cluster. Group system:masters may do everything, also impersonate: the
// administrator, who is kithd, and the API server when it calls kubelets.
func leaves(c *config.Config) []pki.Leaf {
	client := func(name, user string, groups ...string) pki.Leaf {
		return pki.Leaf{Name: name, Authority: "ca", CommonName: user, Orgs: groups}
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	api := pki.Leaf{Name: "apiserver", Authority: "ca", CommonName: "kube-apiserver", Server: true,
		DNS: []string{"localhost", c.NodeName, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPs: []netip.Addr{loopback, c.NodeIP, c.APIServiceIP()}}
	if c.LANIP.IsValid() && c.LANIP != c.NodeIP {
		api.IPs = append(api.IPs, c.LANIP)
	}
	for _, name := range c.K3s.Names {
		if ip, err := netip.ParseAddr(name); err != nil {
			api.DNS = append(api.DNS, name)
		} else if !slices.Contains(api.IPs, ip) {
			api.IPs = append(api.IPs, ip)
		}
	}
	return []pki.Leaf{
		api,
		{Name: "kubelet-serving", Authority: "ca", CommonName: "system:node:" + c.NodeName, Orgs: []string{"system:nodes"}, Server: true,
			DNS: []string{c.NodeName}, IPs: []netip.Addr{loopback, c.NodeIP}},
		client("admin", "kith:admin", "system:masters"),
		client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
		client("kubelet", "system:node:"+c.NodeName, "system:nodes"),
		client("controller-manager", "system:kube-controller-manager"),
		client("scheduler", "system:kube-scheduler"),
		client("proxy", "system:kube-proxy"),
		client("dns", dnsUser),
		{Name: "front-proxy-client", Authority: "front-proxy-ca", CommonName: "front-proxy-client"},
	}
}

// itself is what no other node may be taken for.
func itself(c *config.Config) join.Server {
	api := leaves(c)[0]
	return join.Server{Names: api.DNS, Addrs: api.IPs, Ranges: []netip.Prefix{c.ClusterCIDR, c.ServiceCIDR}}
}

// certificates makes what is missing or about to end, and the kubeconfigs.
func certificates(c *config.Config) (renewed []string, err error) {
	dir := pkiDir(c)
	if renewed, err = pki.Ensure(dir, leaves(c), time.Now()); err != nil {
		return nil, err
	}
	if err := pki.EnsureKey(dir, "service-account"); err != nil {
		return nil, fmt.Errorf("key of service accounts: %w", err)
	}
	url := fmt.Sprintf("https://127.0.0.1:%d", c.Port)
	for _, name := range []string{"admin", "kubelet", "controller-manager", "scheduler", "proxy", "dns"} {
		if err := pki.WriteKubeconfig(filepath.Join(dir, name+".kubeconfig"), dir, name, url); err != nil {
			return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
	}
	if err := pki.EmbedKubeconfig(c.WriteKubeconfig, dir, "admin", url); err != nil {
		return nil, fmt.Errorf("write-kubeconfig %s: %w", c.WriteKubeconfig, err)
	}
	if mode := c.K3s.KubeconfigMode; mode != 0 {
		if err := os.Chmod(c.WriteKubeconfig, mode); err != nil {
			return nil, err
		}
	}
	return renewed, nil
}

// keepCertificates renews while the server runs. All who use them reload the files.
func (s *server) keepCertificates(ctx context.Context) error {
	tick := time.NewTicker(6 * time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		renewed, err := certificates(s.config)
		switch {
		case err != nil:
			s.log.Error("cannot renew certificates", "err", err)
		case len(renewed) > 0:
			s.log.Info("renewed certificates", "names", renewed)
		}
	}
}
