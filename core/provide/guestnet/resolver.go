package guestnet

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Resolver is the DNS server of guests, one that answers by whose pod asks: it resolves names in the namespace shop as in the namespace shop of
// the guest's home. With the zero value guests get dnsPolicy ClusterFirst, and the kubelet does the rest.
type Resolver struct {
	Server netip.Addr // service address of the cluster's DNS
	Domain string     // of the cluster
}

// What the API server takes of a pod's dnsConfig; the kubelet cuts longer lists of its own in the same way.
const (
	maxServers      = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

// Resolve sets the DNS servers and the search list in the spec of a guest. Left to the kubelet, dnsPolicy Default would give it the servers and
// search list of the laptop, and so those of the LAN; the other policies would add that search list, too. Here a guest with Default uses the
// cluster's DNS without a search list; one with None is left as it is.
func (r Resolver) Resolve(spec *corev1.PodSpec, home string) {
	policy := spec.DNSPolicy
	switch {
	case policy == corev1.DNSNone:
		return
	case !r.Server.IsValid() || home == "":
		spec.DNSPolicy = corev1.DNSClusterFirst
		return
	}
	config := &corev1.PodDNSConfig{Nameservers: []string{r.Server.String()}}
	if policy != corev1.DNSDefault {
		config.Searches = []string{home + ".svc." + r.Domain, "svc." + r.Domain, r.Domain}
		config.Options = []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}
	}
	if own := spec.DNSConfig; own != nil {
		config.Nameservers = unique(append(config.Nameservers, own.Nameservers...))
		config.Searches = unique(append(config.Searches, own.Searches...))
		config.Options = slices.DeleteFunc(config.Options, func(o corev1.PodDNSConfigOption) bool {
			return slices.ContainsFunc(own.Options, func(of corev1.PodDNSConfigOption) bool { return of.Name == o.Name })
		})
		config.Options = append(config.Options, own.Options...)
	}
	config.Nameservers = config.Nameservers[:min(len(config.Nameservers), maxServers)]
	config.Searches = config.Searches[:min(len(config.Searches), maxSearches)]
	length := 0
	for i, search := range config.Searches {
		if length += len(search) + 1; length > maxSearchLength {
			config.Searches = config.Searches[:i]
			break
		}
	}
	spec.DNSPolicy, spec.DNSConfig = corev1.DNSNone, config
}

// unique drops what was there before.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
