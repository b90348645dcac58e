package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// streamPort is that of K3s' own streaming server, which belongs to a node as its kubelet's port does.
const streamPort = "10010"

// entry is what is known of an address of a node.
type entry struct{ node, kubeletPort string }

// routes knows whose each address is. Of two nodes with the same address, whichever was seen last has it, and nothing is ever forgotten: so it
// is in K3s.
type routes struct {
	own string // name of the server's node

	mu        sync.Mutex
	addresses map[netip.Addr]entry
	kubelet   string // where the own node's kubelet listens
}

// see notes a node's addresses. A Hostname is none of them, also where it is an address.
func (r *routes) see(node *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addresses == nil {
		r.addresses = map[netip.Addr]entry{}
	}
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue
		}
		r.addresses[ip] = entry{node.Name, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))}
		if node.Name == r.own && a.Type == corev1.NodeInternalIP {
			r.kubelet = a.Address
		}
	}
}

// route gives the address to dial for what the API server asks for, or why that would take a tunnel that nobody keeps.
func (r *routes) route(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	node, kubelet := host, true // a name is a node's, and is only asked for its kubelet
	if ip, err := netip.ParseAddr(host); err == nil {
		known := r.addresses[ip]
		node, kubelet = known.node, known.node != "" && (port == known.kubeletPort || port == streamPort)
	}
	switch {
	case !kubelet:
		return address, nil // a pod, a service, another port of a node: dialled as it is
	case node != r.own:
		return "", fmt.Errorf("failed to find Session for client %s", node)
	case r.kubelet == "":
		return "", fmt.Errorf("node %s has said no address yet", node)
	}
	return net.JoinHostPort(r.kubelet, port), nil
}
