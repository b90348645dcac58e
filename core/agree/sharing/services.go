package sharing

import (
	"path"
	"slices"
	"strings"

	"kith.dev/core/api/v1alpha1"
)

// Services are the namespaces in which services are in common with the peers under a policy, by name or pattern.
func Services(policy *v1alpha1.SharingPolicy) []string {
	if policy == nil {
		return nil
	}
	return policy.Spec.Services
}

// Common reports whether one of the patterns of each side means the namespace: services of it are in common when both owners say so.
func Common(namespace string, ours, theirs []string) bool {
	return means(ours, namespace) && means(theirs, namespace)
}

func means(patterns []string, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if strings.HasPrefix(namespace, "kube-") && strings.HasPrefix(p, "*") {
			return false
		}
		ok, err := path.Match(p, namespace) // there are no slashes, and no other special characters in what the schema lets in
		return err == nil && ok
	})
}

// CheckServices reports what of a peer's patterns cannot be meant.
func CheckServices(patterns []string) bool {
	return len(patterns) <= maxPatterns && !slices.ContainsFunc(patterns, func(p string) bool {
		return p == "" || len(p) > 63 || strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789-*") != "" || strings.Count(p, "*") > 4
	})
}

// maxPatterns is as many as a policy may have.
const maxPatterns = 64
