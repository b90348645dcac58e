package volumes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/treecopy"
	"kith.dev/core/consume/remote"
)

// copying is a copy that is under way.
type copying struct {
	stop context.CancelCauseFunc
	to   string
	is   treecopy.Progress
}

// errChanged ends a copy that is not wanted any more.
var errChanged = errors.New("the move was given up, or is to lead elsewhere")

// look ends the copy of a claim that is not to be moved there any more.
func (m *Mover) look(claim client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.running[client.ObjectKeyFromObject(claim)]; c != nil && (claim.GetAnnotations()[v1alpha1.AnnotationMoveTo] != c.to || claim.GetDeletionTimestamp() != nil) {
		c.stop(errChanged)
	}
}

// Progress tells how far the copy of a claim is; false when none is under way.
func (m *Mover) Progress(claim types.NamespacedName) (treecopy.Progress, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.running[claim]; c != nil {
		return c.is, true
	}
	return treecopy.Progress{}, false
}

// busy reports whether the peer can begin soon, by its own word.
func busy(err error) bool {
	var no *peering.Problem
	return errors.As(err, &no) && no.Code == peering.CodeUnavailable
}

// refused reports whether it will not be had from the peer. That a contract is not in force, by the peer's word, home learns in a moment by itself.
func refused(err error) bool {
	var no *staysError
	return errors.As(err, &no) || final(err) && !errors.Is(err, &peering.Problem{Code: peering.CodeNoContract})
}

// gaveUp reports whether an end of the copy gave it up, as with a full disk; else it was cut.
func gaveUp(err error) bool {
	var why *treecopy.FailedError
	return errors.As(err, &why)
}

// copy carries the files of a claim's volume to where it is to be.
func (m *Mover) copy(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move, still bool) (treecopy.Stats, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	key := client.ObjectKeyFromObject(claim)
	c := &copying{stop: stop, to: is.To}
	m.mu.Lock()
	m.running[key] = c
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.running, key)
	}()
	// A change between the reading of the claim and this is not missed.
	var now corev1.PersistentVolumeClaim
	if err := m.fresh.Get(ctx, key, &now); err != nil {
		return treecopy.Stats{}, err
	}
	m.look(&now)
	var ends sync.WaitGroup
	defer ends.Wait()
	into, err := m.open(ctx, &ends, claim, is.To, still, true, is.Policy) // first: it may have to be made
	if err != nil {
		return treecopy.Stats{}, err
	}
	from, err := m.open(ctx, &ends, claim, is.From, still, false, is.Policy)
	if err != nil {
		into.Close()
		return treecopy.Stats{}, err
	}
	return treecopy.Relay(ctx, from, into, rateOf(claim), func(p treecopy.Progress) {
		m.mu.Lock()
		defer m.mu.Unlock()
		c.is = p
	})
}

// rateOf is how fast a claim's files may be copied; nil for as fast as it goes.
func rateOf(claim *corev1.PersistentVolumeClaim) *rate.Limiter {
	q, err := resource.ParseQuantity(claim.Annotations[v1alpha1.AnnotationMoveRate])
	if err != nil || q.Value() <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(q.Value()), 256<<10)
}

// open opens one end of a copy, at home or at a peer.
func (m *Mover) open(ctx context.Context, ends *sync.WaitGroup, claim *corev1.PersistentVolumeClaim, node string, still, into bool, policy corev1.PersistentVolumeReclaimPolicy) (io.ReadWriteCloser, error) {
	if node != m.node {
		peer := strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix)
		end := remote.CopyFrom
		switch {
		case into:
			end = remote.CopyInto
			if err := m.mayGo(ctx, claim, node); err != nil {
				return nil, err
			}
			class, err := m.classOf(ctx, claim)
			if err != nil {
				return nil, err
			}
			if _, err := m.peers.Claim(ctx, peer, claim.Namespace, claim.Name, asked(claim, class, sizeOf(claim))); err != nil {
				return nil, err
			}
		case still:
			end = remote.CopyFromStill
		}
		return m.peers.Copy(ctx, peer, claim.Namespace, claim.Name, claim.UID, end)
	}
	v, err := m.at(ctx, claim, node, policy)
	if err != nil {
		return nil, err
	}
	folder, err := Folder(v, m.node)
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	ends.Go(func() {
		if into {
			size := sizeOf(claim)
			_, err = treecopy.Receive(ctx, theirs, folder, treecopy.LimitsOf(size.Value()))
		} else {
			_, err = treecopy.Send(ctx, theirs, folder, treecopy.Options{Still: still})
		}
		if err != nil {
			m.log.Log(ctx, slog.LevelDebug, "this end of a copy broke off", "claim", claim.Name, "err", err)
		}
	})
	return ours, nil
}
