package offloading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/receipt"
)

// A budget closes peers to the pods of a namespace: those that are priced in its currency when it is spent, until its period ends, and those that are
// priced in another one always, for nobody knows what these come to. Free peers stay open. What the admission policies need of that is on the namespace:
// new pods tolerate the open peers only, and no pod is bound to the node of a closed one, whatever it tolerates. What runs there stays.

// Purse tells what pods at peers cost.
type Purse interface {
	// Currencies are those in which peers with a contract are priced, by their names; "" of one that is free.
	Currencies() map[string]string
	// Spent is what pods of a namespace came to in a currency since a moment, and what they come to in an hour as they are now.
	Spent(namespace, currency string, since time.Time) (spent, perHour *big.Rat, err error)
	// Changed gives a channel that is closed when that may be otherwise than it was.
	Changed() <-chan struct{}
}

// Period gives the bounds of the period that a moment is in. Days begin at midnight, UTC, weeks on Mondays.
func Period(of v1alpha1.BudgetPeriod, now time.Time) (since, until time.Time) {
	now = now.UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch of {
	case v1alpha1.BudgetHour:
		since = now.Truncate(time.Hour)
		return since, since.Add(time.Hour)
	case v1alpha1.BudgetWeek:
		since = day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
		return since, since.AddDate(0, 0, 7)
	case v1alpha1.BudgetMonth:
		since = day.AddDate(0, 0, 1-day.Day())
		return since, since.AddDate(0, 1, 0)
	}
	return day, day.AddDate(0, 0, 1)
}

// A budget is nearly spent from nearly of steps on; each step is told in the status.
const (
	steps  = 100
	nearly = 80
)

// assess says how a budget stands, and when it may stand otherwise though nothing changes. before is what was said last, nil when nothing was.
func assess(b v1alpha1.NamespaceBudget, peers []string, currencies map[string]string, spent, perHour *big.Rat, now time.Time, before *v1alpha1.BudgetStatus) (*v1alpha1.BudgetStatus, time.Duration, error) {
	price, err := contract.ParsePrice(b.Amount)
	if err != nil {
		return nil, 0, fmt.Errorf("budget: %w", err)
	}
	since, until := Period(b.Period, now)
	is := &v1alpha1.BudgetStatus{NamespaceBudget: b, Since: metav1.NewTime(since), Until: metav1.NewTime(until), State: v1alpha1.BudgetWithin}
	atLeast := func(step int64) bool { // spent·steps ≥ amount·step
		return new(big.Rat).Mul(spent, big.NewRat(steps, 1)).Cmp(new(big.Rat).Mul(price.Amount, big.NewRat(step, 1))) >= 0
	}
	switch {
	case atLeast(steps):
		is.State = v1alpha1.BudgetSpent
	case atLeast(nearly):
		is.State = v1alpha1.BudgetNearly
	}
	for _, peer := range slices.Sorted(maps.Keys(currencies)) {
		currency := currencies[peer]
		if currency == "" || len(peers) > 0 && !slices.Contains(peers, peer) {
			continue
		}
		if currency != price.Currency {
			is.Closed = append(is.Closed, v1alpha1.ClosedPeer{Peer: peer, Reason: v1alpha1.ClosedOtherCurrency})
		} else if is.State == v1alpha1.BudgetSpent {
			is.Closed = append(is.Closed, v1alpha1.ClosedPeer{Peer: peer, Reason: v1alpha1.ClosedSpent})
		}
	}
	next := until.Sub(now)
	is.Spent = money(spent)
	step := new(big.Rat).Quo(price.Amount, big.NewRat(steps, 1))
	told := step
	if part := new(big.Rat).Quo(spent, big.NewRat(steps, 1)); is.State == v1alpha1.BudgetSpent && part.Cmp(step) > 0 {
		told = part // what runs there goes on costing, however small the budget is
	}
	if before != nil && before.NamespaceBudget == b && before.Since.Time.Equal(since) && before.State == is.State {
		if last, ok := new(big.Rat).SetString(before.Spent); ok && last.Cmp(spent) <= 0 && new(big.Rat).Sub(spent, last).Cmp(told) < 0 {
			is.Spent = before.Spent // each step is one write
		}
	}
	if perHour.Sign() > 0 && is.State != v1alpha1.BudgetSpent { // to the end of the step, which is the threshold at last
		done := new(big.Rat).Quo(spent, step)
		whole := new(big.Int).Quo(done.Num(), done.Denom())
		left := new(big.Rat).Sub(new(big.Rat).Mul(step, new(big.Rat).SetInt(whole.Add(whole, big.NewInt(1)))), spent)
		hours, _ := left.Quo(left, perHour).Float64()
		if soon := hours * float64(time.Hour); soon < float64(next) {
			next = max(time.Second, time.Duration(soon)+time.Millisecond)
		}
	}
	return is, next, nil
}

