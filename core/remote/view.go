package remote

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/kinds"
	"kith.dev/core/wire/codec"
)

// maxTwins bounds how many namespaces a peer can have us keep.
const maxTwins = 10_000

// Config is what a View needs; all must be set.
type Config struct {
	// Open asks the peer for the stream, and gives its body. It ends with ctx.
	Open func(ctx context.Context) (io.ReadCloser, error)
	Log  *slog.Logger
}

// Twin is a namespace that the peer keeps for one of this cluster.
type Twin struct {
	Name, Home string
	Leaving    bool // it is being deleted there
}

// View is what one peer shows of the twins there. Make it with New; all methods may be called by many at once.
type View struct {
	OffloadedPods *Store[*v1alpha1.OffloadedPod]
	Pods          *Store[*corev1.Pod]
	Events        *Store[*corev1.Event]
	Metadata      map[string]*Store[*metav1.PartialObjectMetadata] // by kind

	cfg    Config
	reader *codec.Reader
	stores []store
	twin   []func(was, is *Twin)
	synced []func()
	// onClosed are called without the lock.
	onClosed []func()
	passed   map[string]string // what could not be decoded, and is passed over: by its version; of the one goroutine that reads

	mu     sync.Mutex
	twins  map[string]shown // by name
	round  int
	fresh  bool
	known  chan struct{} // closed at the first Synced
	stop   context.CancelFunc
	closed string
	// closedRound is when the peer said so.
	closedRound int
	away        bool
	changed     chan struct{} // closed, and made anew, when away changed
}

type shown struct {
	Twin
	round int
}

// store is what all of them can be told.
type store interface {
	begin()
	sweep()
	leave(namespace string)
}

// New makes a View; Run fills it.
func New(cfg Config) *View {
	v := &View{
		OffloadedPods: newStore[*v1alpha1.OffloadedPod](), Pods: newStore[*corev1.Pod](), Events: newStore[*corev1.Event](),
		Metadata: map[string]*Store[*metav1.PartialObjectMetadata]{},
		cfg:      cfg, reader: codec.NewReader(&v1alpha1.OffloadedPod{}, &corev1.Pod{}, &corev1.Event{}, &metav1.PartialObjectMetadata{}),
		passed: map[string]string{}, twins: map[string]shown{}, known: make(chan struct{}), changed: make(chan struct{}),
	}
	v.stores = []store{v.OffloadedPods, v.Pods, v.Events}
	for _, k := range kinds.Reflected() {
		v.Metadata[k.Name] = newStore[*metav1.PartialObjectMetadata]()
		v.stores = append(v.stores, v.Metadata[k.Name])
	}
	return v
}

// OnTwin has f called for each twin that came (was is nil), changed, or went (is is nil); what was in it went before. It must be
// called before the view runs.
func (v *View) OnTwin(f func(was, is *Twin)) { v.twin = append(v.twin, f) }

// OnSynced has f called each time that all that there is was told. It must be called before the view runs.
func (v *View) OnSynced(f func()) { v.synced = append(v.synced, f) }

// Known is closed once all that there is was told for the first time.
func (v *View) Known() <-chan struct{} { return v.known }

// Fresh reports whether everything was told since the view began, or the peer could be reached again.
func (v *View) Fresh() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fresh
}

// Twins lists the namespaces that the peer keeps.
func (v *View) Twins() []Twin {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]Twin, 0, len(v.twins))
	for _, t := range v.twins {
		all = append(all, t.Twin)
	}
	return all
}

// HomeOf is the namespace here that one of the peer stands for; empty when that is not known.
func (v *View) HomeOf(twin string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.twins[twin].Home
}

// SetReachable tells whether the peer can be reached: while it cannot, it is not asked, and when it can again everything is told
// afresh at once, whatever the stream was doing. Until told otherwise a peer is taken for reachable.
func (v *View) SetReachable(reachable bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away == !reachable {
		return
	}
	v.away = !reachable
	v.fresh = v.fresh && !reachable
	if v.stop != nil {
		v.stop()
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *View) begin() {
	v.mu.Lock()
	v.round++
	v.mu.Unlock()
	for _, s := range v.stores {
		s.begin()
	}
}

func (v *View) finish() {
	for _, s := range v.stores {
		s.sweep()
	}
	var gone []*Twin
	v.mu.Lock()
	for name, t := range v.twins {
		if t.round != v.round {
			gone = append(gone, &t.Twin)
			delete(v.twins, name)
		}
	}
	v.fresh = !v.away
	open := v.closedRound != v.round // or it does not say
	select {
	case <-v.known:
	default:
		close(v.known)
	}
	v.mu.Unlock()
	if open {
		v.setClosed("")
	}
	for _, t := range gone {
		v.tellTwin(t, nil)
	}
	for _, f := range v.synced {
		f()
	}
}

// take is what one line has us do.
func (v *View) take(kind string, gone bool, object []byte) error {
	switch kind {
	case KindNamespace:
		return v.takeTwin(gone, object)
	case KindClosed:
		return v.takeClosed(gone, object)
	case "OffloadedPod":
		return take(v, v.OffloadedPods, &v1alpha1.OffloadedPod{}, gone, object)
	case "Pod":
		return take(v, v.Pods, &corev1.Pod{}, gone, object)
	case "Event":
		return take(v, v.Events, &corev1.Event{}, gone, object)
	}
	if s := v.Metadata[kind]; s != nil {
		return take(v, s, &metav1.PartialObjectMetadata{}, gone, object)
	}
	return nil // of a later version
}

func take[T Object](v *View, s *Store[T], is T, gone bool, object []byte) error {
	if err := v.reader.Read(object, is); err != nil {
		return err
	}
	unreadable := v.unreadable(is)
	switch {
	case unreadable, gone && is.GetUID() == "": // as if it were not there, the others are as they are; or no more is told of it
		var none T
		s.drop(is.GetNamespace(), is.GetName(), none)
	case gone:
		s.drop(is.GetNamespace(), is.GetName(), is)
	default:
		return s.put(is)
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
	is := Twin{Name: ns.Name, Home: ns.Labels[v1alpha1.LabelHomeNamespace], Leaving: ns.DeletionTimestamp != nil}
	if is.Name == "" || is.Home == "" && !gone {
		return fmt.Errorf("namespace %.80q stands for none", is.Name)
	}
	if gone {
		for _, s := range v.stores {
			s.leave(is.Name)
		}
	}
	v.mu.Lock()
	was, known := v.twins[is.Name]
	switch {
	case gone:
		delete(v.twins, is.Name)
	case !known && len(v.twins) >= maxTwins:
		v.mu.Unlock()
		return fmt.Errorf("more than %d namespaces", maxTwins)
	default:
		v.twins[is.Name] = shown{is, v.round}
	}
	v.mu.Unlock()
	switch {
	case gone && known:
		v.tellTwin(&was.Twin, nil)
	case gone:
	case !known:
		v.tellTwin(nil, &is)
	case was.Twin != is:
		v.tellTwin(&was.Twin, &is)
	}
	return nil
}

func (v *View) tellTwin(was, is *Twin) {
	for _, f := range v.twin {
		f(was, is)
	}
}
