package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"kith.dev/test/lab"
)

func upCommand(name *string) *cobra.Command {
	var (
		o    lab.Options
		lan  string
		sets []string
		cmd  string
		k3s  []string

		clusters []string
	)
	c := &cobra.Command{
		Use:   "up [N | NAME…]",
		Short: "Make laptops: alice, bob and so on, N in all; and clusters",
		Long: `Makes the lab, or adds what is missing of it: running up again with a larger N adds laptops, and boots those that
are off. It returns when each laptop's Kubernetes node is Ready, and says how long that took.`,
		Example: `  kith-lab up                          # alice and bob
  kith-lab up 5
  kith-lab up --lan link-local         # no IPv4, and no router: what two laptops at one cable have
  kith-lab up 50 --no-engine           # without Kubernetes: for discovery and pairing
  kith-lab up --lab other --set logLevel=debug --image build/images/echo.tar
  kith-lab up alice --cluster corp=3   # a laptop, and a cluster of three nodes: corp-1, the server, corp-2 and corp-3
  kith-lab up 3 --daemon "/bin/sleep infinity" --no-engine   # without Kith`,
		RunE: func(c *cobra.Command, args []string) error {
			o.Name = *name
			var err error
			if o.LAN, err = lab.ParseFamily(lan); err != nil {
				return err
			}
			if o.Laptops, o.Names, err = which(args); err != nil {
				return err
			}
			for _, text := range clusters {
				one, err := lab.ParseCluster(text)
				if err != nil {
					return err
				}
				o.Clusters = append(o.Clusters, one)
			}
			if o.Config, err = parseSets(sets); err != nil {
				return err
			}
			o.Daemon = strings.Fields(cmd)
			o.Engines = map[string]string{}
			for _, name := range k3s {
				o.Engines[name] = lab.K3s
			}
			w := &waiting{out: c.ErrOrStderr(), now: map[string]string{}}
			o.Progress = w.tell
			begin := time.Now()
			defer w.start()()
			l, err := lab.Up(c.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "lab %s: %s, %.1f s\n", l.Name(), counted(l), time.Since(begin).Seconds())
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&lan, "lan", "ipv4", "addresses of a new LAN: ipv4, ipv6, link-local or dual")
	f.BoolVar(&o.NoEngine, "no-engine", false, "new laptops have no Kubernetes, so that many fit")
	f.StringArrayVar(&clusters, "cluster", nil, "`NAME=NODES`: a cluster of several nodes without kithd, such as corp=3; nodes that are there stay (repeatable)")
	f.StringSliceVar(&k3s, "k3s", nil, "new laptops by these `names` have kith-k8s in the place of K3s, or the program that KITH_K3S names")
	f.BoolVar(&o.NoWait, "no-wait", false, "do not wait until the laptops are ready")
	f.StringArrayVar(&sets, "set", nil, "`key=value` for new laptops' /etc/kith/config.yaml; the value is YAML (repeatable)")
	f.StringArrayVar(&o.Images, "image", nil, "image `archive` that new laptops have from their first start (repeatable)")
	f.StringVar(&o.Bin, "bin", "", "`directory` of Kith's binaries (default: that of kith-lab)")
	f.StringVar(&cmd, "daemon", "", "`command` new laptops run instead of kithd")
	return c
}

// which laptops are meant: a number, or names.
func which(args []string) (n int, names []string, err error) {
	if len(args) == 0 || args[0] == "" || args[0][0] < '0' || args[0][0] > '9' {
		return 0, args, nil
	}
	n, err = strconv.Atoi(args[0])
	if err != nil || n < 1 || n > lab.Most || len(args) > 1 {
		return 0, nil, fmt.Errorf("number of laptops %q: use 1 to %d, or names", strings.Join(args, " "), lab.Most)
	}
	return n, nil, nil
}

// counted says what a lab has: 2 laptops, 3 nodes.
func counted(l *lab.Lab) string {
	var laptops, nodes int
	for _, p := range l.Laptops() {
		if p.IsNode() {
			nodes++
		} else {
			laptops++
		}
	}
	switch {
	case nodes == 0:
		return fmt.Sprintf("%d laptops", laptops)
	case laptops == 0:
		return fmt.Sprintf("%d nodes", nodes)
	}
	return fmt.Sprintf("%d laptops, %d nodes", laptops, nodes)
}

func parseSets(sets []string) (map[string]any, error) {
	m := map[string]any{}
	for _, s := range sets {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--set %q: use key=value", s)
		}
		var value any
		if err := yaml.Unmarshal([]byte(v), &value); err != nil {
			return nil, fmt.Errorf("--set %s: the value is not YAML: %w", k, err)
		}
		m[k] = value
	}
	return m, nil
}

// waiting shows what is waited for, when it takes more than a second.
type waiting struct {
	out io.Writer
	mu  sync.Mutex
	now map[string]string
}

func (w *waiting) tell(laptop, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now[laptop] = what
}

func (w *waiting) start() (stop func()) {
	done := make(chan struct{})
	begin := time.Now()
	go func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		shown := ""
		for {
			select {
			case <-done:
				return
			case <-t.C:
				if s := w.line(); s != shown {
					shown = s
					fmt.Fprintf(w.out, "%3.0f s  %s\n", time.Since(begin).Seconds(), s)
				}
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// line says for each step who is at it, names shortened to a count when many are.
func (w *waiting) line() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := map[string][]string{}
	for n, what := range w.now {
		who[what] = append(who[what], n)
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(who)) {
		names := who[what]
		slices.Sort(names)
		s := strings.Join(names, ", ")
		if len(names) > 4 {
			s = fmt.Sprintf("%d laptops", len(names))
		}
		parts = append(parts, s+": "+what)
	}
	return strings.Join(parts, "; ")
}

func downCommand(name *string) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove the lab with everything in it, disks included",
		Long: `Ends every process of the lab and removes its namespaces, cgroups and disks. It goes by what it finds, so it also
cleans up after a crash.`,
		Example: `  kith-lab down
  kith-lab down --all`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			names := []string{*name}
			if all {
				var err error
				if names, err = lab.Labs(); err != nil {
					return err
				}
			}
			for _, n := range names {
				begin := time.Now()
				if err := lab.Down(c.Context(), n); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "lab %s is gone, %.1f s\n", n, time.Since(begin).Seconds())
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all labs of this machine")
	return c
}

func imageCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "image NAME|all TAR…",
		Short: "Import image archives into a laptop's containerd",
		Example: `  kith-lab image alice build/images/echo.tar
  kith-lab image all build/images/*.tar`,
		Args: cobra.MinimumNArgs(2),
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			for _, p := range some(l, args[0]) {
				for _, tar := range args[1:] {
					if err := p.ImportImage(c.Context(), tar); err != nil {
						return err
					}
					fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", p.Name(), filepath.Base(tar))
				}
			}
			return nil
		}),
	}
}

// some is one laptop, or all.
func some(l *lab.Lab, name string) []*lab.Laptop {
	if name == "all" {
		return l.Laptops()
	}
	return []*lab.Laptop{l.Laptop(name)}
}
