package join

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

func tlsOf(t *testing.T, dir string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

func hashOf(t *testing.T, pem string) string {
	t.Helper()
	all, err := cert.ParseCertsPEM([]byte(pem))
	if err != nil {
		t.Fatal(err)
	}
	return Hash(all[0])
}

type asked struct {
	user, group, signer, name, org string
	usages                         []certificatesv1.KeyUsage
	dns                            []string
	ips                            []net.IP
	key                            *ecdsa.PrivateKey
}

func (a asked) request(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	if a.key == nil {
		a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	text, err := cert.MakeCSR(a.key, &pkix.Name{CommonName: a.name, Organization: []string{a.org}}, a.dns, a.ips)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Username: a.user, Groups: []string{a.group, "system:authenticated"}, SignerName: a.signer, Usages: a.usages, Request: text,
	}}
}

// TestWhoGetsACertificate: who has a token can become a new node, a node keeps what it is, and all else is nobody's.
func TestWhoGetsACertificate(t *testing.T) {
	const client, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	forClient := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	forServing := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	ip := net.ParseIP
	at := func(name string, addresses ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return n
	}
	nodes := []*corev1.Node{at("corp-1", "192.0.2.2"), at("corp-2", "192.0.2.3"), at("liar", "192.0.2.9", "192.0.2.2"), at("kubernetes.default.svc", "192.0.2.7"),
		at("server", "10.43.0.1", "127.0.0.1", "169.254.1.1", "192.0.2.1", "10.42.0.7", "::ffff:10.43.0.1")}
	server := Server{Names: []string{"localhost", "corp-1", "kubernetes", "cluster.example"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.43.0.0/16")}}
	joining := asked{user: "system:bootstrap:abcdef", group: joinGroup, signer: client, name: "system:node:new", org: "system:nodes", usages: forClient}
	node := asked{user: "system:node:corp-2", group: "system:nodes", signer: client, name: "system:node:corp-2", org: "system:nodes", usages: forClient}
	serves := asked{user: "system:node:corp-2", group: "system:nodes", signer: serving, name: "system:node:corp-2", org: "system:nodes", usages: forServing,
		dns: []string{"corp-2"}, ips: []net.IP{ip("192.0.2.3")}}
	lies := asked{user: "system:node:server", group: "system:nodes", signer: serving, name: "system:node:server", org: "system:nodes", usages: forServing}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from    asked
		change  func(*asked)
		granted []*certificatesv1.CertificateSigningRequest
		want    string // approve, deny and why, or nothing
	}{
		"a new node":                        {joining, func(*asked) {}, nil, "approve"},
		"the name of a node that there is":  {joining, func(a *asked) { a.name = "system:node:corp-1" }, nil, "deny there is a node corp-1"},
		"a name that another is just given": {joining, func(*asked) {}, []*certificatesv1.CertificateSigningRequest{joining.request(t)}, "deny another node is joining as new"},
		"the same node, once more": {joining, func(a *asked) { a.key = key }, func() []*certificatesv1.CertificateSigningRequest {
			same := joining
			same.key = key
			return []*certificatesv1.CertificateSigningRequest{same.request(t)}
		}(), "approve"},
		"an administrator by a token":      {joining, func(a *asked) { a.org = "system:masters" }, nil, ""},
		"a user by a token":                {joining, func(a *asked) { a.name = "root" }, nil, ""},
		"for all signers":                  {joining, func(a *asked) { a.signer = certificatesv1.KubeAPIServerClientSignerName }, nil, ""},
		"to serve, by a token":             {joining, func(a *asked) { a.signer, a.usages, a.dns = serving, forServing, []string{"new"} }, nil, ""},
		"with a name to serve by":          {joining, func(a *asked) { a.dns = []string{"new"} }, nil, ""},
		"to serve with a client's":         {joining, func(a *asked) { a.usages = append(forClient, certificatesv1.UsageServerAuth) }, nil, ""},
		"nobody":                           {joining, func(a *asked) { a.group = "system:unauthenticated" }, nil, ""},
		"a user called like a node":        {node, func(a *asked) { a.group = "developers" }, nil, ""},
		"a node's next":                    {node, func(*asked) {}, nil, "approve"},
		"another node's":                   {node, func(a *asked) { a.name = "system:node:corp-1" }, nil, "deny a node asks for its own certificates alone"},
		"a new name, by a node":            {node, func(a *asked) { a.name = "system:node:new" }, nil, "deny a node asks for its own certificates alone"},
		"a node that was deleted":          {node, func(a *asked) { a.user, a.name = "system:node:gone", "system:node:gone" }, nil, "deny node gone was deleted"},
		"to serve":                         {serves, func(*asked) {}, nil, "approve"},
		"to serve at the server's address": {serves, func(a *asked) { a.ips = append(a.ips, ip("192.0.2.2")) }, nil, ""},
		"to serve at no node's address":    {serves, func(a *asked) { a.ips = []net.IP{ip("10.43.0.1")} }, nil, ""},
		"to serve by another name":         {serves, func(a *asked) { a.dns = []string{"corp-2", "kubernetes"} }, nil, ""},
		"to serve as another node":         {serves, func(a *asked) { a.name = "system:node:corp-1" }, nil, ""},
		"to serve where it says to be, too": {serves, func(a *asked) {
			a.user, a.name, a.dns, a.ips = "system:node:liar", "system:node:liar", nil, []net.IP{ip("192.0.2.2")}
		}, nil, ""},
		"by a name of the API server's": {joining, func(a *asked) { a.name = "system:node:kubernetes.default.svc.cluster.local" }, nil, "deny kubernetes.default.svc.cluster.local is what others call"},
		"by another name of it":         {joining, func(a *asked) { a.name = "system:node:cluster.example" }, nil, "deny cluster.example is what others call"},
		"by everybody's own name":       {joining, func(a *asked) { a.name = "system:node:localhost" }, nil, "deny localhost is what others call"},
		"by a service's name":           {joining, func(a *asked) { a.name = "system:node:db.shop.svc" }, nil, "deny db.shop.svc is what others call"},
		"as a peer that comes later":    {joining, func(a *asked) { a.name = "system:node:kith-carol" }, nil, "deny kith-carol is what others call"},
		"to serve by the API server's name": {serves, func(a *asked) {
			a.user, a.name, a.dns, a.ips = "system:node:kubernetes.default.svc", "system:node:kubernetes.default.svc", []string{"kubernetes.default.svc"}, []net.IP{ip("192.0.2.7")}
		}, nil, ""},
		"to serve as the API server's service":   {lies, func(a *asked) { a.ips = []net.IP{ip("10.43.0.1")} }, nil, ""},
		"to serve as it, IPv4 in IPv6":           {lies, func(a *asked) { a.ips = []net.IP{ip("::ffff:10.43.0.1")} }, nil, ""},
		"to serve as the API server at the LAN":  {lies, func(a *asked) { a.ips = []net.IP{ip("192.0.2.1")} }, nil, ""},
		"to serve as the API server at loopback": {lies, func(a *asked) { a.ips = []net.IP{ip("127.0.0.1")} }, nil, ""},
		"to serve link-local":                    {lies, func(a *asked) { a.ips = []net.IP{ip("169.254.1.1")} }, nil, ""},
		"to serve as a pod":                      {lies, func(a *asked) { a.ips = []net.IP{ip("10.42.0.7")} }, nil, ""},
		"to serve, as kithd's virtual kubelet":   {serves, func(a *asked) { a.user, a.name, a.dns = "system:node:kith", "system:node:kith", nil }, nil, ""},
	} {
		a := c.from
		c.change(&a)
		v := decide(a.request(t), server, nodes, c.granted)
		got := ""
		if v.approve {
			got = "approve"
		} else if v.deny {
			got = "deny " + v.why
		}
		if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if v := decide(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte("x"), Groups: []string{joinGroup}}}, server, nodes, nil); v != (verdict{}) {
		t.Errorf("what is no request: %+v", v)
	}
}

func TestANameIsFreeAgainAfterAMinute(t *testing.T) {
	now := time.Now()
	one := func(age time.Duration, kind certificatesv1.RequestConditionType, signer string) certificatesv1.CertificateSigningRequest {
		return certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: age.String(), CreationTimestamp: metav1.NewTime(now.Add(-age))},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer},
			Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: kind}}},
		}
	}
	const client = certificatesv1.KubeAPIServerClientKubeletSignerName
	got := lately([]certificatesv1.CertificateSigningRequest{
		one(time.Second, certificatesv1.CertificateApproved, client), one(2*time.Second, certificatesv1.CertificateDenied, client),
		one(3*time.Second, certificatesv1.CertificateApproved, certificatesv1.KubeletServingSignerName), one(2*time.Minute, certificatesv1.CertificateApproved, client),
	}, now)
	if len(got) != 1 || got[0].Name != "1s" {
		t.Errorf("%v", got)
	}
}
