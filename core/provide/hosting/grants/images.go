package grants

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// ImageRules say where a consumer's images may come from. Names are all that is looked at here; that no pull reaches a
// private address, whatever a name resolves to and wherever a registry sends it on, is the engine's matter.
type ImageRules struct {
	Registries []string // ImageRules.Registries
	Present    []string // ImageRules.Present
	Offline    bool     // the internet is denied
	Home       bool     // home may send its own, and the engine asks it
	Rate       int64    // bytes per second from home, and to other peers of it; 0: no bound
	Hands      bool     // other peers of home may have its images from here
}

func imageRulesOf(policy *v1alpha1.SharingPolicy) ImageRules {
	rules := ImageRules{Offline: !sharing.Internet(policy), Home: true, Hands: true}
	if policy != nil && policy.Spec.Images != nil {
		i := policy.Spec.Images
		rules.Registries, rules.Present, rules.Home = i.Registries, i.Present, i.FromHome != v1alpha1.AccessDeny
		rules.Hands = i.ToPeers != v1alpha1.AccessDeny
		if i.Rate != "" {
			rate, err := resource.ParseQuantity(i.Rate)
			rules.Rate, rules.Home = rate.Value(), rules.Home && err == nil && rate.Sign() > 0 // what bounds nothing that is known lets nothing in
		}
	}
	return rules
}

// Annotation is AnnotationRegistries.
func (r ImageRules) Annotation() string {
	all := slices.Clone(r.Registries)
	if !r.Offline {
		all = append(all, "*")
	}
	if r.Home {
		all = append(all, v1alpha1.RegistryHome)
	}
	return strings.Join(all, ",")
}

// Refuse says why an image may not be had, or nil. What is no name of an image the kubelet refuses.
func (r ImageRules) Refuse(field, image string) *Refusal {
	name, err := reference.ParseDockerRef(image)
	if err != nil || r.here(name) {
		return nil
	}
	domain := reference.Domain(name)
	listed := slices.Contains(r.Registries, domain) || slices.Contains(r.Registries, "http://"+domain)
	switch {
	case listed, r.Home && !r.Offline && domain == builtHere:
		return nil
	case nearby(domain):
		return Refused(ReasonImage, "%s: %s is in the provider's own network; its owner may list it in spec.images.registries of the SharingPolicy", field, domain)
	case r.Offline:
		return Refused(ReasonImage, "%s: this provider lets guests pull from listed registries only, and %s is not listed (spec.images of the SharingPolicy)", field, domain)
	}
	return nil
}

// Pull gives the pull policy of an image. An image that is here came for somebody, perhaps with a password: whoever
// only names it has to show his registry that he may have it, like KEP-2535. The digest says as much as the image itself.
func (r ImageRules) Pull(image string, asked corev1.PullPolicy) corev1.PullPolicy {
	name, err := reference.ParseDockerRef(image)
	if err != nil {
		return corev1.PullAlways
	}
	if _, exact := name.(reference.Digested); exact || r.here(name) {
		return asked
	}
	return corev1.PullAlways
}

// here: the owner lets guests use it as it is here. A name without a tag means latest.
func (r ImageRules) here(name reference.Named) bool {
	return slices.ContainsFunc(r.Present, func(pattern string) bool {
		return wild(pattern, name.String()) || wild(pattern, reference.FamiliarString(name))
	})
}

// wild says whether text is pattern, in which each * stands for anything.
func wild(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}

// builtHere is the registry that podman and buildah put into the names of what they build; none answers there.
const builtHere = "localhost"

// nearby: the name says that the registry is no public one.
func nearby(domain string) bool {
	host := strings.ToLower(domain)
	if at := strings.LastIndexByte(host, ':'); at >= 0 {
		host = host[:at]
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		addr = addr.Unmap()
		return !addr.IsGlobalUnicast() || addr.IsPrivate() || cgnat.Contains(addr)
	}
	if !strings.Contains(host, ".") {
		return true // localhost, or one word that a search domain of the LAN completes
	}
	return slices.ContainsFunc(localDomains, func(d string) bool { return strings.HasSuffix(host, d) })
}

var cgnat = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598

// localDomains are never on the internet (RFC 6761, 6762, 8375; .internal is reserved by ICANN), or as good as never.
var localDomains = []string{".localhost", ".local", ".home.arpa", ".internal", ".lan", ".home"}
