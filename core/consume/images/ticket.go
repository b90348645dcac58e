package images

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"

	"kith.dev/core/trust/identity"
)

// Headers of a question for a part of an image, and of its answers.
const (
	// HeaderElsewhere is set by who goes elsewhere when it is sent there.
	HeaderElsewhere = "Kith-Elsewhere"
	// HeaderTicket comes with the status 307 (home sends the peer elsewhere), and goes to the holder.
	HeaderTicket = "Kith-Ticket"
)

// HeldPath is where a holder is asked: HeldPath + "<digest>".
const HeldPath = "/kith/v2/held/"

// Ticket is a home's word that one peer of it, the taker, may have a part of an image from another, the holder, where guests run from it.
type Ticket struct {
	Home   identity.ID `json:"home"`
	Key    []byte      `json:"key"` // home's public key, 32 bytes
	Holder identity.ID `json:"holder"`
	Taker  identity.ID `json:"taker"`
	Image  string      `json:"image"`  // as the holder has it: name@digest
	Digest string      `json:"digest"` // of the part
	Until  time.Time   `json:"until"`
}

const (
	// lasts is how long a ticket is good for the beginning of an answer.
	lasts = 2 * time.Minute
	// skew is how far the clocks of two laptops may be apart.
	skew = 5 * time.Minute
	// longestTicket bounds one, in bytes.
	longestTicket = 4 << 10
)

// domain keeps what is signed here from being taken for something else that a laptop signs.
const domain = "kith image ticket v1\n"

// Sign gives the ticket as it is sent: two parts in base64, the ticket in JSON and the signature.
func (t Ticket) Sign(home *identity.Identity) (string, error) {
	t.Home, t.Key = home.ID(), home.Public()
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(text) + "." + enc.EncodeToString(home.Sign(append([]byte(domain), text...))), nil
}

// ReadTicket reads a ticket that its home signed, for a digest. Whether home is anybody's here, and the holder and the taker are those who speak, is
// the caller's to say.
func ReadTicket(sent, digest string, now time.Time) (t Ticket, err error) {
	if len(sent) > longestTicket {
		return t, fmt.Errorf("ticket of %d bytes, want at most %d", len(sent), longestTicket)
	}
	first, second, _ := strings.Cut(sent, ".")
	text, err := base64.RawURLEncoding.DecodeString(first)
	signature, bad := base64.RawURLEncoding.DecodeString(second)
	if err = errors.Join(err, bad); err != nil {
		return t, fmt.Errorf("ticket: %w", err)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("ticket: %w", err)
	}
	if len(t.Key) != ed25519.PublicKeySize {
		return t, fmt.Errorf("ticket: a key of %d bytes", len(t.Key))
	}
	if err := identity.Verify(t.Key, t.Home, append([]byte(domain), text...), signature); err != nil {
		return t, fmt.Errorf("ticket: %w", err)
	}
	named, err := reference.ParseNamed(t.Image)
	if err != nil {
		return t, fmt.Errorf("ticket: image %q: %w", t.Image, err)
	}
	if _, exact := named.(reference.Canonical); !exact {
		return t, fmt.Errorf("ticket: image %q is named without its digest", t.Image)
	}
	if t.Digest != digest || !reference.DigestRegexp.MatchString(digest) {
		return t, errors.New("ticket: it is for another part")
	}
	if now.After(t.Until.Add(skew)) || t.Until.After(now.Add(lasts+skew)) {
		return t, errors.New("ticket: it is not for now")
	}
	return t, nil
}
