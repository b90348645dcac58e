package link

import (
	"crypto/ed25519"
	"slices"

	"kith.dev/core/agree/peering"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/identity"
)

// bindingDomain keeps what is signed here apart from everything else that an identity signs.
const bindingDomain = "kith link v2: this WireGuard key is mine\x00"

// binding is what each side of a link says of its WireGuard key, confirmed by both of its keys. All parts have fixed
// lengths.
//
// The identity's signature ties the WireGuard key to the identity, for whoever has it in hand; on this connection TLS has
// shown as much. It does not show that the signer holds the WireGuard key: mallory can sign a statement about bob's public
// key as well as about hers. Were that believed, what bob sends would be counted as hers (one key is one peer in
// WireGuard), and he could not link at all, if she came first. So the WireGuard key itself confirms the same statement,
// by a MAC under the secret it shares with the receiver's (gateway.Prove).
//
// Since the statement names sender and receiver, in this order, what bob says to mallory is of no use to her elsewhere:
// nor the other way back to him, nor to alice, even if mallory names alice's WireGuard key as hers to have him compute it.
// That the statement is the same each time is no harm: only its sender's TLS key can deliver it.
func binding(from, to identity.ID, own, other gateway.Key) []byte {
	return slices.Concat([]byte(bindingDomain), from[:], to[:], own[:], other[:])
}

// bind makes this side's binding, for a peer and the WireGuard key it named.
func (l *Linker) bind(to identity.ID, theirs string) (*peering.Binding, error) {
	key, err := gateway.ParseKey(theirs)
	if err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	said := binding(l.cfg.Identity.ID(), to, l.cfg.Gateway.PublicKey(), key)
	proof, err := l.cfg.Gateway.Prove(key, said)
	if err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	return &peering.Binding{PeerKey: theirs, Signature: l.cfg.Identity.Sign(said), Proof: proof}, nil
}

// bound checks the binding of a link and returns its proof; none, without an error, when there is no binding to this
// side's key yet, since its sender does not know that, or knows one from before.
func (l *Linker) bound(from identity.ID, signer ed25519.PublicKey, theirs peering.Link) ([]byte, error) {
	if theirs.Binding == nil || theirs.Binding.PeerKey != l.cfg.Gateway.PublicKey().String() {
		return nil, nil
	}
	key, err := gateway.ParseKey(theirs.PublicKey)
	if err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	said := binding(from, l.cfg.Identity.ID(), key, l.cfg.Gateway.PublicKey())
	if err := identity.Verify(signer, from, said, theirs.Binding.Signature); err != nil {
		return nil, peering.Refuse(peering.CodeForbidden, "the WireGuard key is not signed by the cluster that names it: "+err.Error(), "")
	}
	return theirs.Binding.Proof, l.proven(from, key, theirs.Binding.Proof)
}

// proven checks the half of a binding that the WireGuard key confirms.
func (l *Linker) proven(from identity.ID, key gateway.Key, proof []byte) error {
	said := binding(from, l.cfg.Identity.ID(), key, l.cfg.Gateway.PublicKey())
	if !l.cfg.Gateway.Proven(key, said, proof) {
		return peering.Refuse(peering.CodeForbidden, "the WireGuard key is not proven to be the sender's own", "name your own")
	}
	return nil
}
