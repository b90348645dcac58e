package offloading

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Permit says what pods of a home namespace may do at a peer. It does not depend on what they tolerate.
type Permit int

const (
	// Withdrawn: no pods of the namespace may be at the peer, nor a twin of it. It is the zero value.
	Withdrawn Permit = iota
	// Refused: pods that run there may stay; no others may go, or wait on the peer's node.
	Refused
	// Closed: as Refused, for a time; a twin that is there stays, with its services, for what runs there of other namespaces of this cluster.
	Closed
	// Reflected: as Refused; but a twin of the namespace is there, with its services, for what else runs there of this cluster.
	Reflected
	// Ending: no more pods may go; all that are on the peer's node will be evicted in a moment.
	Ending
	// Granted: they may go.
	Granted
)

// notOffloaded is said of pods in NAMESPACE by admission and by virtual nodes alike.
const notOffloaded = "namespace NAMESPACE is not offloaded, so none of its pods runs at a peer, whatever it tolerates (kith offload NAMESPACE lets them)"

// noNodeDebug is said of what `kubectl debug node/NODE` makes for a peer's NODE.
const noNodeDebug = "node NODE is a peer, and kubectl debug node/NODE would enter its owner's machine, which guests may not; a pod there is looked into with kubectl debug POD, and kith doctor tells of the way to the peer"

// debuggerPrefix starts the names of the pods that it makes; the name of the node follows.
const debuggerPrefix = "node-debugger-"

// NodeDebugger reports whether a pod is one that `kubectl debug node/NODE` made for its node, and what to say then of its refusal.
func NodeDebugger(pod *corev1.Pod) (why string, is bool) {
	node := pod.Spec.NodeName
	return strings.ReplaceAll(noNodeDebug, "NODE", node), node != "" && strings.HasPrefix(pod.Name, debuggerPrefix+node+"-")
}

// PermitOf reads a NamespaceOffloading, which is nil where there is none, for a peer. When it is not Granted, why is a sentence for
// the owner of the pod.
func PermitOf(namespace string, nso *v1alpha1.NamespaceOffloading, peer string) (permit Permit, why string) {
	switch {
	case nso == nil:
		return Withdrawn, strings.ReplaceAll(notOffloaded, "NAMESPACE", namespace)
	case nso.DeletionTimestamp != nil:
		return Ending, fmt.Sprintf("namespace %s is being brought home", namespace)
	case len(nso.Spec.Peers) > 0 && !slices.Contains(nso.Spec.Peers, peer):
		return Refused, fmt.Sprintf("namespace %s is offloaded to %s, not to %s", namespace, strings.Join(nso.Spec.Peers, ", "), peer)
	case nso.Spec.Strategy == v1alpha1.StrategyLocal:
		return Reflected, fmt.Sprintf("namespace %s is offloaded with strategy %s: its pods run at home", namespace, v1alpha1.StrategyLocal)
	}
	if _, why := closedBy(nso, peer); why != "" {
		return Closed, why
	}
	return Granted, ""
}

// Permits reads which namespaces may go where.
type Permits struct {
	cached, fresh client.Reader
}

// NewPermits makes Permits that read from a cache. Before they refuse they read from the API server: a refused pod may fail for good, and the
// cache may not have the NamespaceOffloading yet under which the API server admitted the pod.
func NewPermits(cached, fresh client.Reader) *Permits { return &Permits{cached: cached, fresh: fresh} }

// Moves reports whether pods of a home namespace do not wait at a peer that goes to sleep.
func (p *Permits) Moves(ctx context.Context, namespace string) (bool, error) {
	var nso v1alpha1.NamespaceOffloading
	if err := p.cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}, &nso); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return nso.Spec.WhenAsleep == v1alpha1.AsleepMove, nil
}

// Of gives the permit of a home namespace for a peer, and why it is not Granted.
func (p *Permits) Of(ctx context.Context, namespace, peer string) (permit Permit, why string, err error) {
	for _, reader := range []client.Reader{p.cached, p.fresh} {
		nso := &v1alpha1.NamespaceOffloading{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}, nso)
		switch {
		// With that cause it is the kind that was not found.
		case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
			nso = nil
		case err != nil:
			return Withdrawn, "", fmt.Errorf("see whether namespace %s is offloaded: %w", namespace, err)
		}
		if permit, why = PermitOf(namespace, nso, peer); permit == Granted || permit == Ending { // which nobody takes back
			break
		}
	}
	return permit, why, nil
}
