package consumer

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
)

// conditionReflected, with the peer's name appended, is False on a NamespaceOffloading while something of the namespace
// cannot be at the peer, and says what. It is not there while all is well.
const conditionReflected = "Reflected."

// maxTold problems stand in a condition.
const maxTold = 10

// showProblems writes what cannot be reflected into the NamespaceOffloading, for people.
func (f *Fleet) showProblems(peer, namespace string, problems []string) {
	f.showCondition(peer, namespace, metav1.Condition{Type: conditionReflected + peer, Status: metav1.ConditionFalse, Reason: "Incomplete",
		Message: strings.Join(problems[:min(len(problems), maxTold)], "; ")})
}

// ConditionNamed, with the peer's name appended, is False on a NamespaceOffloading while the peer refuses to make its twin.
const ConditionNamed = "Named."

// showRefusal writes into the NamespaceOffloading that the peer will not make the twin, and why; nil: it made it.
func (f *Fleet) showRefusal(peer, namespace string, no *peering.Problem) {
	condition := metav1.Condition{Type: ConditionNamed + peer, Status: metav1.ConditionFalse, Reason: "Refused"}
	if no != nil {
		condition.Message = no.Error()
	}
	f.showCondition(peer, namespace, condition)
}

// showCondition sets a condition of a NamespaceOffloading; one without a message is taken away.
func (f *Fleet) showCondition(peer, namespace string, condition metav1.Condition) {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var nso v1alpha1.NamespaceOffloading
		if err := f.Client.Get(f.ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}, &nso); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := nso.DeepCopy()
		condition.ObservedGeneration = nso.Generation
		var changed bool
		if condition.Message == "" {
			changed = meta.RemoveStatusCondition(&nso.Status.Conditions, condition.Type)
		} else {
			changed = meta.SetStatusCondition(&nso.Status.Conditions, condition)
		}
		if !changed {
			return nil
		}
		return f.Client.Status().Patch(f.ctx, &nso, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		f.Log.Debug("condition not shown in the NamespaceOffloading", "namespace", namespace, "peer", peer, "err", err)
	}
}
