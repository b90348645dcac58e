package join

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/client-go/util/cert"
)

// Hash is what is said of an authority to those who are to trust it: SHA-256 of its public key (RFC 7469, section 2.4), as
// kubeadm's --discovery-token-ca-cert-hash has it.
func Hash(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// checkHash says what is wrong with the form of a hash.
func checkHash(hash string) error {
	digits, ok := strings.CutPrefix(hash, "sha256:")
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != sha256.Size {
		return fmt.Errorf("ca-cert-hash %q: want sha256: and 64 hexadecimal digits, as kith-k8s token create --print-join-command prints it on the server", hash)
	}
	return nil
}

// pinned gives those of the authorities in PEM that one of the hashes is of. Others are not to be trusted, in whatever company they come.
func pinned(pem []byte, hashes []string) ([]*x509.Certificate, error) {
	all, err := cert.ParseCertsPEM(pem)
	if err != nil {
		return nil, fmt.Errorf("the cluster's authority: %w", err)
	}
	var good []*x509.Certificate
	for _, ca := range all {
		for _, hash := range hashes {
			if subtle.ConstantTimeCompare([]byte(Hash(ca)), []byte(strings.ToLower(hash))) == 1 && ca.IsCA {
				good = append(good, ca)
			}
		}
	}
	if len(good) == 0 {
		return nil, fmt.Errorf("the authority of the cluster that answers has the hash %s, and not what ca-cert-hash says: either the hash is of another cluster, "+
			"or somebody answers in the server's place. Compare with what kith-k8s token create --print-join-command prints on the server itself", Hash(all[0]))
	}
	return good, nil
}
