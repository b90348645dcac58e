package company

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Weigh says how a laptop's request to be tethered would be answered, and by which TetherPolicy; why is the reason of a no. For a stranger,
// pass the Peer that it would become.
func (c *Company) Weigh(ctx context.Context, peer *v1alpha1.Peer) (says peering.TetherAnswer, policy, why string, err error) {
	if c.tetheredTo("") {
		return peering.TetherNo, "", isLaptop, nil
	}
	of, err := c.policyFor(ctx, peer)
	if err != nil {
		return peering.TetherNo, "", "", err
	}
	if says, why = answer(of, peer); of != nil {
		policy = of.Name
	}
	return says, policy, why, nil
}

// isLaptop is why a cluster that is, or is about to be, tethered itself runs no laptop.
const isLaptop = "it is a tethered laptop itself"

// tetheredTo reports whether this cluster is tethered, or asks to be, to the cluster with this ID, or to any with "".
func (c *Company) tetheredTo(id string) bool {
	return slices.ContainsFunc(c.cfg.Client.Now().Peers, func(p *v1alpha1.Peer) bool {
		asks := p.Spec.Request != nil && p.Spec.Request.Tether
		runs := p.Status.Tether != nil && p.Status.Tether.Role == v1alpha1.TetherLaptop
		return (asks || runs) && (id == "" || p.Spec.ID == id)
	})
}

// Grant is the user name and the namespaces that the users of a laptop get here.
func (c *Company) Grant(ctx context.Context, peer *v1alpha1.Peer) (peering.TetherGrant, error) {
	grant := peering.TetherGrant{User: user(peer.Spec.ID), Namespaces: []peering.TetherNamespace{}}
	all, _, err := c.places(ctx, peer)
	for _, p := range all {
		grant.Namespaces = append(grant.Namespaces, peering.TetherNamespace{Name: p.namespace, Role: p.role})
	}
	return grant, err
}

// places lists the namespaces that the users of a laptop have here, or will have once they are created.
func (c *Company) places(ctx context.Context, peer *v1alpha1.Peer) (all []place, left []string, err error) {
	policy, err := c.policyFor(ctx, peer)
	if err != nil {
		return nil, nil, err
	}
	named, left := places(policy, peer)
	for _, p := range named {
		if !c.mayGive(p.role) {
			left = append(left, fmt.Sprintf("kithd may not give the ClusterRole %s here, so its users may do nothing in the namespace %s", p.role, p.namespace))
			continue
		}
		var ns corev1.Namespace
		err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: p.namespace}, &ns)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, nil, fmt.Errorf("look for the namespace %s: %w", p.namespace, err)
		case err == nil && p.own && !isFor(&ns, peer):
			left = append(left, notItsOwn(p.namespace, peer))
		default:
			all = append(all, p)
		}
	}
	return all, left, nil
}

// placesOf are those of the laptop with this ID. It answers from memory.
func (c *Company) placesOf(ctx context.Context, id string) ([]place, error) {
	peer := c.cfg.Client.Now().Peer(id)
	if peer == nil {
		return nil, nil
	}
	all, _, err := c.places(ctx, peer)
	return all, err
}

// isFor reports whether a namespace was made for this laptop, or given to it by a label.
func isFor(ns *corev1.Namespace, peer *v1alpha1.Peer) bool {
	return user(peer.Spec.ID) == UserPrefix+ns.Labels[v1alpha1.LabelLaptop]
}

func notItsOwn(namespace string, peer *v1alpha1.Peer) string {
	return fmt.Sprintf("the namespace %s was not made for %s: the label %s=%s on it would give it away",
		namespace, peer.Name, v1alpha1.LabelLaptop, strings.TrimPrefix(user(peer.Spec.ID), UserPrefix))
}

