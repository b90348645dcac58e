package peering

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"

	"kith.dev/core/net/netplan"
)

// Validate checks a Link.
func (l *Link) Validate() error {
	if !isWireGuardKey(l.PublicKey) {
		return fmt.Errorf("publicKey: %.64q is not a WireGuard key", l.PublicKey)
	}
	if l.Port < 1 || l.Port > 65535 {
		return fmt.Errorf("port: %d is not 1 to 65535", l.Port)
	}
	if l.Plan != LinkPlan {
		return errOtherPlan
	}
	if len(l.Space) == 0 || len(l.Space) > netplan.MaxSpace {
		return fmt.Errorf("space: %d ranges, want 1 to %d", len(l.Space), netplan.MaxSpace)
	}
	for _, r := range l.Space {
		if err := netplan.CheckRange(r); err != nil {
			return fmt.Errorf("space: %w", err)
		}
	}
	for _, g := range []struct {
		field string
		netip.Prefix
	}{{"here", l.Here}, {"there", l.There}} {
		if g.IsValid() {
			if err := netplan.CheckGuests(g.Prefix); err != nil {
				return fmt.Errorf("%s: %w", g.field, err)
			}
		}
	}
	if l.Services.IsValid() {
		if err := netplan.CheckRange(l.Services); err != nil {
			return fmt.Errorf("services: %w", err)
		}
	}
	switch {
	case !l.At.Is4():
		return fmt.Errorf("at: %.64q is no IPv4 address", l.At)
	case l.Here.IsValid() != l.AtHere.IsValid() || l.AtHere.IsValid() && !l.AtHere.Is4():
		return fmt.Errorf("atHere: %.64q is no IPv4 address in %s", l.AtHere, l.Here)
	}
	if l.IPv6 != nil {
		if err := l.IPv6.Validate(); err != nil {
			return fmt.Errorf("ipv6: %w", err)
		}
	}
	if len(l.Onward) > netplan.MaxOnward {
		return fmt.Errorf("onward: %d homes, at most %d are taken", len(l.Onward), netplan.MaxOnward)
	}
	for _, o := range l.Onward {
		if len(o.Space) > netplan.MaxOnwardSpace {
			return fmt.Errorf("onward: an address space of %d ranges, at most %d are taken", len(o.Space), netplan.MaxOnwardSpace)
		}
	}
	if len(l.Others) > netplan.MaxDirect {
		return fmt.Errorf("others: %d providers, at most %d are taken", len(l.Others), netplan.MaxDirect)
	}
	for i := range l.Others {
		if err := l.Others[i].Validate(); err != nil {
			return fmt.Errorf("others: %w", err)
		}
	}
	if l.Binding != nil {
		return l.Binding.Validate()
	}
	return nil
}

// Validate checks the form of an Introduction.
func (i *Introduction) Validate() error {
	switch {
	case i.ID.IsZero():
		return errors.New("no id")
	case !isWireGuardKey(i.PublicKey):
		return fmt.Errorf("publicKey: %.64q is not a WireGuard key", i.PublicKey)
	case len(i.Endpoints) == 0 || len(i.Endpoints) > netplan.MaxEndpoints:
		return fmt.Errorf("endpoints: %d, want 1 to %d", len(i.Endpoints), netplan.MaxEndpoints)
	case len(i.Signature) != ed25519.SignatureSize:
		return fmt.Errorf("signature: has %d bytes, want %d", len(i.Signature), ed25519.SignatureSize)
	}
	for _, e := range i.Endpoints {
		if err := netplan.CheckEndpoint(e); err != nil {
			return err
		}
	}
	if err := netplan.CheckGuests(i.Guests); err != nil {
		return fmt.Errorf("guests: %w", err)
	}
	return nil
}

// Validate checks what a Link says of IPv6.
func (l *LinkIPv6) Validate() error {
	if len(l.Space) == 0 || len(l.Space) > netplan.MaxSpace {
		return fmt.Errorf("space: %d ranges, want 1 to %d", len(l.Space), netplan.MaxSpace)
	}
	for _, r := range l.Space {
		if err := netplan.CheckRange6(r); err != nil {
			return fmt.Errorf("space: %w", err)
		}
	}
	if l.Services.IsValid() {
		if err := netplan.CheckRange6(l.Services); err != nil {
			return fmt.Errorf("services: %w", err)
		}
	}
	if !l.At.Is6() || l.At.Zone() != "" || netplan.Free(netip.PrefixFrom(l.At, 128), l.Space) {
		return fmt.Errorf("at: %.64q is no IPv6 address of space", l.At)
	}
	if len(l.Taken) > 2 {
		return fmt.Errorf("taken: %d ranges, there are 2", len(l.Taken))
	}
	for _, r := range l.Taken {
		if err := netplan.CheckRange6(r); err != nil {
			return fmt.Errorf("taken: %w", err)
		}
	}
	return nil
}

// errOtherPlan refuses a link that agrees on addresses in another way. Whoever sent it shows the words to its owner as they are, also
// an older Kith.
var errOtherPlan = Refuse(CodeVersion, "one of the two runs an older Kith, which agrees on the addresses of guests in another way", sameVersion)

func isWireGuardKey(text string) bool {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	return err == nil && len(key) == 32 && !bytes.Equal(key, make([]byte, 32))
}

// Validate checks the form of a Binding.
func (b *Binding) Validate() error {
	switch {
	case !isWireGuardKey(b.PeerKey):
		return fmt.Errorf("binding: peerKey: %.64q is not a WireGuard key", b.PeerKey)
	case len(b.Signature) != ed25519.SignatureSize:
		return fmt.Errorf("binding: signature: has %d bytes, want %d", len(b.Signature), ed25519.SignatureSize)
	case len(b.Proof) != sha256.Size:
		return fmt.Errorf("binding: proof: has %d bytes, want %d", len(b.Proof), sha256.Size)
	}
	return nil
}
