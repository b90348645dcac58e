package reflection

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// surroundings are the facts of the home cluster that a pod's template needs.
type surroundings struct {
	home, twin string
	// api is the service address of the home API server; the zero value when it cannot be reached from abroad.
	api netip.Addr
	// node is the address of the virtual node, which the home pod's status.hostIP tells; the zero value when not known.
	node netip.Addr
}

// adapt replaces what in a pod's template refers to the home cluster. The result must depend on its arguments only, since it is compared with
// the template that was sent before.
func adapt(pod *corev1.Pod, s surroundings, spec *corev1.PodSpec) {
	c := adaptVolumes(pod, spec)
	c.adaptFields(pod, spec)
	eachContainer(spec, func(container *corev1.Container) {
		container.Env = slices.Clone(container.Env)
		for i := range container.Env {
			adaptEnv(pod, s, &container.Env[i])
		}
	})
	if s.api.IsValid() {
		leadHome(s.api.String(), spec)
	}
	adaptSearches(s, spec)
}

// adaptEnv resolves what a pod may know of itself as it is at home. status.podIP is left to the peer, who gives it: it is the same
// everywhere, and is not known before its containers start.
func adaptEnv(pod *corev1.Pod, s surroundings, env *corev1.EnvVar) {
	if env.ValueFrom == nil || env.ValueFrom.FieldRef == nil {
		return
	}
	var value string
	switch env.ValueFrom.FieldRef.FieldPath {
	case "metadata.namespace":
		value = pod.Namespace
	case "metadata.uid":
		value = string(pod.UID)
	case "spec.nodeName":
		value = pod.Spec.NodeName
	case "spec.serviceAccountName":
		value = pod.Spec.ServiceAccountName
	case "status.hostIP", "status.hostIPs":
		if !s.node.IsValid() {
			return
		}
		value = s.node.String()
	default:
		return
	}
	env.Value, env.ValueFrom = value, nil
}

// leadHome sets the variables KUBERNETES_SERVICE_HOST etc. that pods at home have (k8s.io/kubernetes/pkg/kubelet/envvars), so that clients find
// the home API server. The peer's kubelet adds those of its own cluster only where they are not set. They come first, since other variables
// may refer to them.
func leadHome(api string, spec *corev1.PodSpec) {
	const port = "443"
	url := "tcp://" + net.JoinHostPort(api, port)
	usual := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: api}, {Name: "KUBERNETES_SERVICE_PORT", Value: port}, {Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
		{Name: "KUBERNETES_PORT", Value: url}, {Name: "KUBERNETES_PORT_443_TCP", Value: url}, {Name: "KUBERNETES_PORT_443_TCP_PROTO", Value: "tcp"},
		{Name: "KUBERNETES_PORT_443_TCP_PORT", Value: port}, {Name: "KUBERNETES_PORT_443_TCP_ADDR", Value: api},
	}
	eachContainer(spec, func(c *corev1.Container) {
		missing := slices.DeleteFunc(slices.Clone(usual), func(env corev1.EnvVar) bool {
			return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == env.Name })
		})
		c.Env = append(missing, c.Env...)
	})
}

// adaptSearches: a search list that names the home namespace means its twin.
func adaptSearches(s surroundings, spec *corev1.PodSpec) {
	if spec.DNSConfig == nil || s.home == s.twin {
		return
	}
	config := spec.DNSConfig.DeepCopy()
	for i, search := range config.Searches {
		if rest, ok := strings.CutPrefix(search, s.home+".svc"); ok && (rest == "" || rest[0] == '.') {
			config.Searches[i] = s.twin + ".svc" + rest
		}
	}
	spec.DNSConfig = config
}
