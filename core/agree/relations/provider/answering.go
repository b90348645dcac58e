package provider

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// Pending tells whether a request still waits for an answer.
func Pending(r *v1alpha1.PeeringRequest) bool {
	unanswered := r.Status.Answer == "" || r.Status.Answer == v1alpha1.AnswerPending
	return unanswered && time.Now().Before(r.Spec.Expires.Time)
}

// Decline declines a request, as its owner.
func Decline(ctx context.Context, c client.Client, r *v1alpha1.PeeringRequest) error {
	return answer(ctx, c, r, v1alpha1.AnswerDeclined, "", "")
}

// maxReason of a decline, in bytes; longer ones are cut.
const maxReason = 256

// answer writes an answer down. The policy is the one that gives it; "" when the owner does, or when nobody did in time.
func answer(ctx context.Context, c client.Client, r *v1alpha1.PeeringRequest, answer v1alpha1.Answer, policy, reason string) error {
	before := r.DeepCopy()
	r.Status.Answer, r.Status.Policy, r.Status.AnsweredBy, r.Status.Reason = answer, policy, record.AnsweredBy(answer, policy), wire.Cut(reason, maxReason)
	if err := c.Status().Patch(ctx, r, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("answer request %s: %w", r.Name, err)
	}
	return nil
}

// SetupWithManager registers what reacts to requests. Pods are not watched: what the owner's own request is looked at when somebody
// asks, looks or accepts, and what a request says is not written again for each that starts.
func (p *Provider) SetupWithManager(mgr ctrl.Manager) error {
	grants := handler.EnqueueRequestsFromMapFunc(p.waiting)
	return ctrl.NewControllerManagedBy(mgr).Named("peeringrequest").
		For(&v1alpha1.PeeringRequest{}).
		Watches(&v1alpha1.SharingPolicy{}, grants).
		Watches(&v1alpha1.Contract{}, grants, builder.WithPredicates(promising)).
		Watches(&corev1.Node{}, grants, builder.WithPredicates(allocatable)).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(p)
}

// Reconcile looks at one PeeringRequest: it notifies those who wait, keeps what a yes would give up to date, and clears
// away what is over.
func (p *Provider) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p.answers.Notify()
	var r v1alpha1.PeeringRequest
	if err := p.Client.Get(ctx, req.NamespacedName, &r); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch over := time.Until(r.Spec.Expires.Time.Add(record.Afterwards)); {
	case over <= 0:
		return ctrl.Result{}, client.IgnoreNotFound(p.Client.Delete(ctx, &r))
	case r.Status.Answer == "" || r.Status.Answer == v1alpha1.AnswerPending:
		if left := time.Until(r.Spec.Expires.Time); left > 0 {
			if opens := p.hoursChange(ctx, &r); opens > 0 {
				left = min(left, opens)
			}
			return record.Calm(ctrl.Result{RequeueAfter: left}, client.IgnoreNotFound(p.keepGrant(ctx, &r)))
		}
		return ctrl.Result{RequeueAfter: over}, p.expire(ctx, &r)
	default:
		return ctrl.Result{RequeueAfter: over}, nil
	}
}

// hoursChange is how long it is until the hours of the policy that applies to who asks let something be offered, or nothing any more; 0 where
// they never do.
func (p *Provider) hoursChange(ctx context.Context, r *v1alpha1.PeeringRequest) time.Duration {
	id, err := identity.ParseID(r.Spec.PeerID)
	if err != nil {
		return 0
	}
	now := p.Client.Now()
	policy, err := p.policyFor(ctx, now, asPeer(now, id, r.Spec.PeerName))
	if err != nil {
		return 0
	}
	changes := sharing.Turns(policy, time.Now(), holds)
	if changes.IsZero() {
		return 0
	}
	return max(time.Until(changes), time.Millisecond)
}

func (p *Provider) expire(ctx context.Context, r *v1alpha1.PeeringRequest) error {
	if err := answer(ctx, p.Client, r, v1alpha1.AnswerExpired, "", ""); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.Announce(api.Event{
		Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: r.Spec.PeerName, Object: "request/" + r.Name,
		Message: "the request of " + r.Spec.PeerName + " expired without an answer", Direction: api.Incoming, State: api.StateExpired,
	})
	return nil
}
