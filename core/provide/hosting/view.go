package hosting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/guests"
	"kith.dev/core/trust/audit"
)

// The view of a consumer is one stream of all objects in its twins (core/consume/remote has the format), however many twins there are: with watches
// through the door, one per namespace and kind, a thousand namespaces would need seven thousand.
//
// It is served from caches that this daemon has anyway. The namespace of an object decides whose it is, by labels that consumers cannot
// write (grants.Contracts). Only the names of objects that are still to be sent are queued; their newest state comes from the cache. So a
// consumer that reads slowly costs a few bytes per object; one that does not read at all is disconnected.
const (
	maxViews     = 2                // for each consumer; one more ends the oldest, whose connection may be dead without a sign
	viewsBurst   = 10               // streams that a consumer may open at once
	viewsEvery   = 2 * time.Second  // and on average
	viewPatience = 15 * time.Second // as long as a batch may take to be sent
	viewBatch    = 64 << 10         // bytes that are sent at once
	maxPending   = 50_000           // objects that may be queued
)

// kinds of lines that core/consume/remote does not name, besides the kinds of which only metadata is sent.
const (
	viewOffloaded = "OffloadedPod"
	viewPod       = "Pod"
	viewEvent     = "Event"
)

// views serves the views of all consumers.
type views struct {
	contracts *grants.Contracts
	audits    *audit.Log
	log       *slog.Logger

	begin func() error            // starts the watches that only views need; nil: there are none
	lists map[string]func() []any // by kind, where its objects are; made before the first stream

	mu     sync.Mutex
	closed string               // why no node here takes guests; empty when one does
	open   map[string][]*stream // by consumer ID, the oldest first
	rates  map[string]*rate.Limiter
}

func newViews(c *grants.Contracts, audits *audit.Log, log *slog.Logger) *views {
	v := &views{contracts: c, audits: audits, log: log, lists: map[string]func() []any{}, open: map[string][]*stream{}, rates: map[string]*rate.Limiter{}}
	c.OnShut(v.shut)
	return v
}

// GetView answers GET /kith/v2/view with the stream.
func (h *Host) GetView(w http.ResponseWriter, r *http.Request, consumerID string) {
	if err := h.views.serve(w, r, consumerID); err != nil {
		door.Answer(h.log, w, nil, err)
	}
}

// serve gives an error as long as nothing was answered.
func (v *views) serve(w http.ResponseWriter, r *http.Request, consumerID string) error {
	if !v.contracts.Admitted(consumerID) {
		return errNoContract
	}
	if !v.rate(consumerID).Allow() {
		no := &api.Error{Code: api.CodeNotReady, Message: "view of your namespaces", Reason: "it is opened too often", Do: "try again in some seconds"}
		v.audits.Note(audit.Refusal{Door: audit.Guests, Reason: apiproxy.RefusedLimits, ID: consumerID, What: "view", Why: no.Reason, Usual: true})
		return no
	}
	if v.begin != nil {
		if err := v.begin(); err != nil {
			return fmt.Errorf("view: %w", err)
		}
	}
	ctx, cut := context.WithCancelCause(r.Context())
	defer cut(nil)
	one := newStream(cut)
	defer v.leave(consumerID, one)
	v.enter(consumerID, one)
	// Again, now that shut would reach us.
	if !v.contracts.Admitted(consumerID) {
		return errNoContract
	}
	v.fill(consumerID, one)
	w.Header().Set("Content-Type", "application/x-ndjson")
	clock := http.NewResponseController(w)
	_ = clock.SetReadDeadline(time.Time{}) // a writer without deadlines has none
	err := one.send(ctx, w, func(ref objectRef) bool { return ref == closedRef || ref == partsRef || v.owner(ref) == consumerID }, clock)
	v.log.Debug("view ended", "id", consumerID, "err", errors.Join(err, context.Cause(ctx)))
	return nil
}

var errNoContract = &api.Error{Code: api.CodeForbidden, Message: "view of your namespaces", Reason: "no contract with this cluster is in force"}

func (v *views) rate(consumerID string) *rate.Limiter {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.rates[consumerID] == nil { // as many as have contracts
		v.rates[consumerID] = rate.NewLimiter(rate.Every(viewsEvery), viewsBurst)
	}
	return v.rates[consumerID]
}

