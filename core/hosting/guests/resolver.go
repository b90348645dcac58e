package guests

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Resolver is where guests ask for names, when it is a server that knows whose pod asks: by it shop is the namespace shop of
// their home. The zero value leaves what a guest is told to the kubelet.
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

// resolve says in the spec of a guest which servers it asks and how it completes names. Left to the kubelet, the policy
// Default would give it the servers and search list of the laptop, and so those of the LAN, and every other the search list
// still. A guest with Default asks the cluster's DNS too and completes nothing; one with None has said all itself.
func (r Resolver) resolve(spec *corev1.PodSpec, home string) {
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
