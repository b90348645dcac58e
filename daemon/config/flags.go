package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

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

// AddFlags adds --config and one flag per key to flags. Load the configuration after flags are parsed.
func AddFlags(flags *pflag.FlagSet) *Flags {
	f := new(Flags)
	flags.StringVar(&f.path, "config", "", fmt.Sprintf("configuration file (default %s, which need not exist)", DefaultPath))
	for _, k := range keys {
		flag := flags.VarPF(&flagValue{f, k}, k.Flag(), "", k.usage())
		if k.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	return f
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
