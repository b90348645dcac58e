// Package join has nodes join a cluster of the built-in engine, in the way and in the words of kubeadm, so that what is known of the one
// holds for the other: bootstrap tokens (Secrets of type bootstrap.kubernetes.io/token in kube-system), discovery by the signed
// ConfigMap cluster-info in kube-public with the hash of the authority's key, and certificates by CertificateSigningRequests (TLS
// bootstrapping). No protocol of our own is spoken.
//
// The server's side is Objects, Approve and the tokens; the node's is Join. What differs from kubeadm is who approves: a certificate for the
// name of a node that is there is given to that node alone, so that who has a token can become a new node, and no old one.
package join

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrap "k8s.io/cluster-bootstrap/token/util"
)

// Names of objects.
const (
	settingsName = "kith-cluster" // ConfigMap in kube-system
	infoName     = bootstrapapi.ConfigMapClusterInfo
	nodeUser     = "system:node:"
	nodeGroup    = "system:nodes"
	joinGroup    = bootstrapapi.BootstrapDefaultGroup // of who comes with a token
)

// Cluster is what all nodes of a cluster must know to be one of them. The server writes it, nodes read it.
type Cluster struct {
	Pods, Services netip.Prefix
	DNS            netip.Addr
	DNSPort        int
	// Server is the name of the server's node, ServerIP that node's address, and ServerLAN where it is on the LAN, which may be the same.
	Server              string
	ServerIP, ServerLAN netip.Addr
}

func (c Cluster) data() map[string]string {
	return map[string]string{
		"cluster-cidr": c.Pods.String(), "service-cidr": c.Services.String(), "cluster-dns": c.DNS.String(), "dns-port": fmt.Sprint(c.DNSPort),
		"server-node": c.Server, "server-node-ip": c.ServerIP.String(), "server-lan-ip": c.ServerLAN.String(),
	}
}

// ReadCluster asks the cluster.
func ReadCluster(ctx context.Context, client kubernetes.Interface) (c Cluster, err error) {
	m, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, settingsName, metav1.GetOptions{})
	if err != nil {
		return c, err
	}
	return parseCluster(m.Data)
}

func parseCluster(data map[string]string) (c Cluster, err error) {
	wrong := func(key string, e error) {
		if e != nil && err == nil {
			err = fmt.Errorf("ConfigMap %s/%s, key %s: %w", metav1.NamespaceSystem, settingsName, key, e)
		}
	}
	prefix := func(key string) netip.Prefix {
		p, err := netip.ParsePrefix(data[key])
		wrong(key, err)
		return p
	}
	addr := func(key string) netip.Addr {
		a, err := netip.ParseAddr(data[key])
		wrong(key, err)
		return a
	}
	c = Cluster{
		Pods: prefix("cluster-cidr"), Services: prefix("service-cidr"), DNS: addr("cluster-dns"),
		Server: data["server-node"], ServerIP: addr("server-node-ip"), ServerLAN: addr("server-lan-ip"),
	}
	_, e := fmt.Sscan(data["dns-port"], &c.DNSPort)
	wrong("dns-port", e)
	return c, err
}

// Token is a bootstrap token, ID.SECRET. The ID is no secret: it names the Secret.
type Token struct{ ID, Secret string }

// ParseToken reads a token as `token create` prints it.
func ParseToken(s string) (Token, error) {
	s = strings.TrimSpace(s)
	if !bootstrap.IsValidBootstrapToken(s) {
		return Token{}, fmt.Errorf("this is no token: want 6 and 16 lower-case letters and digits with a dot between, as kith-k8s token create prints it on the server")
	}
	id, secret, _ := strings.Cut(s, ".")
	return Token{id, secret}, nil
}

func (t Token) String() string { return bootstrap.TokenFromIDAndSecret(t.ID, t.Secret) }