func (v *views) enter(consumerID string, one *stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[consumerID] = append(v.open[consumerID], one)
	if all := v.open[consumerID]; len(all) > maxViews {
		all[0].cut(errors.New("a newer one took its place"))
	}
}

func (v *views) leave(consumerID string, one *stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[consumerID] = slices.DeleteFunc(v.open[consumerID], func(o *stream) bool { return o == one })
	if len(v.open[consumerID]) == 0 {
		delete(v.open, consumerID)
	}
}

// shut ends the views of a consumer whose last contract ended.
func (v *views) shut(consumerID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.rates, consumerID)
	for _, one := range v.open[consumerID] {
		one.cut(errors.New("the contract ended"))
	}
}

// owner is the consumer whose the object is; empty when it is nobody's.
func (v *views) owner(ref objectRef) string {
	namespace := ref.namespace
	if ref.kind == remote.KindNamespace {
		namespace = ref.name
	}
	if t := v.contracts.TermsIn(namespace); t != nil {
		return t.Consumer.ID
	}
	return ""
}

// fill queues all existing objects for a new stream; later changes are queued by changed.
func (v *views) fill(consumerID string, one *stream) {
	for _, tw := range v.contracts.TwinsOfConsumer(consumerID) {
		one.put(objectRef{kind: remote.KindNamespace, name: tw.Name}, twinLine(tw), false)
	}
	for kind, list := range v.lists {
		for _, o := range list() {
			if ref, ok := refOf(kind, o); ok && v.owner(ref) == consumerID {
				one.put(ref, v.toHome(o), false)
			}
		}
	}
	v.mu.Lock() // or what is read now may be queued after what partsChanged read later
	if parts := v.contracts.PartsOf(consumerID); len(parts) > 0 {
		one.put(partsRef, partsLine(parts), false)
	}
	if v.closed != "" {
		one.put(closedRef, closedLine(v.closed), false)
	}
	v.mu.Unlock()
	one.put(objectRef{kind: remote.KindSynced}, nil, false)
}

// changed queues the object for the streams of its consumer.
func (v *views) changed(kind string, o any, gone bool) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	ref, ok := refOf(kind, o)
	if !ok {
		return
	}
	v.broadcast(ref, o, gone)
}

func (v *views) broadcast(ref objectRef, o any, gone bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.open) == 0 {
		return
	}
	owner, o := v.owner(ref), v.toHome(o)
	for id, all := range v.open {
		for _, one := range all {
			if id == owner || gone { // the owner of a deleted object may not be known any more: all streams that had it must hear
				one.put(ref, o, gone)
			}
		}
	}
}

// toHome translates a guest's addresses to those by which its home knows it.
func (v *views) toHome(o any) any {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o
	}
	terms := v.contracts.TermsIn(pod.Namespace)
	if terms == nil {
		return o
	}
	t := terms.Translation()
	if len(t) == 0 {
		return o
	}
	told := *pod // what it holds is the cache's
	guests.ToHome(&told.Status, t)
	return &told
}

// twinChanged queues a namespace that is a twin, or, with gone, no longer is.
func (v *views) twinChanged(tw grants.Twin, gone bool) {
	v.broadcast(objectRef{kind: remote.KindNamespace, name: tw.Name}, twinLine(tw), gone)
}

func refOf(kind string, o any) (objectRef, bool) {
	m, ok := o.(metav1.Object)
	if !ok {
		return objectRef{}, false
	}
	return objectRef{kind, m.GetNamespace(), m.GetName()}, true
}

// twinLine is what a consumer sees of a twin.
func twinLine(tw grants.Twin) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: tw.Name, UID: tw.UID, Labels: map[string]string{v1alpha1.LabelHomeNamespace: tw.Home}}}
	if tw.Leaving {
		o.DeletionTimestamp = new(metav1.Now())
	}
	return o
}

// encoded is the line about an object.
func encoded(ref objectRef, o any, gone bool) ([]byte, error) {
	switch is := o.(type) {
	case *unstructured.Unstructured:
		o = guests.Whole(is).Object
	case *corev1.Pod: // its spec the consumer wrote itself, but for the node
		spec := map[string]string{}
		if is.Spec.NodeName != "" {
			spec["nodeName"] = is.Spec.NodeName
		}
		o = map[string]any{"metadata": &is.ObjectMeta, "spec": spec, "status": &is.Status}
	}
	return json.Marshal(remote.Line{Kind: ref.kind, Gone: gone, Object: o})
}
