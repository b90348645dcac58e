package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

const (
	keyFile    = "identity.key"
	pemType    = "PRIVATE KEY" // PKCS#8, RFC 5958
	maxKeyFile = 16 << 10
)

// Identity is this cluster's key and what follows from it. It is immutable and safe for concurrent use.
type Identity struct {
	id   ID
	key  ed25519.PrivateKey
	cert tls.Certificate
}

// Load reads the key in dir/identity.key (PKCS#8 PEM), or makes one, with the directory (0700), when
// there is none. A key that others may read, that is damaged, or is of another kind is an error and
// never replaced: a new key would be a new cluster, and every contract of the old one void.
func Load(dir string) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("identity: make the key's directory: %w", err)
	}
	// Nothing below leaves dir, whatever links lie there. Links inside are fine: so mounts a Secret.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("identity: open the key's directory: %w", err)
	}
	defer root.Close()

	key, err := readKey(root)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(root); err == nil {
			key, err = readKey(root)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("identity: %s/%s: %w", dir, keyFile, err)
	}
	return fromKey(key)
}

// NewKey makes a key, as PKCS#8 PEM, for whoever keeps it elsewhere than in a file of Load's.
func NewKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
}

// Parse is the identity of a key that NewKey made.
func Parse(text []byte) (*Identity, error) {
	key, err := decodeKey(text)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return fromKey(key)
}

func fromKey(key ed25519.PrivateKey) (*Identity, error) {
	cert, err := selfSigned(key)
	if err != nil {
		return nil, fmt.Errorf("identity: make the certificate: %w", err)
	}
	return &Identity{id: IDOf(key.Public().(ed25519.PublicKey)), key: key, cert: cert}, nil
}

func readKey(root *os.Root) (ed25519.PrivateKey, error) {
	f, err := root.Open(keyFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Asked of the open file, so it cannot be exchanged between the look and the reading.
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("others may read or write this private key (mode %04o); if nobody did, set it to 0600, else remove it to get a new identity", perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	return decodeKey(text)
}

func decodeKey(text []byte) (ed25519.PrivateKey, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("larger than %d bytes, not a key", maxKeyFile)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("holds no PEM block %q; restore it from a backup, or remove it to get a new identity", pemType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("damaged key: %w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("holds a %T, want an Ed25519 key", parsed)
	}
	return key, nil
}

// makeKey writes a new key that is there whole or not at all, also after a power cut. When another
// process was faster, its key stays.
func makeKey(root *os.Root) error {
	text, err := NewKey()
	if err != nil {
		return err
	}
	var suffix [8]byte
	rand.Read(suffix[:]) // never fails, crypto/rand ends the program instead
	tmp := keyFile + "." + hex.EncodeToString(suffix[:])
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer root.Remove(tmp)
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	// A link, not a rename: a rename would replace the key of a process that was faster.
	if err := root.Link(tmp, keyFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// ID is this cluster's ID.
func (i *Identity) ID() ID { return i.id }

// Public is this cluster's public key.
func (i *Identity) Public() ed25519.PublicKey { return i.key.Public().(ed25519.PublicKey) }

// Sign signs msg (Ed25519, RFC 8032). What is signed must say what it is for, so that a signature given
// for one thing is not good for another: begin msg with a text of your own, or sign a typed document.
func (i *Identity) Sign(msg []byte) []byte { return ed25519.Sign(i.key, msg) }

// Verify checks that pub is the key of id and that sig is its signature of msg. Any lengths are safe.
func Verify(pub ed25519.PublicKey, id ID, msg, sig []byte) error {
	if len(pub) != ed25519.PublicKeySize {
		return fmt.Errorf("signature of %s: its public key has %d bytes, want %d", id, len(pub), ed25519.PublicKeySize)
	}
	if got := IDOf(pub); got != id {
		return &MismatchError{Want: id, Got: got}
	}
	if !ed25519.Verify(pub, msg, sig) {
		return fmt.Errorf("signature of %s: does not fit what was signed", id)
	}
	return nil
}
