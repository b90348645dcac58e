package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/volumes"
)

var _ volumes.Peers = (*Fleet)(nil)

// Claim has a peer keep a volume for a claim of a home namespace, and a twin of that.
func (f *Fleet) Claim(ctx context.Context, peer, namespace, name string, claim *remote.Claim) (remote.ClaimState, error) {
	m, err := f.lender(ctx, peer)
	if err == nil && claim.Class != "" { // an older peer would not know the word, and lend of its default class
		err = f.grantsClass(ctx, peer, claim.Class)
	}
	if err != nil {
		return remote.ClaimState{}, err
	}
	if m.node.Twin(namespace) == "" {
		if err := m.node.Open(ctx, namespace); err != nil {
			return remote.ClaimState{}, err
		}
	}
	return m.remote.PutClaim(ctx, namespace, name, claim)
}

// grantsClass says why a peer gives no volume of a storage class there.
func (f *Fleet) grantsClass(ctx context.Context, peer, class string) error {
	var contracts v1alpha1.ContractList
	if err := f.Client.List(ctx, &contracts); err != nil {
		return err
	}
	for i := range contracts.Items {
		c := &contracts.Items[i]
		if granted := c.Grants(time.Now())[corev1.ResourceName(api.StorageOf(class))]; c.Spec.Role == v1alpha1.RoleConsumer && c.Spec.Peer == peer && granted.Sign() > 0 {
			return nil
		}
	}
	return peering.Refuse(peering.CodeForbidden, fmt.Sprintf("the contract with %s grants no storage of class %s: `kith peer %s --storage %s=AMOUNT` asks for some", peer, class, peer, class), "")
}

// Unclaim has it delete one. While there is a contract that has no member yet, or ends, it is tried again.
func (f *Fleet) Unclaim(ctx context.Context, peer, namespace, name string, uid types.UID) error {
	m, err := f.lender(ctx, peer)
	if errors.Is(err, volumes.ErrNoContract) {
		to, gone := f.former(ctx, peer)
		if gone == nil {
			gone = remote.DeleteKept(ctx, to, namespace, name, uid)
		}
		if gone != nil {
			return fmt.Errorf("%w (%w)", err, gone)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return m.remote.DeleteClaim(ctx, namespace, name, uid)
}

// Snapshot has a peer make a snapshot of a volume that it keeps, or say how far that is.
func (f *Fleet) Snapshot(ctx context.Context, peer, namespace, name string, s *remote.Snapshot) (remote.SnapshotState, error) {
	m, err := f.lender(ctx, peer)
	if err != nil {
		return remote.SnapshotState{}, err
	}
	if m.node.Twin(namespace) == "" {
		if err := m.node.Open(ctx, namespace); err != nil {
			return remote.SnapshotState{}, err
		}
	}
	state, err := m.remote.PutSnapshot(ctx, namespace, name, s)
	if errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		return state, peering.Refuse(peering.CodeNotFound, peer+" has an older Kith, which makes no snapshots of volumes", "bring it to this version there")
	}
	return state, err
}

// Unsnapshot has it delete one, as Unclaim does a volume. An older peer has none.
func (f *Fleet) Unsnapshot(ctx context.Context, peer, namespace, name string, uid types.UID) error {
	m, err := f.lender(ctx, peer)
	if errors.Is(err, volumes.ErrNoContract) {
		to, gone := f.former(ctx, peer)
		if gone != nil {
			return fmt.Errorf("%w (%w)", err, gone)
		}
		gone = remote.DeleteKeptSnapshot(ctx, to, namespace, name, uid)
		if _, said := errors.AsType[*peering.Problem](gone); gone != nil && !said { // nobody answers
			return fmt.Errorf("%w (%w)", err, gone)
		}
		return notOlder(gone)
	}
	if err != nil {
		return err
	}
	return notOlder(m.remote.DeleteSnapshot(ctx, namespace, name, uid))
}

// notOlder is an error, but for that of a peer that does not know the question.
func notOlder(err error) error {
	if errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		return nil
	}
	return err
}

// former speaks to a peer that there is no contract with.
func (f *Fleet) former(ctx context.Context, name string) (*peering.Client, error) {
	var peer v1alpha1.Peer
	if err := f.Client.Get(ctx, client.ObjectKey{Name: name}, &peer); err != nil {
		return nil, err
	}
	return f.Directory.Client(&peer)
}

// lender is the member for a peer. The error is volumes.ErrNoContract when there will be none.
func (f *Fleet) lender(ctx context.Context, peer string) (*member, error) {
	if m := f.member(peer); m != nil {
		return m, nil
	}
	var contracts v1alpha1.ContractList
	if err := f.Client.List(ctx, &contracts); err != nil {
		return nil, err
	}
	for i := range contracts.Items {
		if c := &contracts.Items[i]; c.Spec.Role == v1alpha1.RoleConsumer && c.Spec.Peer == peer {
			return nil, errors.New("the contract with " + peer + " is not in use yet, or ends")
		}
	}
	return nil, fmt.Errorf("%w: %s", volumes.ErrNoContract, peer)
}

// Copy opens a copy of the files of one, from the peer or into it. What a peer keeps since a contract ended can be had without one.
func (f *Fleet) Copy(ctx context.Context, peer, namespace, name string, uid types.UID, end remote.CopyEnd) (io.ReadWriteCloser, error) {
	m, err := f.lender(ctx, peer)
	if errors.Is(err, volumes.ErrNoContract) && end != remote.CopyInto {
		to, gone := f.former(ctx, peer)
		if gone != nil {
			return nil, err
		}
		return remote.CopyKept(ctx, to, namespace, name, uid, end)
	}
	if err != nil {
		return nil, err
	}
	files, err := m.remote.CopyClaim(ctx, namespace, name, uid, end)
	if errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
		return nil, peering.Refuse(peering.CodeNotFound, peer+" has an older Kith, which moves no volumes", "bring it to this version there")
	}
	return files, err
}

// keeps says which volumes, or snapshots, of a home namespace a peer keeps; "" when there are none. It asks past the cache, which may not show a new one yet.
func (f *Fleet) keeps(ctx context.Context, peer, namespace string) (string, error) {
	var all corev1.PersistentVolumeList
	if err := f.Fresh.List(ctx, &all); err != nil {
		return "", fmt.Errorf("see which volumes are at %s: %w", peer, err)
	}
	if held := volumes.Words(volumes.Held(all.Items, peer, namespace)); held != "" {
		return held, nil
	}
	snapshots, err := volumes.Snapshots(ctx, f.Fresh, peer, namespace)
	if err != nil {
		return "", fmt.Errorf("see which snapshots are at %s: %w", peer, err)
	}
	if held := volumes.SnapshotWords(snapshots); held != "" {
		return held, nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := f.Fresh.List(ctx, &claims, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("see which volumes go to %s: %w", peer, err)
	}
	for i := range claims.Items {
		if is := volumes.MoveOf(&claims.Items[i]); is != nil && is.Phase != volumes.Failed && is.To == v1alpha1.VirtualNodePrefix+peer {
			return fmt.Sprintf("%s/%s (on its way to %s)", namespace, claims.Items[i].Name, peer), nil
		}
	}
	return "", nil
}

// Discard has the peer that a volume is at delete it, with its data.
func (f *Fleet) Discard(ctx context.Context, v *corev1.PersistentVolume) error {
	return volumes.Discard(ctx, f, v)
}
