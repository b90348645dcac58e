package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

const (
	// The signer kubernetes.io/kubelet-serving wants a subject of this form.
	servingUser  = "system:node:kith"
	servingGroup = "system:nodes"

	servingSeconds = 30 * 24 * 3600
	signingTimeout = 30 * time.Second
)

// certificate is the Kubelet's serving certificate, signed by the home cluster so that its API server believes
// it. The key never leaves this process: each start asks for a new one. It is no certificate.Manager of client-go, which wants somebody
// else to approve what it asks for, and leaves its requests behind.
type certificate struct {
	home   kubernetes.Interface
	asNode kubernetes.Interface // home, as the node that the certificate names: so the signer wants it
	ip     netip.Addr
	log    *slog.Logger

	serving atomic.Pointer[tls.Certificate]
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := c.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, errors.New("the cluster has not signed the serving certificate yet")
}

// run gets a certificate and renews it when four fifths of its time are over.
func (c *certificate) run(ctx context.Context) error {
	growing := wait.Backoff{Duration: retryEvery, Factor: 2, Steps: 100, Cap: time.Minute}
	delay, said := growing, ""
	for {
		var next time.Duration
		cert, err := c.request(ctx)
		if err == nil {
			c.serving.Store(cert)
			delay, said = growing, ""
			next = time.Until(cert.Leaf.NotBefore.Add(cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore) * 4 / 5))
			c.log.Debug("kubelet endpoint has its certificate", "until", cert.Leaf.NotAfter)
		} else if ctx.Err() == nil {
			if err.Error() != said {
				c.log.Warn("no serving certificate for the kubelet endpoint; logs and exec of offloaded pods need it", "err", err)
			}
			said = err.Error()
			next = delay.Step()
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
	key, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return nil, err
	}
	request, err := certutil.MakeCSR(private, &pkix.Name{CommonName: servingUser, Organization: []string{servingGroup}}, nil, []net.IP{c.ip.AsSlice()})
	if err != nil {
		return nil, err
	}
	asked, err := c.asNode.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kith-kubelet-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeletServingSignerName, ExpirationSeconds: new(int32(servingSeconds)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for a certificate as %s: %w", servingUser, err)
	}
	defer c.clear(asked.Name)
	asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "Kith", Message: "kithd serves the virtual nodes of this cluster",
	})
	if _, err := c.home.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, asked.Name, asked, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approve certificate request %s: %w", asked.Name, err)
	}
	signed, err := csr.WaitForCertificate(ctx, c.home, asked.Name, asked.UID)
	if err != nil {
		return nil, fmt.Errorf("certificate request %s is not signed (does the controller manager run?): %w", asked.Name, err)
	}
	cert, err := tls.X509KeyPair(signed, key)
	if err != nil {
		return nil, fmt.Errorf("the signer answered with a certificate that cannot be used: %w", err)
	}
	return &cert, nil
}

// clear takes the request away; the controller manager would keep it for an hour.
func (c *certificate) clear(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := c.home.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		c.log.Debug("certificate request stays", "name", name, "err", err)
	}
}
