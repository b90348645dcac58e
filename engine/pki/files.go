package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Ends is when the certificate Name.crt in dir ends.
func Ends(dir, name string) (time.Time, error) {
	cert, err := readCert(filepath.Join(dir, name+".crt"))
	if err != nil {
		return time.Time{}, err
	}
	return cert.NotAfter, nil
}

// WriteKubeconfig writes a kubeconfig that names leaf's files in dir, so that client-go reloads them.
func WriteKubeconfig(path, dir, leaf, server string) error {
	return writeKubeconfig(path, server, &api.Cluster{
		Server: server, CertificateAuthority: filepath.Join(dir, "ca.crt"),
	}, &api.AuthInfo{
		ClientCertificate: filepath.Join(dir, leaf+".crt"), ClientKey: filepath.Join(dir, leaf+".key"),
	})
}

// EmbedKubeconfig writes a kubeconfig with the bytes of leaf in it, so that it can be carried elsewhere.
func EmbedKubeconfig(path, dir, leaf, server string) error {
	var parts [3][]byte
	for i, name := range []string{"ca.crt", leaf + ".crt", leaf + ".key"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		parts[i] = b
	}
	return writeKubeconfig(path, server, &api.Cluster{Server: server, CertificateAuthorityData: parts[0]},
		&api.AuthInfo{ClientCertificateData: parts[1], ClientKeyData: parts[2]})
}

func writeKubeconfig(path, server string, cluster *api.Cluster, user *api.AuthInfo) error {
	const name = "kith"
	b, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{name: cluster},
		AuthInfos:      map[string]*api.AuthInfo{name: user},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return write(path, b)
}

func readCert(path string) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return write(path, pemBlock("EC PRIVATE KEY", der))
}

func writeCert(path string, der []byte) error { return write(path, pemBlock("CERTIFICATE", der)) }

// write replaces path in one step, readable by root alone, and on disk before it is seen: a laptop whose
// battery dies must not wake with an empty key.
func write(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
