package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/custom"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/consume/reflection"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/virtualnode"
	"kith.dev/core/consume/volumes"
)

// twins has a peer make and clear away the namespaces abroad, as the NamespaceOffloadings here want them, and shows there what came
// of it. What pods need in them comes and goes with them.
type twins struct {
	*reflection.Reflector
	policies *netpolicy.Peer
	custom   *custom.Peer
	remote   *remote.Client
	fleet    *Fleet
	peer, id string // of the peer
}

var (
	_ virtualnode.Twins      = (*twins)(nil)
	_ virtualnode.Companions = (*twins)(nil)
)

// Ensure makes sure that the home namespace has its twin.
func (t *twins) Ensure(ctx context.Context, home string) (string, error) {
	var nso v1alpha1.NamespaceOffloading
	err := t.fleet.Client.Get(ctx, client.ObjectKey{Namespace: home, Name: v1alpha1.NamespaceOffloadingName}, &nso)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	var of *v1alpha1.ChainLink
	if onward, is := t.fleet.onward(home, t.id); is {
		if err := onward.Known(home); err != nil {
			return "", err
		}
		of = &onward.Link
	}
	twin, asked := t.remote.EnsureTwin(ctx, home, cmp.Or(nso.Spec.Mapping, v1alpha1.MappingDefault), of)
	var no *peering.Problem
	if err == nil && (asked == nil || errors.As(asked, &no)) {
		t.fleet.showRefusal(t.peer, home, no)
	}
	if asked != nil {
		return "", fmt.Errorf("make the twin of namespace %s: %w", home, asked)
	}
	t.Found(home, twin, false)
	if err == nil {
		t.record(ctx, &nso, twin)
	}
	return twin, nil
}

// record shows the twin in the NamespaceOffloading, for people.
func (t *twins) record(ctx context.Context, nso *v1alpha1.NamespaceOffloading, abroad string) {
	before := nso.DeepCopy()
	twin := v1alpha1.PeerNamespace{Peer: t.peer, Namespace: abroad}
	if slices.Contains(nso.Status.Twins, twin) {
		return
	}
	nso.Status.Twins = slices.DeleteFunc(nso.Status.Twins, func(old v1alpha1.PeerNamespace) bool { return old.Peer == t.peer })
	nso.Status.Twins = append(nso.Status.Twins, twin)
	if err := t.fleet.Client.Status().Patch(ctx, nso, client.MergeFrom(before)); err != nil {
		t.fleet.Log.Debug("twin not shown in the NamespaceOffloading", "namespace", nso.Namespace, "peer", t.peer, "err", err)
	}
}

// Found starts copying objects and policies into a twin that exists.
func (t *twins) Found(home, abroad string, settled bool) {
	t.policies.Open(home)
	t.Reflector.Open(home, abroad, !settled)
	t.custom.Opened(home)
}

// Gone ends that.
func (t *twins) Gone(home string) {
	t.policies.Close(home)
	t.Reflector.Close(home)
}

// Release has the peer clear the twin away, with all in it, unless that has volumes: nothing of home is deleted that nobody named. Nothing is
// reflected there from now on.
func (t *twins) Release(ctx context.Context, home string) error {
	keeps, err := t.fleet.keeps(ctx, t.peer, home)
	if err != nil {
		return err
	}
	if keeps != "" {
		return fmt.Errorf("it keeps data of claims here, %s: whoever deletes these claims, or VolumeSnapshots, deletes the data", keeps)
	}
	t.Gone(home)
	return t.remote.ReleaseTwin(ctx, home)
}

// Prepare sends everything that a pod needs to the peer before the pod: the NetworkPolicies first. Its claims may be under a new contract.
func (t *twins) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if err := t.policies.Prepare(ctx); err != nil {
		return err
	}
	claims, err := volumes.Of(ctx, t.fleet.Fresh, pod, t.peer)
	if err != nil {
		return err
	}
	for _, c := range claims {
		if _, err := t.remote.PutClaim(ctx, pod.Namespace, c.Name, c.Claim); err != nil {
			return fmt.Errorf("volume of claim %s: %w", c.Name, err)
		}
	}
	return t.Reflector.Prepare(ctx, pod)
}

// noPolicies reports whether a peer will not take policies however often they are sent, and why.
func noPolicies(err error) (why string, final bool) {
	var problem *peering.Problem
	if !errors.As(err, &problem) {
		return "", false
	}
	switch problem.Code {
	case peering.CodeNotFound:
		return "the Kith there is older and knows none", true
	case peering.CodeForbidden, peering.CodeBadRequest, peering.CodeTooLarge:
		return problem.Message, true
	}
	return "", false
}
