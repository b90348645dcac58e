package config

import (
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/net/netplan"
)

var (
	label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	group = regexp.MustCompile(`^[a-zA-Z_][-a-zA-Z0-9_.]{0,30}\$?$`)
)

func isLabel(s string) bool  { return label.MatchString(s) }
func notEmpty(s string) bool { return s != "" }
func isGroup(s string) bool  { return s == "" || group.MatchString(s) }
func isImages(s string) bool { return s != "" && len(s) <= 255 && !strings.ContainsAny(s, " \t\n") }
func isShare(s string) bool  { return s == "" || api.CheckPercent("share", s) == nil }
func isPath(s string) bool   { return filepath.IsAbs(s) && !strings.ContainsRune(s, 0) }
func isPattern(s string) bool {
	_, err := path.Match(s, "")
	return s != "" && len(s) <= 32 && err == nil
}

func isHostPort(s string) bool {
	a, err := netip.ParseAddrPort(s)
	return err == nil && a.Port() != 0
}

// isNamespaced takes the name of an object with its namespace.
func isNamespaced(s string) bool {
	namespace, name, both := strings.Cut(s, "/")
	return both && label.MatchString(namespace) && isDomain(name)
}

// isDomain takes a DNS name (RFC 1123, 253 bytes), with or without the dot of the root.
func isDomain(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !label.MatchString(part) {
			return false
		}
	}
	return true
}

func parseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err == nil && (!p.Addr().Is4() || p != p.Masked() || p.Bits() < 8 || p.Bits() > 24) {
		err = errNo
	}
	return p, err
}

// labelOf makes a DNS label of a host name: its first part, lower case, other characters as dashes.
func labelOf(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, host)
	if name = strings.Trim(name[:min(len(name), 63)], "-"); name == "" {
		return "kith"
	}
	return name
}

// check looks at what no single key shows.
func (c *Config) check() error {
	if c.PodRange.Overlaps(c.ServiceRange) {
		return api.Invalid("serviceRange", c.ServiceRange.String(), fmt.Sprintf("outside podRange, which is %s", c.PodRange))
	}
	if c.PodRange.Bits() > 20 {
		return api.Invalid("podRange", c.PodRange.String(), "/20 or larger: it has a /24 for each node, and one for Kith's own addresses")
	}
	if c.PodRange.Bits() < 12 {
		return api.Invalid("podRange", c.PodRange.String(), "/12 or smaller: peers find no addresses for a larger one")
	}
	for _, pool := range c.AliasPools {
		if !netplan.Private(pool) {
			return api.Invalid("aliasPools", pool.String(), "of private use (RFC 1918, RFC 6598), which peers look for")
		}
	}
	for _, own := range []netip.Prefix{c.PodRange, c.ServiceRange} {
		for _, pool := range c.AliasPools {
			// A pool around the own ranges is fine: the gateway leaves them out.
			if own.Overlaps(pool) && own.Bits() <= pool.Bits() {
				return api.Invalid("aliasPools", pool.String(), fmt.Sprintf("outside %s, which this cluster uses itself", own))
			}
		}
	}
	if c.IPv6 && c.Engine != EngineBuiltin && c.Engine != EngineAuto {
		return api.Invalid("ipv6", "true", "left out with engine "+c.Engine+": which families its pods have is that cluster's own configuration")
	}
	if c.Expose == ExposeLAN && (c.Engine == EngineKubeconfig || c.Engine == EngineNone) {
		return api.Invalid("expose", c.Expose, "left out with engine "+c.Engine+": another cluster opens its ports itself")
	}
	if err := c.checkEngine(); err != nil {
		return err
	}
	if c.Lease != "" && c.IdentitySecret == "" {
		return api.Invalid("identitySecret", "", "set where lease is: whoever takes over must be who the other was")
	}
	if c.PodName != "" && c.Lease == "" {
		return api.Invalid("podName", c.PodName, "left out unless lease is set")
	}
	if c.MetricsAddress != "" && !c.MetricsPublic && !netip.MustParseAddrPort(c.MetricsAddress).Addr().IsLoopback() {
		return api.Invalid("metricsAddress", c.MetricsAddress, "on a loopback address (127.0.0.1, [::1]) unless metricsPublic is true")
	}
	if c.FrontDoorPort == c.PeerAPIPort {
		return api.Invalid("frontDoorPort", fmt.Sprint(c.FrontDoorPort), "another than peerAPIPort")
	}
	if len(c.Socket) > 107 {
		return api.Invalid("socket", c.Socket, "at most 107 bytes long, as unix(7) has it")
	}
	return nil
}

// checkEngine looks for keys of another engine than the one that is set. With engine auto it may become any.
func (c *Config) checkEngine() error {
	for _, one := range []struct {
		key, value string
		engines    []string
	}{
		{"kubeconfig", c.Kubeconfig, []string{EngineKubeconfig}}, {"kubeconfigContext", c.KubeconfigContext, []string{EngineKubeconfig}},
		{"nodeName", c.NodeName, []string{EngineKubeconfig, EngineK3s}}, {"kubeletAddress", addressText(c.KubeletAddress), []string{EngineKubeconfig, EngineK3s}},
		{"k3sBinary", c.K3sBinary, []string{EngineK3s}},
		{"lease", c.Lease, []string{EngineKubeconfig}}, {"identitySecret", c.IdentitySecret, []string{EngineKubeconfig}},
	} {
		if one.value != "" && c.Engine != EngineAuto && !slices.Contains(one.engines, c.Engine) {
			return api.Invalid(one.key, one.value, "left out unless engine is "+strings.Join(one.engines, " or "))
		}
	}
	return nil
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
