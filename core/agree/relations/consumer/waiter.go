package consumer

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// waiter waits for the answer to one request. It is kept after that: for a moment the cache may still show the request as open, and a new waiter
// would hear from the peer that there is no such request.
//
// When the owner has confirmed or rejected what the peer accepted, or the request may have expired, the answer is read again.
type waiter struct {
	request string
	word    v1alpha1.Confirm
	lapsed  int64 // minutes since the epoch at which a request was looked after that waited for the owner's word too long
	cancel  context.CancelFunc
}

// await has the answer to the pending request of a Peer waited for, once.
func (r *Consumer) await(peer *v1alpha1.Peer) {
	out := peer.Status.Outgoing
	if out.RequestID == "" {
		return
	}
	next := waiter{request: out.RequestID, word: Word(peer)}
	if now := time.Now(); out.Confirm != nil && out.Expires != nil && now.After(out.Expires.Add(record.Afterwards)) {
		next.lapsed = now.Unix() / 60
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waiting[peer.Name]; w != nil {
		if w.request == next.request && w.word == next.word && w.lapsed == next.lapsed {
			return
		}
		w.cancel()
	}
	to, err := r.Directory.Client(peer)
	if err != nil {
		r.Log.Warn("cannot wait for the answer", "peer", peer.Name, "err", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &next
	w.cancel = cancel
	r.waiting[peer.Name] = w
	deadline := time.Now().Add(time.Hour)
	if out.Expires != nil {
		deadline = out.Expires.Add(record.Afterwards + record.ClockSkew) // it is a time of the peer's clock
	}
	go r.wait(ctx, peer.Name, w, to, deadline)
}

func (r *Consumer) stopWaiting(peer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.waiting[peer]; w != nil {
		w.cancel()
		delete(r.waiting, peer)
	}
}

// Close ends all waiting; the requests stand, and a restarted daemon waits for them again.
func (r *Consumer) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range r.waiting {
		w.cancel()
		delete(r.waiting, name)
	}
}

// wait asks until there is an answer and it was acted on. A peer that is away for a moment may come back with it.
func (r *Consumer) wait(ctx context.Context, peer string, w *waiter, to *peering.Client, deadline time.Time) {
	defer w.cancel()
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 100, Cap: 15 * time.Second}
	for ctx.Err() == nil {
		outcome, err := to.Outcome(ctx, w.request)
		forgotten := errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) || errors.Is(err, &peering.Problem{Code: peering.CodeExpired})
		if forgotten || err != nil && time.Now().After(deadline) {
			outcome, err = peering.Outcome{State: peering.OutcomeExpired, Reason: "the request is not known there any more"}, nil
		}
		if err == nil && ctx.Err() == nil {
			if err = r.conclude(ctx, peer, w.request, to, outcome); err == nil {
				return
			}
		}
		if ctx.Err() == nil {
			r.Log.Debug("will ask for the answer again", "peer", peer, "err", err)
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
		}
	}
}
