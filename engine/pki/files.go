package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

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
	certs, err := cert.CertsFromFile(path)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: a %T, want an ECDSA key", path, key)
	}
	return ec, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	b, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return write(path, b)
}

func writeCert(path string, der []byte) error {
	return write(path, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))
}

// write replaces path in one step, readable by root alone, and on disk before it is seen: a laptop whose
// battery dies must not wake with an empty key.
func write(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
