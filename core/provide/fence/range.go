package fence

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
)

// Astray is a node or pod with addresses outside the configured range of pods. If that range is wrong, translation, routes and the fence are wrong
// too, so no guests are taken in.
type Astray struct {
	Node string       // whose pods have addresses of Has, or that Pod is on
	Pod  string       // NAMESPACE/NAME; "" where the node says so itself
	Has  netip.Prefix // IPv4
}

// String names it, as a sentence goes on.
func (a Astray) String() string {
	if a.Pod == "" {
		return fmt.Sprintf("node %s gives its pods addresses of %s (spec.podCIDR)", a.Node, a.Has)
	}
	return fmt.Sprintf("pod %s on node %s has %s", a.Pod, a.Node, a.Has.Addr())
}

// mostAstray are enough to say what is wrong.
const mostAstray = 5

// OutOfRange lists nodes and pods with addresses outside the range of pods, a few if there are many; none: the range is right. Virtual nodes
// are left out, since the addresses of their pods are peers'.
func OutOfRange(pods netip.Prefix, nodes []corev1.Node, list []corev1.Pod) (astray []Astray) {
	for i := range nodes {
		astray = append(astray, nodeOutOfRange(pods, &nodes[i])...)
	}
	for i := range list {
		if len(astray) >= mostAstray {
			return astray[:mostAstray]
		}
		astray = append(astray, podOutOfRange(pods, &list[i])...)
	}
	return astray
}

func nodeOutOfRange(pods netip.Prefix, n *corev1.Node) (astray []Astray) {
	if isVirtual(n.Name) || n.Labels["type"] == "virtual-kubelet" {
		return nil
	}
	for _, own := range podRanges(n) {
		if !pods.Contains(own.Addr()) || own.Bits() < pods.Bits() {
			astray = append(astray, Astray{Node: n.Name, Has: own})
		}
	}
	return astray
}

// podOutOfRange leaves out pods at peers, whose addresses are others'.
func podOutOfRange(pods netip.Prefix, pod *corev1.Pod) (astray []Astray) {
	if pod.Spec.HostNetwork || v1alpha1.Ended(pod.Status.Phase) || isVirtual(pod.Spec.NodeName) {
		return nil
	}
	for _, a := range podAddresses(pod) {
		if a.Is4() && !pods.Contains(a) {
			astray = append(astray, Astray{Node: pod.Spec.NodeName, Pod: pod.Namespace + "/" + pod.Name, Has: netip.PrefixFrom(a, 32)})
		}
	}
	return astray
}

func isVirtual(node string) bool { return strings.HasPrefix(node, v1alpha1.VirtualNodePrefix) }

// podRanges are those of a node's pods, of IPv4.
func podRanges(n *corev1.Node) (list []netip.Prefix) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 {
		texts = []string{n.Spec.PodCIDR}
	}
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			list = append(list, p.Masked())
		}
	}
	return list
}
