package sharing

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api/v1alpha1"
)

// reserved names no peer ever gets bare. Besides what Kubernetes and Kith use themselves they are where well-known add-ons
// live: whoever installs one later would hand its Secrets to the peer that has the namespace. Operators made with the usual
// tools end in -system or -operator.
var reserved = []string{
	"default", "kube", "kube-*", "kubernetes", "kubernetes-*", "kith", "kith-*", "openshift", "openshift-*", "*-system", "*-operator", "*-operators",
	"operators", "olm", "rancher-*", "cattle-*", "fleet-*",
	"cert-manager", "cert-manager-*", "vault", "vault-*", "external-secrets", "sealed-secrets", "external-dns", "keycloak", "dex", "authentik",
	"argo", "argo-*", "argocd", "argocd-*", "flux", "flux-*", "tekton-*", "jenkins", "gitlab", "gitlab-*", "gitea", "harbor", "registry",
	"monitoring", "prometheus", "prometheus-*", "grafana", "grafana-*", "loki", "tempo", "mimir", "logging", "observability", "elastic-*", "datadog", "newrelic",
	"istio", "istio-*", "linkerd", "linkerd-*", "consul", "ingress", "ingress-*", "nginx-ingress", "traefik", "haproxy-*", "contour", "projectcontour", "emissary", "kong", "gateway",
	"calico-*", "cilium", "cilium-*", "metallb", "tailscale", "longhorn", "rook-*", "openebs", "minio", "minio-*", "velero", "backup",
	"knative-*", "kubevirt", "cdi", "keda", "kyverno", "gatekeeper", "opa", "falco", "crossplane", "gpu-*", "nvidia-*",
}

// SameName reports whether peers under the policy may keep the names of their namespaces here.
func SameName(policy *v1alpha1.SharingPolicy) bool {
	return policy != nil && policy.Spec.Namespaces != nil && policy.Spec.Namespaces.SameName == v1alpha1.AccessAllow
}

// Reserved lists the patterns that no peer gets as the bare name of a namespace: Kith's own and those of all policies together, so
// that a name reserved in one is not given away under another.
func Reserved(policies []v1alpha1.SharingPolicy) []string {
	all := slices.Clone(reserved)
	for i := range policies {
		if n := policies[i].Spec.Namespaces; n != nil {
			all = append(all, n.Reserved...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isPattern: letters of names, and stars.
func isPattern(pattern string) bool {
	return pattern != "" && len(pattern) <= validation.DNS1123LabelMaxLength &&
		!strings.ContainsFunc(pattern, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-*", r) })
}

// ReservedBy gives the pattern that reserves the name; empty when none does. A * in a pattern stands for any characters.
func ReservedBy(patterns []string, name string) string {
	for _, pattern := range patterns {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return pattern
		}
	}
	return ""
}
