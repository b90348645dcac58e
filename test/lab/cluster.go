package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Cluster is a cluster of several nodes, without kithd: a server and agents (kith-k8s server, kith-k8s agent), machines of the lab like laptops.
type Cluster struct {
	// Name, up to 12 lower-case letters and digits; the nodes are called corp-1, which is the server, corp-2 and so on.
	Name string
	// Nodes is how many, 1 to MostNodes.
	Nodes int
}

// MostNodes is how many nodes all clusters of a lab have together at most: their addresses are 192.0.2.2 to .10.
const MostNodes = 9

// ParseCluster reads corp=3.
func ParseCluster(text string) (c Cluster, err error) {
	name, number, _ := strings.Cut(text, "=")
	if _, err := fmt.Sscanf(number, "%d", &c.Nodes); err != nil || fmt.Sprint(c.Nodes) != number {
		return c, fmt.Errorf("cluster %q: use NAME=NODES, such as corp=3", text)
	}
	c.Name = name
	return c, c.check()
}

func (c Cluster) check() error {
	if !clusterName.MatchString(c.Name) {
		return fmt.Errorf("cluster name %q: use up to 12 lower-case letters and digits, a letter first", c.Name)
	}
	if c.Nodes < 1 || c.Nodes > MostNodes {
		return fmt.Errorf("cluster %s of %d nodes: use 1 to %d", c.Name, c.Nodes, MostNodes)
	}
	return nil
}

var (
	clusterName = regexp.MustCompile(`^[a-z][a-z0-9]{0,11}$`)
	nodeName    = regexp.MustCompile(`^[a-z][a-z0-9]{0,11}-[1-9]$`)
)

// NodeName is the name of the i-th node, counted from 1, which is the server.
func (c Cluster) NodeName(i int) string { return fmt.Sprintf("%s-%d", c.Name, i) }

// isNode reports whether a machine is a cluster's node, by its name.
func isNode(name string) bool { return nodeName.MatchString(name) }

// IsNode reports whether the machine is a node of a cluster, and no laptop: it has no kithd.
func (p *Laptop) IsNode() bool { return isNode(p.name) }

// serverOf is the server of the cluster whose node has that name.
func (l *Lab) serverOf(node string) *Laptop {
	cluster, _, _ := strings.Cut(node, "-")
	return l.Laptop(cluster + "-1")
}

// A node's index, which its network card's address is made of, is behind those of laptops.
const nodeIndex = 200

// freeNode is an index that no node has.
func (l *Lab) freeNode() (int, error) {
	taken := map[int]bool{}
	for _, p := range l.Laptops() {
		if r, err := p.record(); err == nil {
			taken[r.Index] = true
		}
	}
	for i := nodeIndex + 1; i <= nodeIndex+MostNodes; i++ {
		if !taken[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the lab has %d nodes of clusters already, and no address for another", MostNodes)
}

func nodeAddress(index int) netip.Addr { return lanAddress(index - nodeIndex + 1) }

// makeServers makes the clusters' first nodes, under the lab's lock.
func (l *Lab) makeServers(ctx context.Context, o Options) error {
	for _, c := range o.Clusters {
		err := l.ensureNode(ctx, c.NodeName(1), o, func(self netip.Addr) ([]string, error) {
			return []string{"server", "--agents", "--node-ip=" + self.String()}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makeAgents has the other nodes join, once the server of their cluster is ready.
func (l *Lab) makeAgents(ctx context.Context, o Options) error {
	for _, c := range o.Clusters {
		if c.Nodes == 1 {
			continue
		}
		server := l.Laptop(c.NodeName(1))
		if err := server.WaitReady(ctx, o.Progress); err != nil {
			return err
		}
		join, err := server.joinCommand(ctx)
		if err != nil {
			return err
		}
		unlock, err := l.lock(ctx)
		if err != nil {
			return err
		}
		for i := 2; i <= c.Nodes; i++ {
			p := l.Laptop(c.NodeName(i))
			err = l.ensureNode(ctx, p.name, o, func(self netip.Addr) ([]string, error) {
				return join.agent(p, server, self)
			})
			if err != nil {
				break
			}
		}
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// ensureNode makes a node that is not there, and boots one that is off. The arguments are those of kith-k8s.
func (l *Lab) ensureNode(ctx context.Context, name string, o Options, args func(self netip.Addr) ([]string, error)) error {
	p := l.Laptop(name)
	if _, err := os.Stat(p.recordFile()); errors.Is(err, os.ErrNotExist) {
		index, err := l.freeNode()
		if err != nil {
			return err
		}
		if err := p.installDisk(o); err != nil {
			return err
		}
		argv, err := args(nodeAddress(index))
		if err != nil {
			return err
		}
		daemon := append([]string{filepath.Join(l.bin, "kith-k8s"), argv[0], "--node-name=" + name}, argv[1:]...)
		r := record{Index: index, Address: nodeAddress(index), Daemon: daemon, Env: o.Env, Engine: true}
		if err := writeJSON(p.recordFile(), r); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return p.ensure(ctx, 0, o)
}

// joining is what a server's join command says.
type joining struct{ server, token, hash string }

func (p *Laptop) joinCommand(ctx context.Context) (j joining, err error) {
	out, _, err := p.Exec(ctx, "kith-k8s", "token", "create", "--ttl=15m", "--print-join-command")
	if err != nil {
		return j, err
	}
	words := strings.Fields(out)
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "--server":
			j.server = words[i+1]
		case "--token":
			j.token = words[i+1]
		case "--ca-cert-hash":
			j.hash = words[i+1]
		}
	}
	if j.server == "" || j.token == "" || j.hash == "" {
		return j, fmt.Errorf("%s prints no join command: %s", p.name, out)
	}
	return j, nil
}

// agent puts what a new node joins with on its disk, and an administrator's kubeconfig beside it, for kubectl in the lab.
func (j joining) agent(p, server *Laptop, self netip.Addr) ([]string, error) {
	admin, err := os.ReadFile(filepath.Join(server.disk, strings.TrimPrefix(Kubeconfig, "/var/")))
	if err != nil {
		return nil, err
	}
	there := strings.TrimPrefix(j.server, "https://")
	admin = []byte(strings.Replace(string(admin), "127.0.0.1:6443", there, 1))
	const token = "/var/lib/kith/join-token"
	for path, text := range map[string][]byte{token: []byte(j.token + "\n"), Kubeconfig: admin} {
		if err := os.WriteFile(filepath.Join(p.disk, strings.TrimPrefix(path, "/var/")), text, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{"agent", "--server=" + j.server, "--token-file=" + token, "--ca-cert-hash=" + j.hash, "--node-ip=" + self.String()}, nil
}