// money writes an amount to nine places, without zeros at its end.
func money(amount *big.Rat) string {
	n := new(big.Rat).Mul(amount, big.NewRat(1_000_000_000, 1))
	return receipt.Money(new(big.Int).Quo(n.Num(), n.Denom()))
}

// budget keeps what the status says of the budget, and tells when it changes; next is when to look again, 0 for never.
func (r *Reconciler) budget(ctx context.Context, nso *v1alpha1.NamespaceOffloading) (next time.Duration, err error) {
	before := nso.Status.Budget
	var is *v1alpha1.BudgetStatus
	if b := nso.Spec.Budget; b != nil && r.Purse != nil {
		price, err := contract.ParsePrice(b.Amount)
		if err != nil {
			return 0, fmt.Errorf("budget of namespace %s: %w", nso.Namespace, err)
		}
		now := time.Now()
		since, _ := Period(b.Period, now)
		spent, perHour, err := r.Purse.Spent(nso.Namespace, price.Currency, since)
		if err != nil {
			return 0, fmt.Errorf("what pods of namespace %s came to: %w", nso.Namespace, err)
		}
		if is, next, err = assess(*b, nso.Spec.Peers, r.Purse.Currencies(), spent, perHour, now, before); err != nil {
			return 0, err
		}
	}
	if equality.Semantic.DeepEqual(before, is) {
		return next, nil
	}
	nso.Status.Budget = is
	if err := r.client.Status().Update(ctx, nso); err != nil {
		return 0, err
	}
	r.tellBudget(nso, before, is)
	return next, nil
}

// tellBudget writes an event when a budget is nearly spent, when it is spent, and when pods may go again.
func (r *Reconciler) tellBudget(nso *v1alpha1.NamespaceOffloading, before, is *v1alpha1.BudgetStatus) {
	was := v1alpha1.BudgetWithin
	if before != nil && (is == nil || before.Since.Equal(&is.Since)) {
		was = before.State
	}
	kind := corev1.EventTypeWarning
	var reason, text string
	switch {
	case is == nil:
		return
	case is.State == v1alpha1.BudgetSpent && was != v1alpha1.BudgetSpent:
		reason, text = "BudgetSpent", "so no more pods of it go to peers at a price until "+moment(is.Until.Time)+"; those that run there stay"
	case is.State == v1alpha1.BudgetNearly && was == v1alpha1.BudgetWithin:
		reason, text = "BudgetNearlySpent", "when all of it is, no more pods go to peers at a price until "+moment(is.Until.Time)
	case before != nil && before.State == v1alpha1.BudgetSpent && is.State != v1alpha1.BudgetSpent:
		kind, reason, text = corev1.EventTypeNormal, "BudgetRenewed", "pods may go to peers again"
	default:
		return
	}
	text = fmt.Sprintf("%s of %s are spent, %s", is.Spent, PerPeriod(is.NamespaceBudget), text)
	r.log.Info("budget of a namespace", "namespace", nso.Namespace, "state", is.State, "says", text)
	if r.events != nil {
		r.events.Eventf(nso, nil, kind, reason, "Offloading", "%s", text)
	}
}

