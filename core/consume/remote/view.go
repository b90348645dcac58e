package remote

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/base/store"
	"kith.dev/core/trust/wire/codec"
)

// maxTwins bounds how many namespaces a peer can have us keep, maxObjects how many objects of one kind.
const maxTwins, maxObjects = 10_000, 50_000

// ViewConfig is what a View needs; all must be set.
type ViewConfig struct {
	// Open asks the peer for the stream, and gives its body. It ends with ctx.
	Open func(ctx context.Context) (io.ReadCloser, error)
	Log  *slog.Logger
}

// Twin is a namespace that the peer keeps for one of this cluster.
type Twin struct {
	Name, Home string
	Leaving    bool // it is being deleted there
}

// GetNamespace and GetName are those of a cluster-scoped object, for a store.
func (t *Twin) GetNamespace() string { return "" }
func (t *Twin) GetName() string      { return t.Name }

// View is what one peer shows of the twins there. Make it with NewView; all methods may be called by many at once.
type View struct {
	OffloadedPods *store.Store[*v1alpha1.OffloadedPod]
	Pods          *store.Store[*corev1.Pod]
	Events        *store.Store[*corev1.Event]                            // about pods
	OtherEvents   *store.Store[*corev1.Event]                            // about objects of kinds.EventsOf
	Metadata      map[string]*store.Store[*metav1.PartialObjectMetadata] // by kind
	Twins         *store.Store[*Twin]                                    // told anew with each stream; OnTwin tells news only

	cfg    ViewConfig
	reader *codec.Reader
	closed *store.Store[*metav1.PartialObjectMetadata] // one object, while no node there takes pods
	stores []kindStore
	synced []func()
	passed map[string]string // what could not be decoded, and is passed over: by its version; of the one goroutine that reads

	mu      sync.Mutex
	parts   []Part   // as told last, once all was told
	told    []Part   // by this stream
	onParts []func() // see OnParts
	fresh   bool
	known   chan struct{} // closed at the first Synced
	stop    context.CancelFunc
	there   func() bool // see While
	changed notify.Broadcast
}

// kindStore is what the stores of all kinds can be told.
type kindStore interface {
	Begin()
	Sweep()
	DeleteAll(namespace string)
}

// reader is of all views.
var reader = sync.OnceValue(func() *codec.Reader {
	return codec.NewReader(&v1alpha1.OffloadedPod{}, &corev1.Pod{}, &corev1.Event{}, &metav1.PartialObjectMetadata{})
})

// NewView makes a View; Run fills it.
func NewView(cfg ViewConfig) *View {
	v := &View{
		OffloadedPods: store.New[*v1alpha1.OffloadedPod](maxObjects), Pods: store.New[*corev1.Pod](maxObjects),
		Events: store.New[*corev1.Event](maxObjects), OtherEvents: store.New[*corev1.Event](maxObjects), Metadata: map[string]*store.Store[*metav1.PartialObjectMetadata]{},
		Twins: store.New[*Twin](maxTwins), closed: store.New[*metav1.PartialObjectMetadata](1),
		cfg: cfg, reader: reader(),
		passed: map[string]string{}, known: make(chan struct{}), there: func() bool { return true },
	}
	v.stores = []kindStore{v.OffloadedPods, v.Pods, v.Events, v.OtherEvents}
	for _, k := range kinds.Reflected() {
		v.Metadata[k.Name] = store.New[*metav1.PartialObjectMetadata](maxObjects)
		v.stores = append(v.stores, v.Metadata[k.Name])
	}
	v.stores = append(v.stores, v.closed, v.Twins) // the namespaces go last
	return v
}

// OnTwin has f called for each twin that came (was is nil), changed, or went (is is nil); what was in it went before. It must be
// called before the view runs.
func (v *View) OnTwin(f func(was, is *Twin)) {
	v.Twins.OnChange(func(was, is *Twin) {
		if was == nil || is == nil || *was != *is {
			f(was, is)
		}
	})
}

// OnSynced has f called each time that all that there is was told. It must be called before the view runs.
func (v *View) OnSynced(f func()) { v.synced = append(v.synced, f) }

// Closed is why none of the peer's nodes takes pods, such as "cordoned", in the peer's word; "" when one does, or the peer does not say. While
// the peer cannot be reached it is the last known value.
func (v *View) Closed() string {
	for _, o := range v.closed.All() {
		return closedFor(o)
	}
	return ""
}

// OnClosed has f called when Closed changed. It must be called before the view runs.
func (v *View) OnClosed(f func()) {
	v.closed.OnChange(func(was, is *metav1.PartialObjectMetadata) {
		if closedFor(was) != closedFor(is) {
			f()
		}
	})
}

func closedFor(o *metav1.PartialObjectMetadata) string {
	if o == nil {
		return ""
	}
	return cmp.Or(o.Labels[v1alpha1.TaintClosed], "unknown")
}

// Parts are the clusters among which the peer divides the contract; none when it tells of none. While the peer cannot be reached they are as last known,
// and before Known nobody knows.
func (v *View) Parts() []Part {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.parts
}

