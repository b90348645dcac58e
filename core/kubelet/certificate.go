package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// The signer kubernetes.io/kubelet-serving wants a subject of this form.
	servingUser  = "system:node:kith"
	servingGroup = "system:nodes"

	servingSeconds = 30 * 24 * 3600
	signingTimeout = 30 * time.Second
)

// certificate is the Kubelet's serving certificate, signed by the home cluster so that its API server believes
// it. The key never leaves this process: each start asks for a new one.
type certificate struct {
	home     kubernetes.Interface
	homeREST *rest.Config
	ip       netip.Addr
	log      *slog.Logger

	mu      sync.RWMutex
	serving *tls.Certificate
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.serving == nil {
		return nil, errors.New("the cluster has not signed the serving certificate yet")
	}
	return c.serving, nil
}

// run gets a certificate and renews it when four fifths of its time are over.
func (c *certificate) run(ctx context.Context) error {
	delay, said := retryEvery, ""
	for {
		next := delay
		cert, err := c.request(ctx)
		if err == nil {
			c.mu.Lock()
			c.serving = cert
			c.mu.Unlock()
			delay, said = retryEvery, ""
			next = time.Until(cert.Leaf.NotBefore.Add(cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore) * 4 / 5))
			c.log.Debug("kubelet endpoint has its certificate", "until", cert.Leaf.NotAfter)
		} else if ctx.Err() == nil {
			if err.Error() != said {
				c.log.Warn("no serving certificate for the kubelet endpoint; logs and exec of offloaded pods need it", "err", err)
			}
			said = err.Error()
			delay = min(2*delay, time.Minute)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(next, retryEvery)):
		}
	}
}

func (c *certificate) request(ctx context.Context) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, signingTimeout)
	defer cancel()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: servingUser, Organization: []string{servingGroup}},
		IPAddresses: []net.IP{c.ip.AsSlice()},
	}, private)
	if err != nil {
		return nil, err
	}

	// The signer wants the request to come from the node it names.
	asNode := rest.CopyConfig(c.homeREST)
	asNode.Impersonate = rest.ImpersonationConfig{UserName: servingUser, Groups: []string{servingGroup, "system:authenticated"}}
	client, err := kubernetes.NewForConfig(asNode)
	if err != nil {
		return nil, err
	}
	seconds := int32(servingSeconds)
	csr, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kith-kubelet-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeletServingSignerName,
			ExpirationSeconds: &seconds,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for a certificate as %s: %w", servingUser, err)
	}
	defer c.clear(csr.Name)
	signed, err := c.approve(ctx, csr)
	if err != nil {
		return nil, err
	}
	return load(signed, private)
}

// approve approves the request and waits for the signature.
func (c *certificate) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	csrs := c.home.CertificatesV1().CertificateSigningRequests()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "Kith", Message: "kithd serves the virtual nodes of this cluster",
	})
	if _, err := csrs.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approve certificate request %s: %w", csr.Name, err)
	}
	var signed []byte
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		now, err := csrs.Get(ctx, csr.Name, metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		for _, cond := range now.Status.Conditions {
			if cond.Type == certificatesv1.CertificateFailed || cond.Type == certificatesv1.CertificateDenied {
				return false, fmt.Errorf("%s: %s", cond.Reason, cond.Message)
			}
		}
		signed = now.Status.Certificate
		return len(signed) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("certificate request %s is not signed (does the controller manager run?): %w", csr.Name, err)
	}
	return signed, nil
}

// clear takes the request away; the controller manager would keep it for an hour.
func (c *certificate) clear(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := c.home.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		c.log.Debug("certificate request stays", "name", name, "err", err)
	}
}

func load(signed []byte, private *ecdsa.PrivateKey) (*tls.Certificate, error) {
	cert := &tls.Certificate{PrivateKey: private}
	for block, rest := pem.Decode(signed); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert.Certificate = append(cert.Certificate, block.Bytes)
		}
	}
	if len(cert.Certificate) == 0 {
		return nil, errors.New("the signer answered without a certificate")
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("the signer answered with an unreadable certificate: %w", err)
	}
	cert.Leaf = leaf
	return cert, nil
}
