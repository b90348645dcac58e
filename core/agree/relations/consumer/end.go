package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// goodbyeTimeout bounds the call that tells a peer that a contract ended; one that misses it finds out when contracts are compared.
const goodbyeTimeout = 3 * time.Second

// End brings the pods home, takes the node away and tells the provider.
func (r *Consumer) End(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	to := r.answering(ctx, peer)
	if to != nil && (peer.Status.Network != nil || sharing.NoNetwork(ctr)) {
		// The node is what ends the pods abroad; in a daemon that was just started it does not run yet.
		if err := r.Fleet.Ensure(ctx, peer, ctr); err != nil {
			return err
		}
		r.Fleet.SetPresence(peer.Name, presence.Presence{State: presence.Reachable}) // it answered just now
	}
	retiring, done := context.WithCancel(ctx)
	err := r.Fleet.Retire(ctx, peer.Name, to != nil, r.left(retiring, peer, ctr, to))
	done()
	if err != nil {
		return fmt.Errorf("bring the pods home from %s: %w", peer.Name, err)
	}
	if to != nil {
		bounded, cancel := context.WithTimeout(ctx, goodbyeTimeout)
		defer cancel()
		if err := to.End(bounded, ctr.Spec.ID); err != nil {
			r.Log.Info("the peer will find out later that the contract ended", "peer", peer.Name, "contract", ctr.Spec.ID, "err", err)
		}
	}
	adv := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: peer.Name}}
	return client.IgnoreNotFound(r.Client.Delete(ctx, adv))
}

// askEvery is how often a peer that ended a contract is asked whether all under it is cleared away.
const askEvery = 500 * time.Millisecond

// left gives a channel that is closed when the peer has cleared away what was under the contract, because it ended
// the contract too, or cannot be reached any more: its door is shut then, and nobody tells that a pod has ended.
func (r *Consumer) left(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, to *peering.Client) <-chan struct{} {
	if to == nil {
		return nil
	}
	left := make(chan struct{})
	go func() {
		for {
			bounded, cancel := context.WithTimeout(ctx, goodbyeTimeout)
			refs, err := to.Contracts(bounded)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && !slices.ContainsFunc(refs, func(ref peering.ContractRef) bool { return ref.ID == ctr.Spec.ID }),
				err != nil && !r.Directory.Contact(peer).Reachable():
				close(left)
				return
			}
			select {
			case <-time.After(askEvery):
			case <-ctx.Done():
				return
			}
		}
	}()
	return left
}

// answering is the client of a peer that answers a call now, else nil: the contact of a laptop that lost its power still counts as reachable for
// some seconds.
func (r *Consumer) answering(ctx context.Context, peer *v1alpha1.Peer) *peering.Client {
	if !r.Directory.Contact(peer).Reachable() {
		return nil
	}
	to, err := r.Directory.Client(peer)
	if err != nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, goodbyeTimeout)
	defer cancel()
	if _, err := to.Hello(bounded); err != nil {
		return nil
	}
	return to
}
