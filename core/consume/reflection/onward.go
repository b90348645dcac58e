package reflection

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/kinds"
)

// A namespace here may be another cluster's, whose pods go on to a provider of this one. What is in it, that cluster wrote, and it means there what it
// means at the provider: so addresses, and the Service of the API server, are passed on as they are.

// unhost takes out of the spec of such a pod what this cluster's hosting put there for a guest that runs here: the cluster's DNS, and where the
// addresses of services are told. The provider's does the same for its own.
func unhost(spec *corev1.PodSpec, dns netip.Addr) {
	eachContainer(spec, func(c *corev1.Container) {
		c.EnvFrom = slices.DeleteFunc(slices.Clone(c.EnvFrom), func(from corev1.EnvFromSource) bool {
			links := from.ConfigMapRef != nil && from.ConfigMapRef.Name == kinds.ServiceLinks
			if links {
				spec.EnableServiceLinks = nil
			}
			return links
		})
	})
	config := spec.DNSConfig
	if spec.DNSPolicy != corev1.DNSNone || config == nil || len(config.Nameservers) == 0 || config.Nameservers[0] != dns.String() {
		return
	}
	config = config.DeepCopy()
	spec.DNSPolicy = corev1.DNSDefault
	config.Nameservers = config.Nameservers[1:]
	if s := config.Searches; len(s) > 2 && s[1] == "svc."+s[2] && strings.HasSuffix(s[0], "."+s[1]) {
		spec.DNSPolicy, config.Searches = corev1.DNSClusterFirst, s[3:]
		config.Options = slices.DeleteFunc(config.Options, func(o corev1.PodDNSConfigOption) bool { return o.Name == "ndots" && o.Value != nil && *o.Value == "5" })
	}
	if spec.DNSConfig = config; len(config.Nameservers)+len(config.Searches)+len(config.Options) == 0 {
		spec.DNSConfig = nil
	}
}

// keepAddresses has a Service that goes on keep the addresses that it has at its home.
func keepAddresses(home, abroad kinds.Object) {
	annotations := abroad.GetAnnotations()
	for _, key := range []string{kinds.AnnotationClusterIP, kinds.AnnotationClusterIPv6} {
		delete(annotations, key)
		if said := home.GetAnnotations()[key]; said != "" {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[key] = said
		}
	}
	abroad.SetAnnotations(annotations)
}
