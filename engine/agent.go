package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kith.dev/core/base/layout"
	"kith.dev/engine/config"
	"kith.dev/engine/join"
	"kith.dev/engine/server"
)

// agentFlags are those flags of a server that are about one node.
var agentFlags = []string{"data-dir", "run-dir", "runtime-dir", "images-dir", "node-name", "node-ip", "pod-mtu", "pause-image", "cgroup-root", "expose", "log-level"}

func agentCommand() *cobra.Command {
	c := config.Default()
	c.NodeIP = netip.Addr{}
	var file, token, tokenFile string
	var o join.Options
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a node of a cluster whose server is another machine; pods outlive it",
		Long: `Joins this machine to a cluster, once, and runs its node until told to stop. The server must run with --agents, and all nodes must be on
one LAN: pods of other nodes are reached by host routes, unencrypted. To join it takes a token and the hash of the cluster's authority;
afterwards the node has a certificate of its own, which it renews, and neither is looked at any more.`,
		Example: `  kith-k8s token create --print-join-command      # on the server; run what it prints on the node, as root
  kith-k8s agent --server https://192.0.2.2:6443 --token-file /etc/kith/join-token --ca-cert-hash sha256:1234…
  kith-k8s agent                                  # from then on`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := config.Load(file, cmd.Flags()); err != nil {
					return err
				}
			}
			var err error
			if o.Token, err = readToken(token, tokenFile); err != nil {
				return err
			}
			if o.Server, err = serverURL(o.Server); err != nil {
				return err
			}
			if c.NodeIP, err = nodeIP(c.NodeIP, o.Server, c.DataDir); err != nil {
				return err
			}
			return joinAndServe(&c, o)
		},
	}
	nodeFlags(&c, cmd.Flags())
	fs := cmd.Flags()
	fs.Lookup("node-ip").Usage = "address of this machine on the LAN that all nodes are on (default: that from which it reaches the server)"
	fs.Lookup("node-ip").DefValue = ""
	fs.StringVar(&o.Server, "server", "", "the server's API, https://ADDRESS:6443; after joining, only to say that it has moved")
	fs.StringVar(&token, "token", "", "token to join with, as kith-k8s token create prints it; whoever is on this machine sees it in the list of processes, see --token-file")
	fs.StringVar(&tokenFile, "token-file", "", "file with the token to join with")
	fs.StringSliceVar(&o.Hashes, "ca-cert-hash", nil, "hash of the key of the cluster's authority, sha256:…, as kith-k8s token create --print-join-command prints it")
	fs.StringVar(&file, "config", "", "YAML file with these flags as keys; flags given here win")
	cmd.AddCommand(resetCommand())
	return cmd
}

func joinAndServe(c *config.Config, o join.Options) error {
	if err := complete(c); err != nil {
		return err
	}
	o.Version = kubernetesVersion()
	return serve(c, func(ctx context.Context, log *slog.Logger) error {
		return (&server.Agent{Config: c, Join: o, Log: log}).Run(ctx, stores())
	})
}

func resetCommand() *cobra.Command {
	c := config.Default()
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Forget the cluster that this machine joined, so that it can join again",
		Long: `Removes the node's certificates, and its routes to the others. Stop the agent first, and tell the cluster: kubectl delete node NAME on
the server. Images and the folders of volumes stay. Containers that still run end when the machine joins again, or is booted.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := complete(&c); err != nil {
				return err
			}
			return (&server.Agent{Config: &c}).Reset(stores())
		},
	}
	nodeFlags(&c, cmd.Flags(), "data-dir", "run-dir")
	return cmd
}

// nodeFlags adds those of the server's flags that are for one node, or those named.
func nodeFlags(c *config.Config, fs *pflag.FlagSet, names ...string) {
	if names == nil {
		names = agentFlags
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags(all)
	for _, name := range names {
		fs.AddFlag(all.Lookup(name))
	}
}

func readToken(given, file string) (join.Token, error) {
	switch {
	case given != "" && file != "":
		return join.Token{}, errors.New("token and token-file: give one")
	case given != "":
		return join.ParseToken(given)
	case file == "":
		return join.Token{}, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) { // as it may be once the node has joined
		return join.Token{}, nil
	}
	if err != nil {
		return join.Token{}, fmt.Errorf("token-file: %w", err)
	}
	t, err := join.ParseToken(string(b))
	if err != nil {
		return t, fmt.Errorf("token-file %s: %w", file, err)
	}
	return t, nil
}

// serverURL is a server's address as clients want it; "" stays so.
func serverURL(given string) (string, error) {
	if given == "" {
		return "", nil
	}
	u, err := url.Parse(strings.TrimSuffix(given, "/"))
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return "", fmt.Errorf("server %q: want https://ADDRESS:PORT, as kith-k8s token create --print-join-command prints it on the server", given)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "6443")
	}
	return u.String(), nil
}

// nodeIP is the address that was given, or that from which this machine reaches the server.
func nodeIP(given netip.Addr, server, dataDir string) (netip.Addr, error) {
	if !given.IsValid() {
		if server == "" {
			server = join.ServerOf(dataDir)
		}
		u, err := url.Parse(server)
		if err != nil || u.Host == "" {
			return given, errors.New("server is missing: this machine has joined no cluster yet; kith-k8s token create --print-join-command prints the whole command on the server")
		}
		c, err := net.Dial("udp4", u.Host) // sends nothing
		if err != nil {
			return given, fmt.Errorf("no way to the server %s: %w; give --node-ip", u.Host, err)
		}
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return given, err
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(given.AsSlice()) {
			return given, nil
		}
	}
	return given, fmt.Errorf("node-ip %s: this machine has no such address: want one on the LAN that all nodes are on", given)
}

// stores is who writes into the data folder.
func stores() layout.Version {
	return layout.Version{Layout: layout.Current, Kith: version, Kubernetes: layout.Minor(kubernetesVersion())}
}
