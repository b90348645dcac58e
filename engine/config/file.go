package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// Level is the level that LogLevel names.
func (c *Config) Level() slog.Level { return levels[c.LogLevel] }

// Load sets the flags in fs from the YAML file at path, except those given on the command line, which
// win. A key that is no flag is an error: a misspelt key that is silently ignored costs an evening.
func Load(path string, fs *pflag.FlagSet) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(b, &values); err != nil {
		return fmt.Errorf("config %s: want a YAML map of flags to values: %w", path, err)
	}
	var errs []error
	for key, value := range values {
		flag := fs.Lookup(key)
		switch v := value.(type) {
		case string, bool, float64, int64:
			if flag == nil || key == "config" || key == "help" {
				errs = append(errs, fmt.Errorf("config %s: unknown key %q; known are %s", path, key, keys(fs)))
			} else if flag.Changed {
				continue
			} else if err := fs.Set(key, fmt.Sprint(v)); err != nil {
				errs = append(errs, fmt.Errorf("config %s: %w", path, err))
			}
		default:
			errs = append(errs, fmt.Errorf("config %s: key %q: want one value, not %T", path, key, value))
		}
	}
	return errors.Join(errs...)
}

func keys(fs *pflag.FlagSet) string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	return strings.Join(names, ", ")
}
