package offloading

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

const (
	// AvoidedFor is how long new pods of a controller avoid a peer that refused one: then the peer is tried again, since its policy may have
	// changed.
	AvoidedFor = time.Hour
	// maxAvoided bounds the notes on one namespace; the oldest are dropped.
	maxAvoided = 100
)

// note says that a peer refuses the pods of a controller.
type note struct {
	owner types.UID
	peer  string
	at    time.Time // whole seconds
}

// notesOf reads AnnotationRefused. What is not of its form, or from the future, is no note.
func notesOf(namespace *corev1.Namespace, now time.Time) (notes []note) {
	for word := range strings.SplitSeq(namespace.Annotations[v1alpha1.AnnotationRefused], ",") {
		fields := strings.Split(word, "/")
		if len(fields) != 3 {
			continue
		}
		seconds, err := strconv.ParseInt(fields[2], 10, 64)
		if at := time.Unix(seconds, 0); err == nil && !at.After(now) {
			notes = append(notes, note{types.UID(fields[0]), fields[1], at})
		}
	}
	return notes
}

func setNotes(namespace *corev1.Namespace, notes []note) {
	words := make([]string, len(notes))
	for i, n := range notes {
		words[i] = fmt.Sprintf("%s/%s/%d", n.owner, n.peer, n.at.Unix())
	}
	if len(words) == 0 {
		delete(namespace.Annotations, v1alpha1.AnnotationRefused)
		return
	}
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.AnnotationRefused, strings.Join(words, ","))
}

// inForce drops the notes that are too old, and tells when the next will be; 0 for never.
func inForce(notes []note, now time.Time) (left []note, next time.Duration) {
	left = slices.DeleteFunc(notes, func(n note) bool { return now.Sub(n.at) >= AvoidedFor })
	for _, n := range left {
		if soon := n.at.Add(AvoidedFor).Sub(now); next == 0 || soon < next {
			next = soon
		}
	}
	return left, next
}

// Avoid makes new pods of a controller in a namespace avoid a peer that refused one, and returns since when they do. (A pod cannot leave the node
// it is bound to: only the next one can go elsewhere.) The client may read from a cache. If the error is a conflict, call again.
func Avoid(ctx context.Context, c client.Client, namespace string, owner types.UID, peer string) (since time.Time, err error) {
	var ns corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return time.Time{}, fmt.Errorf("look which peers refuse pods of namespace %s: %w", namespace, err)
	}
	now := time.Now()
	notes, _ := inForce(notesOf(&ns, now), now)
	if at := slices.IndexFunc(notes, func(n note) bool { return n.owner == owner && n.peer == peer }); at >= 0 {
		return notes[at].at, nil
	}
	now = now.Truncate(time.Second)
	notes = append(notes, note{owner, peer, now})
	before := ns.DeepCopy()
	setNotes(&ns, notes[max(0, len(notes)-maxAvoided):])
	if err := c.Patch(ctx, &ns, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return time.Time{}, fmt.Errorf("note on namespace %s that %s refuses its pods: %w", namespace, peer, err)
	}
	return now, nil
}

// Avoids are the peers that new pods of a controller in the namespace avoid now.
func Avoids(namespace *corev1.Namespace, owner types.UID, now time.Time) (peers []string) {
	notes, _ := inForce(notesOf(namespace, now), now)
	for _, n := range notes {
		if n.owner == owner {
			peers = append(peers, n.peer)
		}
	}
	return peers
}

// forget takes the notes away that are too old, and is called again for the next.
func (r *Reconciler) forget(ctx context.Context, namespace string) (ctrl.Result, error) {
	var ns corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil || ns.Annotations[v1alpha1.AnnotationRefused] == "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := ns.DeepCopy()
	notes, next := inForce(notesOf(&ns, time.Now()), time.Now())
	if setNotes(&ns, notes); before.Annotations[v1alpha1.AnnotationRefused] == ns.Annotations[v1alpha1.AnnotationRefused] {
		return ctrl.Result{RequeueAfter: next}, nil
	}
	err := r.client.Patch(ctx, &ns, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		next, err = cacheLag, nil
	}
	return ctrl.Result{RequeueAfter: next}, client.IgnoreNotFound(err)
}
