package peering

import (
	"context"
	"crypto/ed25519"
	"net/netip"
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/identity"
)

// Caller is the peer at the other end of a connection. Its key is proven; its address may be a router's.
type Caller struct {
	ID   identity.ID
	Key  ed25519.PublicKey
	Addr netip.AddrPort
}

// Desk is where the server brings what peers ask; core/relations/provider sits there.
//
// What it is given has been validated; what it returns is validated before it is sent. All methods may run at
// once, for one caller and for many, and must end when ctx does. An error that is, or wraps, a *Problem is sent
// to the caller as it is; of any other the caller learns only that something failed, and the log has it.
type Desk interface {
	// Recognise says whether the caller is somebody here: its key was compared, or a contract with it is in force. It is asked
	// once per connection, of anybody who connects, and of strangers with a presence stream each 10 s: answer from memory.
	Recognise(ctx context.Context, caller Caller) bool
	// Compared says whether an owner here compared the caller's key, by its code or its ID. All others are strangers to the
	// budgets of Limits. It is asked twice per question: answer from memory.
	Compared(ctx context.Context, caller Caller) bool
	// Ask puts the question before the owner, or a policy. code is what the asker's screen shows too, if its owner is shown
	// one (compare); it is for the owner here, unless the caller's key was compared before and compare is false. Asked again
	// by the same caller it replaces the pending question. requestID is made of letters, digits, dashes and dots, at most 128.
	Ask(ctx context.Context, caller Caller, question Question, code string, compare bool) (requestID string, expires time.Time, err error)
	// Outcome blocks until the caller's request is answered, or ctx ends: then the state is pending and the
	// error nil. A request that is not the caller's is CodeNotFound.
	Outcome(ctx context.Context, caller Caller, requestID string) (Outcome, error)
	// Withdraw takes a request of the caller back. It is idempotent: one that is not there, or not the caller's, is no error.
	Withdraw(ctx context.Context, caller Caller, requestID string) error
	// Sign checks a contract that the caller signed as consumer against the offer it was given, and
	// countersigns it. The same bytes again give the same answer.
	Sign(ctx context.Context, caller Caller, signed contract.Signed) (contract.Signed, error)
	// Contracts lists what is in force with the caller, in both directions.
	Contracts(ctx context.Context, caller Caller) ([]ContractRef, error)
	// End ends a contract with the caller. It is idempotent: what has ended, or is not known, is no error.
	End(ctx context.Context, caller Caller, contractID string) error
	// Link takes the caller's side of the link and gives this one's. Only with a contract, else CodeNoContract.
	Link(ctx context.Context, caller Caller, theirs Link) (Link, error)
	// Notices gives what the caller should hear of at once, until ctx ends. The channel may be closed before.
	Notices(ctx context.Context, caller Caller) <-chan Notice
}
