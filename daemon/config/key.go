package config

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kith.dev/core/api"
)

// Key is one thing that can be configured.
type Key struct {
	Name     string // in the file; the part before a dot is the section
	Help     string
	Allowed  string // ends the sentence "it must be …"
	Default  string // as in the file; a description in words when it follows from something else
	Follows  bool   // Default is such a description
	List     bool   // a list in the file; several flags, or (unless Verbatim) one with commas
	Verbatim bool   // a comma in an item is part of it
	Bool     bool   // true or false in the file, without quotes
	Number   bool   // a number in the file
	Zero     bool   // 0 in the file, also as a number

	set func(c *Config, values []string) error // one value, unless List; the error needs no text
	get func(c *Config) string                 // as Default
}

// Flag is the key's name as a flag of kithd: peerAPIPort is --peer-api-port.
func (k Key) Flag() string {
	var b strings.Builder
	lower := func(i int) bool { return i >= 0 && i < len(k.Name) && k.Name[i] >= 'a' && k.Name[i] <= 'z' }
	for i, r := range k.Name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && (lower(i-1) || lower(i+1)) {
				b.WriteByte('-')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Keys gives the table of all keys, for help texts and the manual page.
func Keys() []Key { return slices.Clone(keys) }

// apply sets the key in c; the error is an *api.Error that names the key, the value and what is allowed.
func (k Key) apply(c *Config, values []string) error {
	if err := k.set(c, values); err != nil {
		return api.Invalid(k.Name, strings.Join(values, ","), k.Allowed)
	}
	return nil
}

// The kinds of keys. Each makes a Key from the place of its value in a Config.

// errNo is enough of an error for a Key's set: apply says the rest.
var errNo = errors.New("not allowed")

func one[T any](name, help, allowed, follows string, at func(*Config) *T, parse func(string) (T, error), format func(T) string) Key {
	k := Key{Name: name, Help: help, Allowed: allowed, Default: follows, Follows: follows != ""}
	k.set = func(c *Config, values []string) error {
		v, err := parse(values[0])
		if err == nil {
			*at(c) = v
		}
		return err
	}
	k.get = func(c *Config) string { return format(*at(c)) }
	if !k.Follows {
		c := Default()
		k.Default = k.get(&c)
	}
	return k
}

func many[T any](name, help, allowed string, at func(*Config) *[]T, parse func(string) (T, error), format func(T) string) Key {
	k := Key{Name: name, Help: help, Allowed: allowed, List: true}
	k.set = func(c *Config, values []string) error {
		out := make([]T, 0, len(values))
		for _, value := range values {
			v, err := parse(value)
			if err != nil {
				return err
			}
			out = append(out, v)
		}
		*at(c) = out
		return nil
	}
	k.get = func(c *Config) string {
		var out []string
		for _, v := range *at(c) {
			out = append(out, format(v))
		}
		return strings.Join(out, ",")
	}
	c := Default()
	k.Default = k.get(&c)
	return k
}

func checked(check func(string) bool) func(string) (string, error) {
	return func(s string) (string, error) {
		if !check(s) {
			return "", errNo
		}
		return s, nil
	}
}

func asIs(s string) string { return s }

func text(name, help, follows string, check func(string) bool, allowed string, at func(*Config) *string) Key {
	return one(name, help, allowed, follows, at, checked(check), asIs)
}

func word(name, help string, allowed []string, at func(*Config) *string) Key {
	last := len(allowed) - 1
	return one(name, help, strings.Join(allowed[:last], ", ")+" or "+allowed[last], "", at,
		checked(func(s string) bool { return slices.Contains(allowed, s) }), asIs)
}

func file(name, help, follows string, at func(*Config) *string) Key {
	return one(name, help, "an absolute path", follows, at, checked(isPath), asIs)
}

func port(name, help, follows string, at func(*Config) *uint16) Key {
	k := one(name, help, "a port, 1 to 65535", follows, at, func(s string) (uint16, error) {
		n, err := strconv.ParseUint(s, 10, 16)
		if err == nil && n == 0 {
			err = errNo
		}
		return uint16(n), err
	}, func(n uint16) string { return strconv.Itoa(int(n)) })
	k.Number = true
	return k
}

func portOrNone(name, help string, at func(*Config) *uint16) Key {
	k := one(name, help, "a port, 1 to 65535, or 0 for none", "", at, func(s string) (uint16, error) {
		n, err := strconv.ParseUint(s, 10, 16)
		return uint16(n), err
	}, func(n uint16) string { return strconv.Itoa(int(n)) })
	k.Number = true
	return k
}

func boolean(name, help string, at func(*Config) *bool) Key {
	k := one(name, help, "true or false", "", at, func(s string) (bool, error) {
		if s != "true" && s != "false" {
			return false, errNo
		}
		return s == "true", nil
	}, strconv.FormatBool)
	k.Bool = true
	return k
}

func duration(name, help string, at func(*Config) *time.Duration) Key {
	return one(name, help, "a time from 1s to 24h, such as 90s or 10m", "", at, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err == nil && (d < time.Second || d > 24*time.Hour) {
			err = errNo
		}
		return d, err
	}, shortly)
}

// shortly writes a duration as a person would: 10m, and 0 for none.
func shortly(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// durationOrNone is for what a person decides about in the meantime: shorter than a hiccup of a network is none, nor is a month.
func durationOrNone(name, help string, at func(*Config) *time.Duration) Key {
	k := one(name, help, "a time from 10s to 720h, such as 30m or 24h, or 0", "", at, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err == nil && d != 0 && (d < 10*time.Second || d > 30*24*time.Hour) {
			err = errNo
		}
		return d, err
	}, shortly)
	k.Zero = true
	return k
}

func level(name, help string, at func(*Config) *slog.Level) Key {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	return one(name, help, "debug, info, warn or error", "", at, func(s string) (slog.Level, error) {
		l, ok := levels[s]
		if !ok {
			return 0, errNo
		}
		return l, nil
	}, func(l slog.Level) string { return strings.ToLower(l.String()) })
}

func address(name, help string, at func(*Config) *netip.Addr) Key {
	return one(name, help, "an IP address", "all", at, netip.ParseAddr, netip.Addr.String)
}

func prefix(name, help string, at func(*Config) *netip.Prefix) Key {
	return one(name, help, "an IPv4 range from /8 to /24 with no bit set behind its length, such as 10.42.0.0/16", "", at, parseRange, netip.Prefix.String)
}

func prefixes(name, help string, at func(*Config) *[]netip.Prefix) Key {
	return many(name, help, "IPv4 ranges from /8 to /24 with no bit set behind their length, such as 10.64.0.0/10", at, parseRange, netip.Prefix.String)
}

func words(name, help string, check func(string) bool, allowed string, at func(*Config) *[]string) Key {
	return many(name, help, allowed, at, checked(check), asIs)
}

// noted is a key of which it matters whether somebody set it.
func noted(k Key, at func(*Config) *bool) Key {
	set := k.set
	k.set = func(c *Config, values []string) error {
		*at(c) = true
		return set(c, values)
	}
	return k
}

// verbatim is a list whose items may have commas.
func verbatim(k Key) Key {
	k.Verbatim = true
	return k
}
