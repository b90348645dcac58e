// Package trust is the floor of keys, signatures and careful reading. Everything that comes from another machine passes it first.
//
// Comes in: bytes and certificates of strangers. Goes out: an ID that is proven, a contract whose two signatures hold, a text whose cost is
// known before it is decoded, a refusal that was counted. Never here: a decision about what somebody may have; who is right is said
// above, who is who is said here.
package trust
