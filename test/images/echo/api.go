package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// api asks the API server for a path as every client in a pod does: where the environment says, or a second argument (host:port), with
// the pod's token, and trusting the certificate authority that lies beside it. "{namespace}" in the path is the pod's own.
func api(args []string) error {
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	if len(args) == 2 {
		args, host = args[:1], args[1]
	}
	path, err := one(args)
	if err != nil {
		return err
	}
	var token, namespace string
	for file, to := range map[string]*string{"token": &token, "namespace": &namespace} {
		b, err := os.ReadFile(filepath.Join(account, file))
		if err != nil {
			return err
		}
		*to = strings.TrimSpace(string(b))
	}
	ca, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt holds no certificate")
	}
	r, err := http.NewRequest(http.MethodGet, "https://"+host+strings.ReplaceAll(path, "{namespace}", namespace), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return errors.New(resp.Status)
	}
	return nil
}