// PerPeriod writes a budget as people do: "5 EUR/day".
func PerPeriod(b v1alpha1.NamespaceBudget) string {
	return b.Amount + "/" + strings.ToLower(string(b.Period))
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") + " UTC" }

// closedBy says why the budget of a namespace keeps its pods from a peer; "" when it does not.
func closedBy(nso *v1alpha1.NamespaceOffloading, peer string) (reason v1alpha1.ClosedReason, why string) {
	is := nso.Status.Budget
	if nso.Spec.Budget == nil || is == nil {
		return "", ""
	}
	for _, c := range is.Closed {
		if c.Peer != peer {
			continue
		}
		if c.Reason == v1alpha1.ClosedOtherCurrency {
			return c.Reason, fmt.Sprintf("namespace %s has a budget of %s, and %s is priced in another currency", nso.Namespace, PerPeriod(is.NamespaceBudget), peer)
		}
		return c.Reason, fmt.Sprintf("namespace %s has spent its budget of %s, and %s has a price: no more of its pods go there until %s", nso.Namespace, PerPeriod(is.NamespaceBudget), peer, moment(is.Until.Time))
	}
	return "", ""
}

// ClosedBy says whether, and why, the budget of a namespace keeps its pods from a peer; "" when it does not.
func ClosedBy(nso *v1alpha1.NamespaceOffloading, peer string) v1alpha1.ClosedReason {
	if nso == nil {
		return ""
	}
	reason, _ := closedBy(nso, peer)
	return reason
}

// Spent is what pods of a namespace with a budget came to in its period; "" when that is not known.
func (r *Reconciler) Spent(nso *v1alpha1.NamespaceOffloading) string {
	if r.Purse == nil || nso.Spec.Budget == nil {
		return ""
	}
	price, err := contract.ParsePrice(nso.Spec.Budget.Amount)
	if err != nil {
		return ""
	}
	since, _ := Period(nso.Spec.Budget.Period, time.Now())
	spent, _, err := r.Purse.Spent(nso.Namespace, price.Currency, since)
	if err != nil {
		r.log.Warn("what pods of a namespace came to is not known", "namespace", nso.Namespace, "err", err)
		return ""
	}
	return money(spent)
}

// open are the peers that a budget leaves open, and whether it closes any.
func (r *Reconciler) open(nso *v1alpha1.NamespaceOffloading) (peers []string, narrowed bool) {
	is := nso.Status.Budget
	if nso.Spec.Budget == nil || is == nil || len(is.Closed) == 0 || nso.Spec.Strategy == v1alpha1.StrategyLocal {
		return nil, false
	}
	all := nso.Spec.Peers
	if len(all) == 0 && r.Purse != nil {
		all = slices.Sorted(maps.Keys(r.Purse.Currencies()))
	}
	for _, peer := range all {
		if reason, _ := closedBy(nso, peer); reason == "" {
			peers = append(peers, peer)
		}
	}
	return peers, true
}

// wantedNow are the tolerations of new pods, as the budget stands.
func (r *Reconciler) wantedNow(nso *v1alpha1.NamespaceOffloading) []corev1.Toleration {
	peers, narrowed := r.open(nso)
	if !narrowed {
		return wanted(nso.Spec)
	}
	if len(peers) == 0 {
		return nil
	}
	return wanted(v1alpha1.NamespaceOffloadingSpec{Peers: peers})
}

// markBudget writes on the namespace what the admission policies read of its budget.
func (r *Reconciler) markBudget(ns *corev1.Namespace, nso *v1alpha1.NamespaceOffloading) {
	delete(ns.Annotations, v1alpha1.AnnotationBudgetOpen)
	delete(ns.Annotations, v1alpha1.AnnotationBudgetClosed)
	if nso == nil {
		return
	}
	peers, narrowed := r.open(nso)
	if !narrowed {
		return
	}
	var closed []string
	for _, c := range nso.Status.Budget.Closed {
		closed = append(closed, c.Peer+"/"+string(c.Reason))
	}
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationBudgetOpen, strings.Join(peers, ","))
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationBudgetClosed, strings.Join(closed, ","))
}

// narrowed reports whether a pod was made while a budget closed some peers to it and not all: its tolerations are not its owner's.
func narrowed(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationNarrowed] == "true" }

// fencedIn reports whether a pod requires nodes that a budget left open when it was made, which nobody can change.
func fencedIn(pod *corev1.Pod) bool {
	_, is := pod.Annotations[v1alpha1.AnnotationFenced]
	return is
}

// remadeAfter is the least age at which a pod that waits is made again: its controller replaces it at once, and the API server may not know yet what
// the budget closes by now.
const remadeAfter = 10 * time.Second

