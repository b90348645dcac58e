package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ID names a cluster: the SHA-256 of its raw 32-byte Ed25519 public key. The zero ID means "not known
// (yet)"; no key has it, and it is written as the empty string.
type ID [sha256.Size]byte

const (
	alphabet   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // RFC 4648 base32
	chunkLen   = 13                                 // characters guarded by one check character
	groupLen   = 7                                  // characters between two dashes when written out
	chunks     = 4
	compactLen = chunks * (chunkLen + 1) // 56

	// maxTyped bounds what ParseID looks at; a fully dashed ID has 63 characters.
	maxTyped = 256
)

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// IDOf gives the ID of a public key. It panics on a key that is not 32 bytes long, as crypto/ed25519 does.
func IDOf(pub ed25519.PublicKey) ID {
	if len(pub) != ed25519.PublicKeySize {
		panic(fmt.Sprintf("identity: an Ed25519 public key has %d bytes, this one has %d", ed25519.PublicKeySize, len(pub)))
	}
	return sha256.Sum256(pub)
}

// IsZero says whether the ID is unset. encoding/json's omitzero asks this too.
func (id ID) IsZero() bool { return id == ID{} }

// String is the form for people: 8 groups of 7 upper-case letters and digits, joined by dashes, 63
// characters, as Syncthing writes a device ID. Every 14th character checks the 13 before it.
func (id ID) String() string {
	full := id.encode()
	if full == "" {
		return ""
	}
	groups := make([]string, 0, compactLen/groupLen)
	for ; full != ""; full = full[groupLen:] {
		groups = append(groups, full[:groupLen])
	}
	return strings.Join(groups, "-")
}

// Compact is the form for machines: the same 56 characters, lower case, without dashes. It fits a DNS
// label, a Kubernetes name and a Kubernetes label value (63 at most).
func (id ID) Compact() string { return strings.ToLower(id.encode()) }

// Short is the first 7 characters of Compact, to tell two peers of one name apart ("bob-mfzwi3d"). It
// is safe inside Kubernetes names, and short enough to be searched for (35 bits): never decide by it.
func (id ID) Short() string {
	if id.IsZero() {
		return ""
	}
	return id.Compact()[:groupLen]
}

func (id ID) encode() string {
	if id.IsZero() {
		return ""
	}
	plain := encoding.EncodeToString(id[:])
	out := make([]byte, 0, compactLen)
	for ; plain != ""; plain = plain[chunkLen:] {
		out = append(append(out, plain[:chunkLen]...), checkChar(plain[:chunkLen]))
	}
	return string(out)
}

// ParseID reads any form String or Compact gives, as people type it: upper or lower case, any dashes
// and spaces, and 0, 1 and 8 (which the alphabet lacks) for O, I and B. The error names the groups, as
// String writes them, in which the mistake is. The zero ID is refused.
func ParseID(typed string) (ID, error) {
	if len(typed) > maxTyped {
		return ID{}, fmt.Errorf("cluster ID: %d bytes is too long, it has %d characters in 8 groups of 7", len(typed), compactLen)
	}
	full, err := normalise(typed)
	if err != nil {
		return ID{}, err
	}
	if len(full) != compactLen {
		return ID{}, fmt.Errorf("cluster ID: has %d characters, want %d in 8 groups of 7", len(full), compactLen)
	}
	var plain []byte
	for c := range chunks {
		chunk := full[c*(chunkLen+1) : (c+1)*(chunkLen+1)]
		if checkChar(chunk[:chunkLen]) != chunk[chunkLen] {
			return ID{}, fmt.Errorf("cluster ID: mistyped in group %d or %d (%s-%s)", 2*c+1, 2*c+2, chunk[:groupLen], chunk[groupLen:])
		}
		plain = append(plain, chunk[:chunkLen]...)
	}
	raw, err := encoding.DecodeString(string(plain))
	if err != nil {
		return ID{}, fmt.Errorf("cluster ID: %w", err)
	}
	id := ID(raw)
	// 52 characters carry 260 bits. Were the last four free, one key would have sixteen spellings.
	if !bytes.Equal([]byte(encoding.EncodeToString(raw)), plain) {
		return ID{}, errors.New("cluster ID: mistyped in group 8, its last characters cannot occur")
	}
	if id.IsZero() {
		return ID{}, errors.New("cluster ID: all zero, no cluster has it")
	}
	return id, nil
}

// normalise strips what people put between characters and mends the digits base32 lacks.
func normalise(typed string) (string, error) {
	var b strings.Builder
	for _, r := range typed {
		switch {
		case unicode.IsSpace(r) || unicode.Is(unicode.Pd, r):
			continue
		case r == '0':
			r = 'O'
		case r == '1':
			r = 'I'
		case r == '8':
			r = 'B'
		case 'a' <= r && r <= 'z':
			r -= 'a' - 'A'
		}
		if r > unicode.MaxASCII || strings.IndexByte(alphabet, byte(r)) < 0 {
			return "", fmt.Errorf("cluster ID: character %q in group %d is not a letter A-Z or a digit 2-7", r, b.Len()/groupLen+1)
		}
		b.WriteRune(r)
	}
	return b.String(), nil
}

// checkChar is Luhn mod 32. It finds every single wrong character and every swap of neighbours but one
// (A with 7). Unlike Syncthing's it doubles from the right, as Luhn is defined.
func checkChar(chunk string) byte {
	const n = len(alphabet)
	factor, sum := 2, 0
	for i := len(chunk) - 1; i >= 0; i-- {
		addend := factor * strings.IndexByte(alphabet, chunk[i])
		sum += addend/n + addend%n
		factor = 3 - factor
	}
	return alphabet[(n-sum%n)%n]
}

// MarshalText writes the String form; the zero ID is empty.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what ParseID reads; empty text is the zero ID.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
