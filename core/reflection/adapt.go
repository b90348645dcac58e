package reflection

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// surroundings are what a pod's template has to say of home.
type surroundings struct {
	home, twin string
	// api is the home API server as the peer reaches it; the zero value when it does not.
	api netip.AddrPort
	// node is the address of the virtual node, which the home pod's status.hostIP tells; the zero value when not known.
	node netip.Addr
}

// adapt changes what in a pod's template leads to home or tells of it. It must depend on nothing else: what it makes is
// compared with what was sent.
func adapt(pod *corev1.Pod, s surroundings, spec *corev1.PodSpec) {
	c := adaptVolumes(pod, spec)
	c.adaptFields(pod, spec)
	eachContainer(spec, func(container *corev1.Container) {
		container.Env = slices.Clone(container.Env)
		for i := range container.Env {
			adaptEnv(pod, s, &container.Env[i])
		}
	})
	if s.api.IsValid() && slices.ContainsFunc(c.tokens, func(t token) bool { return t.audience == "" }) {
		leadHome(s, spec)
	}
	adaptSearches(s, spec)
}

// adaptEnv resolves what a pod may know of itself as it is at home. status.podIP is left to the peer: it is the address the
// pod can bind to, and no other is known before its containers start.
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

// apiNames stand in the certificate of the home API server.
var apiNames = []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local"}

// leadHome points clients that find their API server in the usual way to that of home. The kubelet abroad adds the same
// variables for its own cluster, except those that are set already.
func leadHome(s surroundings, spec *corev1.PodSpec) {
	host, port := apiNames[0], strconv.Itoa(int(s.api.Port()))
	eachContainer(spec, func(c *corev1.Container) {
		for _, env := range []corev1.EnvVar{
			{Name: "KUBERNETES_SERVICE_HOST", Value: host},
			{Name: "KUBERNETES_SERVICE_PORT", Value: port},
			{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
		} {
			if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == env.Name }) {
				c.Env = append(c.Env, env)
			}
		}
	})
	spec.HostAliases = append(slices.Clone(spec.HostAliases), corev1.HostAlias{IP: s.api.Addr().String(), Hostnames: apiNames})
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
