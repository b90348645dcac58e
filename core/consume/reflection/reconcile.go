package reflection

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/trust/wire"
)

// Reasons of the events on home objects.
const (
	eventNotReflected = "NotReflected"
	eventReflected    = "Reflected"
)

// patience is how many times in a row a refusal that may pass by itself must be met before it is reported: RBAC in a new twin, and the range of
// guests at another peer, take the peer a moment.
const patience = 6

// refusal is a no that trying again at once does not change.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// reconcile makes one item at the peer match the one at home. pod, if given, is one that is about to go there.
func (r *Reflector) reconcile(ctx context.Context, it item, given *corev1.Pod, wanted bool) error {
	t := r.twin(it.namespace)
	if t == nil {
		return nil
	}
	s := t.current()
	if !s.isReady() {
		return nil // everything is queued when it is
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lock := r.lock(it)
	lock.Lock()
	defer lock.Unlock()

	have, written := r.have(t, it), t.written(it)
	src := r.source(t, s, it, given)
	switch {
	case src == nil && it.kind == kinds.Pod && have != nil && time.Since(written.at) < watchLag:
		r.queue.AddAfter(it, watchLag) // Prepare had the pod from another watch, which is ahead
		return nil
	case src == nil && it.kind == kinds.Pod && have != nil:
		return r.removeCompanion(ctx, t, it, have)
	case src == nil:
		return r.remove(ctx, t, it, have)
	case src.needed || wanted:
		written.unneeded = time.Time{}
	case have == nil:
		return r.remove(ctx, t, it, nil)
	case written.unneeded.IsZero():
		written.unneeded = time.Now()
		t.remember(it, written)
		r.queue.AddAfter(it, unneededFor)
	case time.Since(written.unneeded) >= unneededFor:
		return r.remove(ctx, t, it, have)
	}
	if have != nil && src.upToDate(written, have) {
		written.stamp, written.version, written.seen = src.stamp, have.GetResourceVersion(), true
		t.remember(it, written)
		r.again(it, have)
		return nil
	}
	if written.behind(src, have) { // Prepare and a worker come to the same item within a moment
		r.queue.AddAfter(it, watchLag)
		return nil
	}
	return r.write(ctx, t, it, src, have, written)
}

// watchLag is how long what was just written may be missing from the watch abroad before it is written again.
const watchLag = time.Second

// behind: what the item should be was written a moment ago, and the watch abroad has not shown it yet.
func (m written) behind(src *source, have metav1.Object) bool {
	if m.version == "" || m.seen || m.stamp != src.stamp || time.Since(m.at) > watchLag {
		return false
	}
	if have == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(have.GetResourceVersion(), m.version)
	return err == nil && order < 0
}

func (r *Reflector) write(ctx context.Context, t *twin, it item, src *source, have metav1.Object, m written) error {
	want, why, err := src.build(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return r.remove(ctx, t, it, have) // it went while we were looking
	case err != nil:
		return r.refused(t, it, src, err, "cannot be read at home: %v", err)
	case why != "":
		r.tell(t, it, src, why)
		return r.takeAway(ctx, t, it, have)
	}
	write := r.abroad.apply
	if have == nil && it.kind == kinds.Pod { // one for each pod, and whole: nothing in it is left to defaults
		write = r.abroad.create
	}
	m.version, err = write(ctx, it.abroad(), want)
	if err != nil {
		return r.notWritten(ctx, t, it, src, have, want.GetName(), err)
	}
	m.stamp, m.at, m.seen = src.stamp, time.Now(), false
	t.remember(it, m)
	r.tell(t, it, src, "")
	r.again(it, want)
	return nil
}

// again has an item looked at when its tokens must be renewed.
func (r *Reflector) again(it item, abroad metav1.Object) {
	if at, err := time.Parse(time.RFC3339, abroad.GetAnnotations()[annotationRenew]); it.kind == kinds.Pod && err == nil {
		r.queue.AddAfter(it, max(time.Until(at), time.Second))
	}
}

// notWritten sorts out why the peer did not take it.
func (r *Reflector) notWritten(ctx context.Context, t *twin, it item, src *source, have metav1.Object, name string, err error) error {
	switch {
	case apierrors.IsInvalid(err) && have != nil:
		// A field that cannot change, such as the type of a Secret or a Service that became headless: made anew.
		if err := r.takeAway(ctx, t, it, have); err != nil {
			return err
		}
		return fmt.Errorf("%s %s is made anew", it.kind, it.name)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return r.refused(t, it, src, nil, "%s does not take it: %v", r.cfg.PeerName, err)
	case apierrors.IsForbidden(err):
		foreign, look := r.abroad.foreign(ctx, it.abroad(), t.name, name)
		if look == nil && foreign {
			return r.refused(t, it, src, nil, "%s has a %s of that name in namespace %s that is its own; it was left as it is", r.cfg.PeerName, it.abroad(), t.name)
		}
		var soon error
		if !strings.Contains(err.Error(), "exceeded quota") {
			soon = err
		}
		return r.refused(t, it, src, soon, "%s refuses it: %v", r.cfg.PeerName, err)
	}
	return err
}

// refused tells at home why something is not abroad: at once, or when it may pass by itself (soon), after some tries.
func (r *Reflector) refused(t *twin, it item, src *source, soon error, format string, args ...any) error {
	if soon == nil || r.queue.NumRequeues(it) >= patience {
		r.tell(t, it, src, fmt.Sprintf(format, args...))
	}
	if soon != nil && !apierrors.IsForbidden(soon) {
		return soon
	}
	return &refusal{fmt.Sprintf(format, args...)}
}

func (r *Reflector) remove(ctx context.Context, t *twin, it item, have metav1.Object) error {
	r.tell(t, it, nil, "")
	return r.takeAway(ctx, t, it, have)
}

// removeCompanion asks home again: the watch there may be behind the virtual node's, which has just sent the pod abroad.
func (r *Reflector) removeCompanion(ctx context.Context, t *twin, it item, have metav1.Object) error {
	pod, err := r.cfg.Home.core.CoreV1().Pods(it.namespace).Get(ctx, it.name, metav1.GetOptions{})
	switch {
	case err == nil && needs(pod, r.cfg.NodeName) && r.goes(pod) && !companionOf(pod).empty():
		return fmt.Errorf("pod %s/%s is at home, but not seen yet", it.namespace, it.name)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look whether pod %s/%s is still at home: %w", it.namespace, it.name, err)
	}
	return r.remove(ctx, t, it, have)
}

func (r *Reflector) takeAway(ctx context.Context, t *twin, it item, have metav1.Object) error {
	t.forget(it)
	if have == nil {
		return nil
	}
	if err := r.abroad.delete(ctx, it.abroad(), have); err != nil {
		return fmt.Errorf("take %s %s away: %w", it.kind, it.name, err)
	}
	return nil
}

// tell records a problem, or that it is over, in an event on the home object and for Config.Problems.
func (r *Reflector) tell(t *twin, it item, src *source, problem string) {
	all, news := t.tell(it, problem)
	if !news {
		return
	}
	switch {
	case src == nil:
	case problem != "":
		r.log.Warn("not reflected", "namespace", it.namespace, "kind", it.kind.Name, "name", it.name, "why", problem)
		r.record.Eventf(&src.owner, corev1.EventTypeWarning, eventNotReflected, "not reflected to %s: %s", r.cfg.PeerName, wire.Cut(problem, 900)) // within what the API server takes
	default:
		r.record.Eventf(&src.owner, corev1.EventTypeNormal, eventReflected, "reflected to %s", r.cfg.PeerName)
	}
	r.cfg.Problems(t.home, all)
}
