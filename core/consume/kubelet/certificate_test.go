package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// signer approves nothing by itself, and signs, or says no, once a request is approved.
func signer(t *testing.T, no string) *fake.Clientset {
	t.Helper()
	ca, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	home := fake.NewClientset()
	home.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked := a.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		asked.Name, asked.UID = asked.GenerateName+"abcde", "uid"
		return true, asked, home.Tracker().Add(asked)
	})
	home.PrependReactor("update", "certificatesigningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked := a.(clienttesting.UpdateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		if a.GetSubresource() != "approval" || asked.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
			t.Errorf("%s %+v", a.GetSubresource(), asked.Status)
		}
		if no != "" {
			asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: no,
			})
			return true, asked, home.Tracker().Update(a.GetResource(), asked, "")
		}
		block, _ := pem.Decode(asked.Spec.Request)
		request, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Error(err)
			return true, nil, err
		}
		leaf := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: request.Subject, IPAddresses: request.IPAddresses, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, leaf, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}}, request.PublicKey, ca)
		if err != nil {
			t.Error(err)
			return true, nil, err
		}
		asked.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		return true, asked, home.Tracker().Update(a.GetResource(), asked, "")
	})
	return home
}

func TestTheCertificateIsSignedByTheClusterAndItsRequestDoesNotStay(t *testing.T) {
	for _, no := range []string{"", "subject is not that of a node"} {
		home := signer(t, no)
		c := &certificate{home: home, asNode: home, ip: netip.MustParseAddr("10.42.255.1"), log: slog.New(slog.DiscardHandler)}
		cert, err := c.request(t.Context())
		switch {
		case no != "":
			if err == nil || !strings.Contains(err.Error(), no) || !strings.Contains(err.Error(), "kith-kubelet-abcde is not signed") {
				t.Errorf("refused: %v", err)
			}
		case err != nil:
			t.Fatal(err)
		case cert.Leaf.Subject.CommonName != servingUser || cert.Leaf.Subject.Organization[0] != servingGroup || cert.Leaf.IPAddresses[0].String() != "10.42.255.1":
			t.Errorf("%+v", cert.Leaf)
		}
		if left, err := home.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
			t.Errorf("%d requests are left, %v", len(left.Items), err)
		}
	}
}