// outgrown reports whether a pod that waits was made for a budget that stands otherwise by now, and its controller makes another that suits it: it
// tolerates peers that are closed, whose nodes the scheduler would choose again and again, or requires nodes that are not all that are open.
// (A Job would count its end as a failure.)
func outgrown(pod *corev1.Pod, nso *v1alpha1.NamespaceOffloading, open []string, some bool) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !slices.Contains([]string{"ReplicaSet", "StatefulSet", "ReplicationController"}, owner.Kind) || !unscheduled(pod) {
		return false
	}
	if fencedIn(pod) {
		return !some || pod.Annotations[v1alpha1.AnnotationFenced] != strings.Join(open, ",")
	}
	return some && !boundHome(pod, nso.Spec.Volumes) && slices.ContainsFunc(nso.Status.Budget.Closed, func(c v1alpha1.ClosedPeer) bool {
		taint := corev1.Taint{Key: v1alpha1.TaintPeer, Value: c.Peer, Effect: corev1.TaintEffectNoSchedule}
		return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) })
	})
}

// remade deletes a pod that its controller makes again as the budget stands now; it tells when to do that with one that is too young.
func (r *Reconciler) remade(ctx context.Context, pod *corev1.Pod) (later time.Duration, err error) {
	if later = time.Until(pod.CreationTimestamp.Add(remadeAfter)); later > 0 {
		return later, nil
	}
	if err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	r.log.Info("a pod that waits is made again for the peers that the budget leaves open", "namespace", pod.Namespace, "pod", pod.Name)
	if r.events != nil {
		r.events.Eventf(pod, nil, corev1.EventTypeNormal, "BudgetChanged", "Offloading", "it waits, and the peers that the budget of namespace %s leaves open are others than when it was made: it is made again", pod.Namespace)
	}
	return 0, nil
}

// conditionBudget is on a pod that found no node while a budget keeps it from peers; so it is said once.
const conditionBudget = "kith.dev/BudgetSpent"

// tellWaiting says on a pod that waits that a budget keeps it from peers, and takes that back when none does any more.
func (r *Reconciler) tellWaiting(ctx context.Context, pod *corev1.Pod, nso *v1alpha1.NamespaceOffloading) error {
	var told *corev1.PodCondition
	unscheduled := false
	for i := range pod.Status.Conditions {
		switch c := &pod.Status.Conditions[i]; c.Type {
		case conditionBudget:
			told = c
		case corev1.PodScheduled:
			unscheduled = c.Status == corev1.ConditionFalse
		}
	}
	why, reason := "", v1alpha1.ClosedReason("")
	if unscheduled && !boundHome(pod, nso.Spec.Volumes) && nso.Status.Budget != nil {
		for _, c := range nso.Status.Budget.Closed { // that it is spent is what passes: it is said first
			if says, text := closedBy(nso, c.Peer); why == "" || says == v1alpha1.ClosedSpent && reason != says {
				reason, why = says, text
			}
		}
	}
	if why == "" && (told == nil || told.Status == corev1.ConditionFalse) || told != nil && told.Status == corev1.ConditionTrue && told.Message == why {
		return nil
	}
	before := pod.DeepCopy()
	is := corev1.PodCondition{Type: conditionBudget, Status: corev1.ConditionTrue, Reason: string(reason), Message: why, LastTransitionTime: metav1.Now()}
	if why == "" {
		is.Status, is.Reason, is.Message = corev1.ConditionFalse, "Open", "the budget of its namespace keeps it from no peer now"
	}
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionBudget }), is)
	if err := r.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	if r.events != nil && why != "" {
		r.events.Eventf(pod, nil, corev1.EventTypeWarning, cmp.Or(map[v1alpha1.ClosedReason]string{v1alpha1.ClosedSpent: "BudgetSpent"}[reason], "BudgetCurrency"), "Offloading", "%s", why)
	}
	return nil
}

// watchPurse has namespaces with a budget looked at when what is spent, or who is priced how, changes.
func (r *Reconciler) watchPurse(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	if r.Purse == nil {
		return nil
	}
	go func() {
		for {
			changed := r.Purse.Changed()
			var all v1alpha1.NamespaceOffloadingList
			if err := r.client.List(ctx, &all); err != nil && !errors.Is(err, context.Canceled) {
				r.log.Warn("namespaces with a budget are not looked at for the moment", "err", err)
			}
			for i := range all.Items {
				if all.Items[i].Spec.Budget != nil {
					q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Namespace}})
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}