// Tether implements peering.Handler. It never answers CodeNotFound: a stranger gets TetherNo.
func (c *Company) Tether(ctx context.Context, caller peering.Caller) (peering.Tether, error) {
	peer := cmp.Or(c.cfg.Client.Now().Peer(caller.ID.String()), &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: caller.ID.String()}})
	if runs(peer) {
		return c.runsAnswer(ctx, peer)
	}
	says, _, why, err := c.Weigh(ctx, peer)
	if err != nil {
		return peering.Tether{}, err
	}
	t := peering.Tether{Answer: says, Why: why}
	// Strangers must not learn the names of namespaces here: they come with the yes.
	if says == peering.TetherYes || says == peering.TetherAsks && sharing.Accepted(peer) {
		grant, err := c.Grant(ctx, peer)
		if err != nil {
			return peering.Tether{}, err
		}
		t.Grant = &grant
	}
	return t, nil
}

// runs reports whether this cluster runs the laptop, and the laptop has not ended the tether itself.
func runs(peer *v1alpha1.Peer) bool {
	return peer.Spec.Tethered != nil && !refused(peer)
}

func refused(peer *v1alpha1.Peer) bool {
	t := peer.Status.Tether
	return t != nil && t.Role == v1alpha1.TetherCompany && t.Step == v1alpha1.TetherStepRefused
}

// runsAnswer is the answer to a laptop that this cluster runs.
func (c *Company) runsAnswer(ctx context.Context, peer *v1alpha1.Peer) (peering.Tether, error) {
	grant, err := c.Grant(ctx, peer)
	return peering.Tether{Answer: peering.TetherYes, Runs: true, Grant: &grant}, err
}

// BeginTether implements peering.Handler.
func (c *Company) BeginTether(ctx context.Context, caller peering.Caller) (peering.Tether, error) {
	c.beginning.Lock()
	defer c.beginning.Unlock()
	// What anybody wrote counts: the owner may have accepted a moment ago, and a laptop that hears CodeNotFound gives up.
	now, err := ledger.Read(ctx, c.cfg.Fresh)
	if err != nil {
		return peering.Tether{}, err
	}
	peer, request := now.Peer(caller.ID.String()), acceptedRequest(now, caller.ID.String())
	switch {
	case peer != nil && runs(peer):
		c.used(ctx, request)
		return c.begun(ctx, peer)
	case request == nil && peer != nil:
		return peering.Tether{}, peering.Refuse(peering.CodeNotFound, "it gave this laptop back", "tether it again: `kith tether`")
	case request == nil:
		return peering.Tether{}, peering.Refuse(peering.CodeForbidden, "nothing was accepted by which this laptop could be run", "ask first: `kith tether`")
	}
	if c.tetheredTo("") {
		return peering.Tether{}, peering.Refuse(peering.CodeConflict, isLaptop, "untether it first")
	}
	if peer, err = c.begin(ctx, caller.ID, request); err != nil {
		return peering.Tether{}, err
	}
	return c.begun(ctx, peer)
}

// begun answers once the laptop's users have their rights, so that their first request is not refused.
func (c *Company) begun(ctx context.Context, peer *v1alpha1.Peer) (peering.Tether, error) {
	if _, err := c.provide(ctx, peer); err != nil { // the reconciler tries again
		c.cfg.Log.Warn("the users of a tethered laptop have no rights yet", "peer", peer.Name, "err", err)
	}
	return c.runsAnswer(ctx, peer)
}

// acceptedRequest is the request of a laptop to be run that was accepted here; nil when there is none.
func acceptedRequest(now *ledger.Snapshot, id string) *v1alpha1.PeeringRequest {
	for _, r := range now.Requests {
		if r.Spec.Tether && r.Spec.PeerID == id && r.DeletionTimestamp == nil &&
			r.Status.Answer == v1alpha1.AnswerAccepted && time.Now().Before(r.Spec.Expires.Time) {
			return r
		}
	}
	return nil
}

