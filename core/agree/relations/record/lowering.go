package record

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// SetLowering writes the notice by which a contract is lowered, nil for none, and the condition that follows from it now. changed: the notice is another one.
func SetLowering(ctx context.Context, c client.Client, ctr *v1alpha1.Contract, is *v1alpha1.Lowering, now time.Time) (changed bool, err error) {
	next := ctr.DeepCopy()
	next.Status.Lowering = is
	if is != nil || meta.FindStatusCondition(ctr.Status.Conditions, v1alpha1.ConditionAsSigned) != nil {
		meta.SetStatusCondition(&next.Status.Conditions, asSigned(ctr, next, now))
	}
	if equality.Semantic.DeepEqual(ctr.Status, next.Status) {
		return false, nil
	}
	changed = !equality.Semantic.DeepEqual(ctr.Status.Lowering, is)
	if err := c.Status().Patch(ctx, next, client.MergeFromWithOptions(ctr, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return changed, nil
}

// asSigned says whether what was signed is granted, and for how long. was is the contract before.
func asSigned(was, ctr *v1alpha1.Contract, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAsSigned, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsSigned, Message: "what was signed is granted"}
	l := ctr.Status.Lowering
	if l == nil {
		if old := was.Status.Lowering; old != nil && sharing.Same(old.Resources, ctr.Spec.Resources) || old == nil && was.Lowered(now) {
			c.Reason, c.ObservedGeneration = v1alpha1.ReasonNowSigned, ctr.Generation
		}
		return c
	}
	if c.Reason, c.Message = v1alpha1.ReasonNoticeGiven, Lowered(ctr); !sharing.Same(ctr.Grants(now), ctr.Spec.Resources) {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonLowered
	}
	return c
}

// Lowered says in words to what a contract is lowered, and when.
func Lowered(ctr *v1alpha1.Contract) string {
	l := ctr.Status.Lowering
	return fmt.Sprintf("%s, from %s", api.Change(sharing.Words(ctr.Spec.Resources, l.Resources), sharing.Words(l.Resources), nil), l.From.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// LoweredDocument is the revision by which a contract is lowered: all of the document but the amounts stays as it was signed, its times too.
func LoweredDocument(old contract.Document, resources map[string]string) contract.Document {
	doc := old
	doc.Revision++
	doc.Resources = resources
	return doc
}
