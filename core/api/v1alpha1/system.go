package v1alpha1

import (
	"slices"
	"strings"
)

// SystemPrefixes begin the names of namespaces that are Kubernetes' and Kith's own: Kubernetes reserves the first for itself.
var SystemPrefixes = []string{"kube-", "kith-"}

// SystemNamespace reports whether a namespace of that name is Kubernetes' or Kith's own: its pods do not go abroad, and no user of a
// laptop works there.
func SystemNamespace(name string) bool {
	return slices.ContainsFunc(SystemPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// SystemRole reports whether a ClusterRole gives all power there is, or is one of Kubernetes' own parts: users of laptops get none of these.
func SystemRole(role string) bool {
	return role == "cluster-admin" || strings.HasPrefix(role, "system:")
}
