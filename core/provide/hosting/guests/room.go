package guests

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// seekEvery is how often a guest that waits may have it looked who could make room for it.
const seekEvery = 10 * time.Second

// homePriority is what home says of a guest, 0 unless it says something.
func homePriority(pod *corev1.Pod) int32 {
	n, err := strconv.ParseInt(pod.Annotations[v1alpha1.AnnotationHomePriority], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// unplaced reports whether a guest waits, and the scheduler has said that no node has room for it.
func unplaced(pod *corev1.Pod) bool {
	return waiting(pod) && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// seeks notes whether the guest is one of those that no node had room for.
func (r *Reconciler) seeks(o *observed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.pod != nil && unplaced(o.pod) {
		r.seeking[o.key] = struct{}{}
	} else {
		delete(r.seeking, o.key)
	}
}

// seekers are those guests, which whatever becomes of a pod here may concern.
func (r *Reconciler) seekers(context.Context, client.Object) (all []reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.seeking {
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}

// sought lets events through while there are seekers.
func (r *Reconciler) sought() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(client.Object) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.seeking) > 0
	})
}

// makeRoom evicts guests of the same home that matter less there, if that gives the guest a place. It is what the scheduler's preemption is to pods of
// one cluster (k8s.io/kubernetes/pkg/scheduler/framework/preemption), which cannot be had here: it knows one order for all pods, and by the word of one
// home it would evict the guests of another. Guests of other homes and the owner's pods are never touched; disruption budgets are not asked.
func (r *Reconciler) makeRoom(ctx context.Context, o *observed) error {
	r.making.Lock()
	defer r.making.Unlock()
	var guests, all corev1.PodList
	if err := r.client.List(ctx, &guests, client.MatchingLabels{v1alpha1.LabelConsumer: o.pod.Labels[v1alpha1.LabelConsumer]}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("see who could make room for guest %s: %w", o.key, err)
	}
	if !slices.ContainsFunc(guests.Items, func(p corev1.Pod) bool { return lesser(&p, o.pod) }) {
		return nil
	}
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("see who could make room for guest %s: %w", o.key, err)
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("see where guest %s could have room: %w", o.key, err)
	}
	o.record.sought = o.now
	node, who := yielding(o.pod, r.lookAround(o.pod, nodes.Items, all.Items))
	if len(who) == 0 {
		return nil
	}
	// From then on the scheduler counts it as if it were there already: no other guest takes the room (KEP-5278).
	next := o.pod.DeepCopy()
	next.Status.NominatedNodeName = node
	if err := r.client.Status().Patch(ctx, next, client.StrategicMergeFrom(o.pod), client.FieldOwner(v1alpha1.ManagedBy)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("keep room on %s for guest %s: %w", node, o.key, err))
	}
	r.reserved[o.pod.UID] = node
	for _, pod := range who {
		if err := r.yield(ctx, pod, o.pod.Name); err != nil {
			return err
		}
	}
	r.log.Info("guests make room for one that matters more at their home", "namespace", o.key.Namespace, "pod", o.key.Name, "node", node, "evicted", len(who))
	return nil
}

// yield evicts a guest for another one, as the scheduler does.
func (r *Reconciler) yield(ctx context.Context, pod *corev1.Pod, other string) error {
	if err := r.evict(ctx, pod, nil, corev1.PodReasonPreemptionByScheduler, fmt.Sprintf("pod %s, which has a higher priority at home, takes its room", other)); err != nil {
		return err
	}
	r.yielded[pod.UID] = true
	return nil
}

// evict ends a guest with that grace period in seconds, its own if it is nil, and says why (KEP-3329).
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod, grace *int64, reason, why string) error {
	next := pod.DeepCopy()
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now(), Message: grants.Cut(why, 1024)}
	next.Status.Conditions = append(slices.DeleteFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }), c)
	if err := r.client.Status().Patch(ctx, next, client.StrategicMergeFrom(pod), client.FieldOwner(v1alpha1.ManagedBy)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("evict guest %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	if err := r.remove(ctx, pod, grace); err != nil {
		return fmt.Errorf("evict guest %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// lesser reports whether a guest runs, or is about to, and matters less than another one of its home.
func lesser(pod, than *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !over(pod) && owner != nil && owner.Kind == "OffloadedPod" &&
		pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && pod.Labels[v1alpha1.LabelConsumer] == than.Labels[v1alpha1.LabelConsumer] &&
		homePriority(pod) < homePriority(than)
}

// site is a place without the guests that may have to make room, and these; those that matter most come first, the oldest of them before the others.
type site struct {
	*place
	lesser []*corev1.Pod
}

// mattersMore orders guests: those that matter most at home come first, the oldest of them before the others.
func mattersMore(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(homePriority(b), homePriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// lookAround gives the nodes that guests run on, by their names, as they will be once all that is being deleted is gone, and what room was made
// for is there.
func (r *Reconciler) lookAround(pod *corev1.Pod, nodes []corev1.Node, pods []corev1.Pod) (rooms []*site) {
	by := map[string]*site{}
	for i := range nodes {
		if v1alpha1.Fenced(&nodes[i]) {
			by[nodes[i].Name] = &site{place: &place{node: &nodes[i]}}
		}
	}
	reserved, yielded := map[types.UID]string{}, map[types.UID]bool{}
	for i := range pods {
		p := &pods[i]
		if r.yielded[p.UID] {
			yielded[p.UID] = true
		}
		node := p.Spec.NodeName
		if node == "" {
			if kept := r.reserved[p.UID]; kept != "" {
				reserved[p.UID] = kept
			}
			node = cmp.Or(r.reserved[p.UID], p.Status.NominatedNodeName)
		}
		at := by[node]
		switch {
		case at == nil || p.UID == pod.UID || over(p) || p.DeletionTimestamp != nil || yielded[p.UID]:
		case lesser(p, pod):
			at.lesser = append(at.lesser, p)
		default:
			at.take(p)
		}
	}
	r.reserved, r.yielded = reserved, yielded
	for _, name := range slices.Sorted(maps.Keys(by)) {
		slices.SortFunc(by[name].lesser, func(a, b *corev1.Pod) int {
			return mattersMore(a, b)
		})
		rooms = append(rooms, by[name])
	}
	return rooms
}

// yielding gives the node on which a guest has room, and who has to go for it: nobody, where that is so already or is nowhere to be had. Of several
// nodes it is the one where the most important of them matters least, then the one with the fewest.
func yielding(pod *corev1.Pod, rooms []*site) (node string, who []*corev1.Pod) {
	if len(rooms) > 1 && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		return "", nil // its volume is on one of them, and which is not known here
	}
	for _, r := range rooms {
		if len(r.refuses(pod)) > 0 {
			continue
		}
		var leave []*corev1.Pod
		for _, p := range r.lesser {
			stays := r.place.clone()
			if stays.take(p); len(stays.refuses(pod)) > 0 {
				leave = append(leave, p)
				continue
			}
			r.place = stays
		}
		if len(leave) == 0 {
			return r.node.Name, nil
		}
		if order := func(of []*corev1.Pod) int32 { return homePriority(of[0]) }; who == nil ||
			cmp.Or(cmp.Compare(order(leave), order(who)), cmp.Compare(len(leave), len(who))) < 0 {
			node, who = r.node.Name, leave
		}
	}
	return node, who
}

func (p *place) clone() *place {
	return &place{node: p.node, used: maps.Clone(p.used), ports: slices.Clone(p.ports)}
}
