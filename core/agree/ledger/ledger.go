// Package ledger is the memory of what was agreed: which Peers and Contracts there are, what waits for an answer, and what the owner shares.
// It has what the informers' caches have and, before they do, what this process itself wrote.
//
// Whoever asks "the contract with this peer", "the peer with this ID" asks here. It must never decide anything, and nobody may change what
// it gives: its objects are those of the caches.
package ledger

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Snapshot is what the ledger says at one moment. The objects are shared: who changes one takes a DeepCopy first.
type Snapshot struct {
	Peers     []*v1alpha1.Peer
	Contracts []*v1alpha1.Contract // those that are ending too
	Requests  []*v1alpha1.PeeringRequest
	Policies  []v1alpha1.SharingPolicy
}

// Read asks the API server, or what cache c is, and not the memory. Countersigning does, since another kithd may have signed before this one
// came to lead.
func Read(ctx context.Context, c client.Reader) (*Snapshot, error) {
	var contracts v1alpha1.ContractList
	var peers v1alpha1.PeerList
	var requests v1alpha1.PeeringRequestList
	var policies v1alpha1.SharingPolicyList
	for _, list := range []client.ObjectList{&contracts, &peers, &requests, &policies} { // in this order: a peer is there before its contract is
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("read what was agreed: %w", err)
		}
	}
	return &Snapshot{Peers: pointers(peers.Items), Contracts: pointers(contracts.Items), Requests: pointers(requests.Items), Policies: policies.Items}, nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// Peer is the one with that ID (identity.ID.String); nil when it is not known.
func (s *Snapshot) Peer(id string) *v1alpha1.Peer {
	for _, p := range s.Peers {
		if p.Spec.ID == id {
			return p
		}
	}
	return nil
}

// PeerNamed is the one of that name; nil without one.
func (s *Snapshot) PeerNamed(name string) *v1alpha1.Peer {
	for _, p := range s.Peers {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// With are the contracts with a peer in one role or, with "", in either; those that are ending too.
func (s *Snapshot) With(peer string, role v1alpha1.Role) (all []*v1alpha1.Contract) {
	for _, c := range s.Contracts {
		if c.Spec.Peer == peer && (role == "" || c.Spec.Role == role) {
			all = append(all, c)
		}
	}
	return all
}

// InForce is the contract with a peer in one role that is not being ended; nil when there is none.
func (s *Snapshot) InForce(peer string, role v1alpha1.Role) *v1alpha1.Contract {
	return Live(s.With(peer, role))
}

// Live is the contract of the list that is not being ended; nil when there is none.
func Live(list []*v1alpha1.Contract) *v1alpha1.Contract {
	for _, c := range list {
		if c.DeletionTimestamp == nil && c.Status.State != v1alpha1.StateEnding {
			return c
		}
	}
	return nil
}
