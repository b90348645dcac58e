package consumer

import (
	"context"
	"time"

	"kith.dev/core/api/v1alpha1"
)

// Fleet runs the virtual nodes: one for each contract under which this cluster consumes.
type Fleet interface {
	// Ensure has the node of the contract run; called again, it takes changed amounts and addresses over.
	Ensure(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error
	// SetReachable tells the node that its peer answers.
	SetReachable(peer string)
	// SetLost tells the node that its peer does not answer, or cannot do its work, and why. Nothing was heard of it since that
	// time; the zero time is now.
	SetLost(peer, why string, heard time.Time)
	// SetTunnel tells the node why no packet passes between the pods here and there; empty when they do.
	SetTunnel(peer, why string)
	// Retire brings the pods home and takes the node away. A peer that does not answer is not waited for; left, which
	// may be nil, is closed when nothing of them is left there, or nobody answers any more.
	Retire(ctx context.Context, peer string, reachable bool, left <-chan struct{}) error
}