// begin sets spec.tethered on the laptop's Peer; the reconciler does the rest.
func (c *Company) begin(ctx context.Context, id identity.ID, request *v1alpha1.PeeringRequest) (*v1alpha1.Peer, error) {
	peer, err := record.EnsurePeer(ctx, c.cfg.Client, id, request.Spec.PeerName, request.Spec.Endpoints, v1alpha1.SourceManual)
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Fresh.Get(ctx, client.ObjectKeyFromObject(peer), peer); err != nil {
		return nil, fmt.Errorf("read the peer %s: %w", peer.Name, err)
	}
	policy, compared, err := c.word(ctx, peer, request)
	if err != nil {
		return nil, err
	}
	if compared && !sharing.Accepted(peer) {
		if err := record.PatchStatus(ctx, c.cfg.Client, peer, func(s *v1alpha1.PeerStatus) { record.AcceptKey(s, "OwnerAccepted") }); err != nil {
			return nil, err
		}
	}
	// The status may still say that the last tether ended, which would end this one too.
	if err := record.PatchStatus(ctx, c.cfg.Client, peer, func(s *v1alpha1.PeerStatus) { s.Tether = nil }); err != nil {
		return nil, err
	}
	before := peer.DeepCopy()
	peer.Spec.Tethered = &v1alpha1.Tethered{Policy: policy}
	// The tether asks for all that the laptop has: an ordinary contract with it, if there is one, is replaced.
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: attempt(before) + 1}
	if err := c.cfg.Client.Patch(ctx, peer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("write down that %s is run by this cluster: %w", peer.Name, err)
	}
	c.cfg.Log.Info("laptop tethered", "peer", peer.Name, "id", id.String(), "policy", policy, "by", request.Status.AnsweredBy)
	c.used(ctx, request)
	return peer, nil
}

// used deletes the accepted request, if there is one, so that it cannot begin another tether after this one was ended here.
func (c *Company) used(ctx context.Context, request *v1alpha1.PeeringRequest) {
	if request == nil {
		return
	}
	if err := c.cfg.Client.Delete(ctx, request); client.IgnoreNotFound(err) != nil {
		c.cfg.Log.Warn("the accepted request stays until it expires", "request", request.Name, "err", err)
	}
}

// attempt is the number of the last question that a Peer has, put or not.
func attempt(peer *v1alpha1.Peer) int64 {
	last := peer.Status.Outgoing.Attempt
	if peer.Spec.Request != nil {
		last = max(last, peer.Spec.Request.Attempt)
	}
	return last
}

// word says by which policy a request was accepted, and whether that verified the laptop's key: by the code that the owner compared, or by
// its whole ID in the policy.
func (c *Company) word(ctx context.Context, peer *v1alpha1.Peer, request *v1alpha1.PeeringRequest) (policy string, compared bool, err error) {
	name := record.AnsweringPolicy(request)
	if name == "" {
		of, err := c.policyFor(ctx, peer)
		if err != nil || of == nil {
			return "", request.Spec.Code != "", err
		}
		return of.Name, request.Spec.Code != "", nil
	}
	var of v1alpha1.TetherPolicy
	if err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, &of); err != nil {
		return name, false, client.IgnoreNotFound(err)
	}
	return name, namesKey(&of, peer), nil
}

// EndTether implements peering.Handler.
func (c *Company) EndTether(ctx context.Context, caller peering.Caller) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := ledger.Read(ctx, c.cfg.Fresh) // the kithd that led before this one may have begun the tether
		if err != nil {
			return err
		}
		peer := now.Peer(caller.ID.String())
		if peer == nil || peer.Spec.Tethered == nil {
			return nil
		}
		if err := c.end(ctx, peer); err != nil {
			return err
		}
		// At once, not in the reconciler: after crashes of the API server its cache may be minutes behind.
		if err := c.withdraw(ctx, peer.Name); err != nil { // the reconciler tries again
			c.cfg.Log.Warn("the users of a laptop that is given back still have rights", "peer", peer.Name, "err", err)
		}
		return nil
	})
}

// end ends a tether: this cluster's pods are evicted from the laptop, and the contract ends. If the error is a conflict, reconcile again: it may
// be another tether by now.
func (c *Company) end(ctx context.Context, peer *v1alpha1.Peer) error {
	before := peer.DeepCopy()
	peer.Spec.Tethered, peer.Spec.Request = nil, nil
	if err := c.cfg.Client.Patch(ctx, peer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("give %s back: %w", peer.Name, err))
	}
	c.cfg.Log.Info("laptop given back", "peer", peer.Name)
	return nil
}
