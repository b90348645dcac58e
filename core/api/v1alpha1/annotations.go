package v1alpha1

import (
	"slices"
	"strings"
)

// travelling are the annotations with a prefix that go abroad with a pod: tools of its owner read them there too, or they
// restrict it.
var travelling = []string{
	"kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container", "kubectl.kubernetes.io/restartedAt",
	"container.apparmor.security.beta.kubernetes.io/",
}

// powerful annotations ask the container runtime or a network plugin for devices and host networks.
var powerful = []string{
	"cdi.k8s.io/", "io.containerd.", "io.kubernetes.cri-o.", "k8s.v1.cni.cncf.io/", "v1.multus-cni.io/",
}

// AnnotationTravels reports whether an annotation of a pod goes abroad with it: those without a prefix, which Kubernetes
// leaves to users, and a few others. The rest are words to programs of the home cluster; the peer has programs of its own
// that could take them for its owner's.
func AnnotationTravels(key string) bool {
	return !strings.Contains(key, "/") && !AnnotationOfPower(key) || slices.ContainsFunc(travelling, func(t string) bool {
		return key == t || strings.HasSuffix(t, "/") && strings.HasPrefix(key, t)
	})
}

// AnnotationOfPower reports whether an annotation gives a pod power over the host, so that it is taken at the pod security
// level privileged only.
func AnnotationOfPower(key string) bool {
	return slices.ContainsFunc(powerful, func(p string) bool { return strings.HasPrefix(key, p) })
}
