package guests

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// lessen evicts the guest if it is one of those that no longer fit into the contract, which was lowered. Each guest under it is looked at, and finds the
// same: who goes changes nothing about who stays.
func (r *Reconciler) lessen(ctx context.Context, o *observed) error {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: o.terms.Consumer.Compact}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("see which guests no longer fit into contract %s: %w", o.terms.Contract, err)
	}
	var under []*corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOf(pod); pod.DeletionTimestamp != nil || over(pod) || owner == nil || owner.Kind != "OffloadedPod" {
			continue
		}
		if t := r.contracts.TermsIn(pod.Namespace); t != nil && t.Contract == o.terms.Contract {
			under = append(under, pod)
		}
	}
	if !slices.ContainsFunc(noLongerFit(under, o.terms.Limit), func(p *corev1.Pod) bool { return p.UID == o.pod.UID }) {
		return nil
	}
	why := fmt.Sprintf("the contract was lowered to %s, and pods that matter more at home, or are older, have that", api.Change(nil, sharing.Words(o.terms.Limit), nil))
	r.log.Info("guest is evicted, the contract was lowered", "peer", o.terms.Consumer.Name, "namespace", o.key.Namespace, "pod", o.key.Name, "contract", o.terms.Contract)
	r.event(o.pod, corev1.EventTypeWarning, grants.ReasonNoLonger, "%s", why)
	return r.evict(ctx, o.pod, endsIn(o.pod), grants.ReasonNoLonger, why)
}

// noLongerFit are the guests that go, so that the others are within the limit: those that matter most at home stay first, the oldest of them before the
// others, and a lesser one stays where it still fits.
func noLongerFit(pods []*corev1.Pod, limit corev1.ResourceList) (leave []*corev1.Pod) {
	order := slices.Clone(pods)
	slices.SortFunc(order, mattersMore)
	sum := corev1.ResourceList{}
	for _, pod := range order {
		next, fits := sum.DeepCopy(), true
		for name, q := range requestsOf(pod) {
			total := next[name]
			total.Add(q)
			next[name] = total
			if most := limit[name]; total.Cmp(most) > 0 {
				fits = false
			}
		}
		if !fits {
			leave = append(leave, pod)
			continue
		}
		sum = next
	}
	return leave
}
