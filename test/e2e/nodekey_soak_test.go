//go:build lab && soak

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

// aNodesKey: who has taken the key of corp-2 has what corp-2 has, and nothing of other nodes, nor of the API server.
func (c *office) aNodesKey(t *testing.T) {
	kubectl(t, c.server, "-n", "shop", "create", "secret", "generic", "of-two", "--from-literal=a=b")
	kubectl(t, c.server, "-n", "shop", "create", "secret", "generic", "of-three", "--from-literal=a=b")
	for name, node := range map[string]string{"two": "corp-2", "three": "corp-3"} {
		apply(t, c.server, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: key-%s, namespace: shop, labels: {app: key}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, envFrom: [{secretRef: {name: of-%[1]s}}]}]
`, name, node))
	}
	waitReady(t, c.server, 2, "-n", "shop", "-l", "app=key")
	t.Cleanup(func() { // of nobody's controller, they would be in the way of a drain
		if out, err := c.server.Kubectl(context.WithoutCancel(t.Context()), "-n", "shop", "delete", "pods", "-l", "app=key", "--ignore-not-found"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	two := c.l.Laptop("corp-2")
	ask := func(method, path, body string) (code int, text string) {
		t.Helper()
		const key = "/var/lib/kith/k8s/kubelet/pki/kubelet-client-current.pem"
		kind := "application/json"
		if method == "PATCH" {
			kind = "application/merge-patch+json"
		}
		out, _, err := two.ExecInput(t.Context(), strings.NewReader(body), "curl", "-sk", "-m", "20", "-X", method, "--cert", key, "--key", key, "-H", "Content-Type: "+kind,
			"--data-binary", "@-", "-w", "\n%{http_code}", "https://192.0.2.2:6443"+path)
		at := strings.LastIndex(out, "\n")
		if _, scan := fmt.Sscan(out[at+1:], &code); err != nil || scan != nil {
			t.Fatalf("%s %s: %v %v %s", method, path, err, scan, out)
		}
		return code, out[:at]
	}
	for _, try := range []struct {
		method, path, body string
		code               int
	}{
		{"GET", "/api/v1/nodes/corp-2", "", 200},
		{"GET", "/api/v1/namespaces/shop/secrets/of-two", "", 200},
		{"GET", "/api/v1/namespaces/shop/secrets/of-three", "", 403},
		{"GET", "/api/v1/namespaces/shop/secrets", "", 403},
		{"GET", "/api/v1/namespaces/kube-system/secrets", "", 403},
		{"GET", "/api/v1/secrets?watch=true", "", 403},
		{"POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[]}}`, 403},
		{"POST", "/api/v1/namespaces/shop/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"mine"},"spec":{"nodeName":"corp-3","containers":[{"name":"c","image":"x"}]}}`, 403},
		{"PATCH", "/api/v1/nodes/corp-3", `{"metadata":{"labels":{"a":"b"}}}`, 403},
		{"PATCH", "/api/v1/nodes/corp-3/status", `{"status":{"addresses":[]}}`, 403},
		{"PATCH", "/api/v1/nodes/corp-2", `{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`, 403},
		{"DELETE", "/api/v1/nodes/corp-3", "", 403},
		{"PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kith:node", `{"roleRef":{"name":"cluster-admin"}}`, 403},
	} {
		if code, text := ask(try.method, try.path, try.body); code != try.code {
			t.Errorf("%s %s: %d, want %d\n%.400s", try.method, try.path, code, try.code, text)
		}
	}

	const client, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	as := func(name string, dns []string, ips []net.IP, org, signer string, usage certificatesv1.KeyUsage) string {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text, err := cert.MakeCSR(key, &pkix.Name{CommonName: name, Organization: []string{org}}, dns, ips)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(&certificatesv1.CertificateSigningRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "taken-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Request: text, SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage}},
		})
		if err != nil {
			t.Fatal(err)
		}
		code, answer := ask("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", string(body))
		if code == 403 {
			return "forbidden"
		}
		var made certificatesv1.CertificateSigningRequest
		if err := json.Unmarshal([]byte(answer), &made); err != nil || code != 201 {
			t.Fatalf("%d %v: %s", code, err, answer)
		}
		verdict := ""
		for until := time.Now().Add(10 * time.Second); verdict == "" && time.Now().Before(until); time.Sleep(200 * time.Millisecond) { // nobody's verdict is one, too
			verdict = kubectl(t, c.server, "get", "csr", made.Name, "-o", "jsonpath={.status.conditions[*].type}")
		}
		return verdict
	}
	at := net.ParseIP
	if got := as("system:node:corp-2", []string{"corp-2"}, []net.IP{at("192.0.2.3")}, "system:nodes", serving, certificatesv1.UsageServerAuth); got != "Approved" {
		t.Errorf("what is its own: %q", got)
	}
	if got := as("system:node:corp-3", nil, nil, "system:nodes", client, certificatesv1.UsageClientAuth); got == "Approved" || got == "" {
		t.Errorf("another node's name: %q", got)
	}
	if got := as("system:node:corp-2", nil, nil, "system:masters", certificatesv1.KubeAPIServerClientSignerName, certificatesv1.UsageClientAuth); got != "" && got != "forbidden" {
		t.Errorf("an administrator's: %q", got)
	}
	// Its kubelet stands still, so that what is said in its name stays.
	if err := two.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := two.StartDaemon(t.Context()); err != nil {
			t.Error(err)
		}
		c.ready(t, 2*time.Minute)
	}()
	if code, text := ask("PATCH", "/api/v1/nodes/corp-2/status", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.3"},{"type":"ExternalIP","address":"10.43.0.1"},{"type":"ExternalIP","address":"127.0.0.1"}]}}`); code != 200 {
		t.Fatalf("what it says of its addresses: %d %s", code, text)
	}
	for _, ip := range []string{"10.43.0.1", "127.0.0.1", "192.0.2.2"} {
		if got := as("system:node:corp-2", nil, []net.IP{at(ip)}, "system:nodes", serving, certificatesv1.UsageServerAuth); got == "Approved" {
			t.Errorf("it is certified as %s", ip)
		}
	}
	if out := kubectl(t, c.server, "get", "node", "corp-2", "-o", "jsonpath={.status.addresses[*].address}"); !strings.Contains(out, "10.43.0.1") {
		t.Errorf("what it said did not stay, so nothing was tried: %s", out)
	}
}
