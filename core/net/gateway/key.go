package gateway

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kith.dev/core/base/durable"
)

// Key is a WireGuard public key (Curve25519). Its text form is the usual 44 characters of base64.
type Key [32]byte

// PrivateKey is a WireGuard private key. It prints as a placeholder, so that no log ever holds it.
type PrivateKey struct{ bytes [32]byte }

// GenerateKey makes a new private key.
func GenerateKey() (PrivateKey, error) {
	var k PrivateKey
	if _, err := rand.Read(k.bytes[:]); err != nil {
		return k, fmt.Errorf("make a WireGuard key: %w", err)
	}
	k.clamp()
	return k, nil
}

// ParseKey reads the base64 form of a public key.
func ParseKey(s string) (Key, error) {
	b, err := decodeKey(s)
	if err != nil {
		return Key{}, fmt.Errorf("WireGuard public key: %w", err)
	}
	return Key(b), nil
}

// ParsePrivateKey reads the base64 form of a private key.
func ParsePrivateKey(s string) (PrivateKey, error) {
	b, err := decodeKey(s)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("WireGuard private key: %w", err)
	}
	k := PrivateKey{bytes: b}
	k.clamp()
	return k, nil
}

// LoadKey reads the private key at path, or makes one and writes it there with mode 0600. A damaged file is an
// error, never a reason to make a new key: the peers know this one.
func LoadKey(path string) (PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		k, err := ParsePrivateKey(string(text))
		if err != nil {
			return PrivateKey{}, fmt.Errorf("%s: %w; restore it, or remove it to get a new one", path, err)
		}
		return k, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return PrivateKey{}, fmt.Errorf("read the WireGuard key: %w", err)
	}
	k, err := GenerateKey()
	if err != nil {
		return PrivateKey{}, err
	}
	if err := writeKey(path, k); err != nil {
		return PrivateKey{}, fmt.Errorf("keep the WireGuard key: %w", err)
	}
	return k, nil
}

// writeKey is atomic: a crash leaves either no key or a whole one.
func writeKey(path string, k PrivateKey) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, k.Reveal(), 0o600)
}

// Reveal is the form that ParsePrivateKey reads, for whoever keeps the key.
func (k PrivateKey) Reveal() []byte {
	return []byte(base64.StdEncoding.EncodeToString(k.bytes[:]) + "\n")
}

// Public is the key the peers are told.
func (k PrivateKey) Public() Key {
	p, err := ecdh.X25519().NewPrivateKey(k.bytes[:])
	if err != nil { // the length is fixed, nothing else can be wrong
		panic("gateway: " + err.Error())
	}
	return Key(p.PublicKey().Bytes())
}

func (k PrivateKey) IsZero() bool     { return k == PrivateKey{} }
func (k PrivateKey) String() string   { return "(private key)" }
func (k PrivateKey) GoString() string { return k.String() }

func (k Key) IsZero() bool { return k == Key{} }

// String is the base64 form, or nothing for no key.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k[:])
}

// clamp makes the scalar a valid one (RFC 7748, section 5).
func (k *PrivateKey) clamp() {
	k.bytes[0] &= 248
	k.bytes[31] = k.bytes[31]&127 | 64
}

func (k PrivateKey) hex() string { return hex.EncodeToString(k.bytes[:]) }
func (k Key) hex() string        { return hex.EncodeToString(k[:]) }

func decodeKey(s string) (out [32]byte, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(s))
	switch {
	case err != nil:
		return out, errors.New("not base64")
	case len(b) != len(out):
		return out, fmt.Errorf("%d bytes instead of 32", len(b))
	}
	copy(out[:], b)
	if out == ([32]byte{}) {
		return out, errors.New("all zero")
	}
	return out, nil
}
