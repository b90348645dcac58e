package config

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags are the flags of kithd that are keys, and --config.
type Flags struct {
	path string
	set  []setFlag
}

type setFlag struct {
	key    Key
	values []string
}

// Actions are what kithd does when its command line is understood.
type Actions struct {
	Run   func(context.Context, Config) error
	Check func(dir string) error // check-data, with a data directory
	// Doctor and BugReport are what kith has done by the program of kithd where none runs. The configuration is theirs to load: that it
	// cannot be used is one of the things to be told.
	Doctor    func(ctx context.Context, load func() (Config, error), out io.Writer) error
	BugReport func(ctx context.Context, load func() (Config, error), why string, out io.Writer) error
}

// Command is the command line of kithd.
func Command(version string, do Actions) *cobra.Command {
	c := &cobra.Command{
		Use:   "kithd",
		Short: "Turn the laptops around you into one Kubernetes",
		Long: `kithd runs this laptop's own small Kubernetes, finds other laptops, asks them for
resources when you say so, and has your pods run on those that accepted.

It is configured by ` + DefaultPath + `, see kith.yaml(5); every key there is also a flag, which wins
over the file. It runs as root, usually as a system service. The command kith talks to it: root may,
and the members of the group kith. The group is root's equal, as that of Docker is: its members can
start pods with all power over this laptop. Put only those into it who may become root here.`,
		Example: "  kithd --config /etc/kith/config.yaml\n  kithd --engine kubeconfig --kubeconfig /root/.kube/config",
		Args:    cobra.NoArgs, Version: version, SilenceUsage: true, SilenceErrors: true,
	}
	flags := AddFlags(c.Flags())
	c.AddCommand(checkConfig(), checkData(do.Check), alone("doctor", "Look at this machine where no kithd runs, for kith doctor", `Look at this machine: ports, ranges of addresses, the LAN and its firewall, the kernel, the disk. What is found comes as lines of JSON.
kith doctor calls this where no kithd answers, and shows it for people; see kith-doctor(1). Nothing is changed.`,
		func(ctx context.Context, load func() (Config, error), _ string, out io.Writer) error {
			return do.Doctor(ctx, load, out)
		}),
		alone("bugreport", "Write the bug report of a machine where no kithd runs, for kith bugreport", `Write to standard output the archive of what this machine says without a running kithd. kith bugreport calls this where no kithd
answers, and asks before it keeps it; see kith-bugreport(1).`, do.BugReport))
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetHelpCommand(&cobra.Command{Use: "help", Hidden: true})
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		return do.Run(c.Context(), cfg)
	}
	return c
}

// alone is a command that needs no running kithd.
func alone(name, short, text string, do func(ctx context.Context, load func() (Config, error), why string, out io.Writer) error) *cobra.Command {
	flags := new(Flags)
	why := ""
	c := &cobra.Command{
		Use: name, Short: short, Long: text, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return do(c.Context(), flags.Load, why, c.OutOrStdout()) },
	}
	if name == "bugreport" {
		c.Flags().StringVar(&why, "why", "", "why the running kithd does not make the report, for its reader")
	}
	flags.AddPath(c.Flags())
	return c
}

func checkConfig() *cobra.Command {
	flags := new(Flags)
	c := &cobra.Command{
		Use:   "check-config",
		Short: "Say whether kithd understands its configuration, and change nothing",
		Long: `Say whether kithd understands its configuration. It exits with 0 if it does; else with 78, and says which key or value it does not
understand, and what is allowed there.`,
		Example: "  kithd check-config\n  kithd check-config --config ./config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := flags.Load()
			return err
		},
	}
	flags.AddPath(c.Flags())
	return c
}

func checkData(check func(dir string) error) *cobra.Command {
	flags := new(Flags)
	c := &cobra.Command{
		Use:   "check-data [DIR]",
		Short: "Say whether this kithd may start on what is stored, and change nothing",
		Long: `Say whether this kithd may start on what is stored in DIR, the configured dataDir if none is given. It exits with 0 if it may. If
a newer Kith, or another Kubernetes than this one can take over from, wrote there last, it exits with 1 and says why, and what to
do. Nothing is changed. kithd asks itself the same before each start, and exits with 78 if it may not.`,
		Example: "  kithd check-data\n  kithd check-data /mnt/backup/var/lib/kith",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return check(args[0])
			}
			cfg, err := flags.Load()
			if err != nil {
				return err
			}
			return check(cfg.DataDir)
		},
	}
	flags.AddPath(c.Flags())
	return c
}

// AddFlags adds --config and one flag per key to flags. Load the configuration after flags are parsed.
func AddFlags(flags *pflag.FlagSet) *Flags {
	f := new(Flags)
	f.AddPath(flags)
	for _, k := range keys {
		flag := flags.VarPF(&flagValue{f, k}, k.Flag(), "", k.usage())
		if k.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	return f
}

// AddPath adds --config alone.
func (f *Flags) AddPath(flags *pflag.FlagSet) {
	flags.StringVar(&f.path, "config", "", fmt.Sprintf("configuration file (default %s, which need not exist)", DefaultPath))
}

// Load gives the configuration: the flags' words over the file's over the defaults.
func (f *Flags) Load() (Config, error) {
	path := f.path
	if path == "" && exists(DefaultPath) {
		path = DefaultPath
	}
	return load(path, f.apply, os.Hostname)
}

func (f *Flags) apply(c *Config) error {
	for _, s := range f.set {
		if err := s.key.apply(c, s.values); err != nil {
			return fmt.Errorf("--%s: %w", s.key.Flag(), err)
		}
	}
	return nil
}

func (k Key) usage() string {
	def := k.Default
	if !k.Follows && !k.Bool && !k.Number && !k.List {
		def = fmt.Sprintf("%q", def)
	}
	if k.List && def == "" {
		return k.Help
	}
	return fmt.Sprintf("%s (default %s)", k.Help, def)
}

// flagValue is one key as a pflag.Value. It keeps words only: they apply after the file.
type flagValue struct {
	flags *Flags
	key   Key
}

func (v *flagValue) String() string { return "" }

func (v *flagValue) Type() string {
	switch {
	case v.key.List:
		return "list"
	case v.key.Number:
		return "number"
	case v.key.Bool:
		return "bool"
	}
	return "text"
}

func (v *flagValue) Set(text string) error {
	values := []string{text}
	if v.key.List && !v.key.Verbatim {
		values = slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
	}
	i := slices.IndexFunc(v.flags.set, func(s setFlag) bool { return s.key.Name == v.key.Name })
	if i < 0 {
		i = len(v.flags.set)
		v.flags.set = append(v.flags.set, setFlag{key: v.key})
	}
	if v.key.List { // a list may be given in several flags
		values = append(v.flags.set[i].values, values...)
	}
	v.flags.set[i].values = values
	return v.key.apply(new(Config), values)
}