// OnParts has f called when Parts may have changed. It must be called before the view runs.
func (v *View) OnParts(f func()) { v.onParts = append(v.onParts, f) }

// takeParts: those that a stream begins with count when all was told.
func (v *View) takeParts(gone bool, object []byte) error {
	var is Parts
	if !gone {
		var err error
		if is, err = readParts(object); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.told = is.Parts
	fresh := v.fresh
	v.mu.Unlock()
	if fresh {
		v.showParts()
	}
	return nil
}

func (v *View) showParts() {
	v.mu.Lock()
	changed := !reflect.DeepEqual(v.parts, v.told)
	v.parts = v.told
	v.mu.Unlock()
	if changed {
		for _, f := range v.onParts {
			f()
		}
	}
}

// Known is closed once all that there is was told for the first time.
func (v *View) Known() <-chan struct{} { return v.known }

// HasSynced reports whether everything was told since the view began, or the peer could be reached again.
func (v *View) HasSynced() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fresh
}

// HomeOf is the namespace here that one of the peer stands for; empty when that is not known.
func (v *View) HomeOf(twin string) string {
	if t := v.Twins.Get("", twin); t != nil {
		return t.Home
	}
	return ""
}

// While has the view open streams only while there. It must be called before the view runs.
func (v *View) While(there func() bool) { v.there = there }

// Look says that the answer of While's there has changed: the stream ends, and if the peer is there a new one starts at once.
func (v *View) Look() {
	there := v.there()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh = v.fresh && !there
	if v.stop != nil {
		v.stop()
	}
	v.changed.Notify()
}

func (v *View) begin() {
	for _, s := range v.stores {
		s.Begin()
	}
	v.mu.Lock()
	v.told = nil
	v.mu.Unlock()
}

func (v *View) finish() {
	for _, s := range v.stores {
		s.Sweep()
	}
	v.showParts() // before anything is sent by them
	there := v.there()
	v.mu.Lock()
	v.fresh = there
	select {
	case <-v.known:
	default:
		close(v.known)
	}
	v.mu.Unlock()
	for _, f := range v.synced {
		f()
	}
}

// take is what one line has us do.
func (v *View) take(kind string, gone bool, object []byte) error {
	switch kind {
	case KindNamespace:
		return v.takeTwin(gone, object)
	case KindParts:
		return v.takeParts(gone, object)
	case KindClosed:
		return take(v, v.closed, &metav1.PartialObjectMetadata{}, gone, object)
	case "OffloadedPod":
		return take(v, v.OffloadedPods, &v1alpha1.OffloadedPod{}, gone, object)
	case "Pod":
		return take(v, v.Pods, &corev1.Pod{}, gone, object)
	case "Event":
		return take(v, v.Events, &corev1.Event{}, gone, object)
	case KindOtherEvent:
		return take(v, v.OtherEvents, &corev1.Event{}, gone, object)
	}
	if s := v.Metadata[kind]; s != nil {
		return take(v, s, &metav1.PartialObjectMetadata{}, gone, object)
	}
	return nil // of a later version
}

type object interface {
	store.Object
	runtime.Object
	metav1.Object
}

func take[T object](v *View, s *store.Store[T], is T, gone bool, text []byte) error {
	if err := v.reader.Read(text, is); err != nil {
		return err
	}
	unreadable := v.unreadable(is)
	switch {
	case unreadable, gone && is.GetUID() == "": // as if it were not there, the others are as they are; or no more is told of it
		var none T
		s.Delete(is.GetNamespace(), is.GetName(), none)
	case gone:
		s.Delete(is.GetNamespace(), is.GetName(), is)
	default:
		return s.Put(is)
	}
	return nil
}

// unreadable reports whether the object could not be decoded, and tells of it once.
func (v *View) unreadable(is metav1.Object) bool {
	why := codec.Unreadable(is)
	if why == "" {
		return false
	}
	key := fmt.Sprintf("%T %s/%s", is, is.GetNamespace(), is.GetName())
	if len(v.passed) > 1000 {
		clear(v.passed)
	}
	if v.passed[key] != is.GetResourceVersion() {
		v.passed[key] = is.GetResourceVersion()
		v.cfg.Log.Warn("an object of the peer cannot be read and is passed over", "kind", fmt.Sprintf("%T", is), "namespace", is.GetNamespace(), "name", is.GetName(), "err", why)
	}
	return true
}

func (v *View) takeTwin(gone bool, object []byte) error {
	ns := &metav1.PartialObjectMetadata{}
	if err := v.reader.Read(object, ns); err != nil {
		return err
	}
	is := &Twin{Name: ns.Name, Home: ns.Labels[v1alpha1.LabelHomeNamespace], Leaving: ns.DeletionTimestamp != nil}
	if is.Name == "" || is.Home == "" && !gone {
		return fmt.Errorf("namespace %.80q stands for none", is.Name)
	}
	if !gone {
		return v.Twins.Put(is)
	}
	for _, s := range v.stores {
		s.DeleteAll(is.Name)
	}
	v.Twins.Delete("", is.Name, nil)
	return nil
}
