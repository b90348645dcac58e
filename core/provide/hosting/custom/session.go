package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/custom"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire"
)

// annotationContent on an object has the digest of what its home put, and annotationGeneration the generation that this made.
const annotationContent = "kith.dev/content"

const (
	workers = 8
	// callTimeout bounds one write.
	callTimeout = 15 * time.Second
	// establishedWithin is how long the API server may take to serve a kind whose definition is new.
	establishedWithin = 10 * time.Second
	// writeTimeout is how long a consumer may take to hear a line.
	writeTimeout = 30 * time.Second
)

// session is one connection.
type session struct {
	o        *Objects
	consumer grants.Consumer
	contract string
	conn     net.Conn
	log      *slog.Logger

	kinds []*kept

	writing sync.Mutex // of lines

	mu    sync.Mutex
	dirty map[custom.Key]bool // to be told of
	woken chan struct{}
}

// kept is a kind that the consumer named.
type kept struct {
	custom.Kind

	opening sync.Mutex
	release func()

	mu       sync.Mutex                // guards what follows
	name     string                    // in objects
	informer cache.SharedIndexInformer // nil: refused
	put      map[custom.Key]generation // what was put over this connection
	making   map[custom.Key]bool       // counted, and not seen yet
}

// generation is what a digest was put as.
type generation struct {
	digest string
	number int64
}

func metav1Object(o any) (metav1.Object, error) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	return meta.Accessor(o)
}

// slim leaves out of objects what nobody asks.
func slim(o any) (any, error) {
	if object, err := meta.Accessor(o); err == nil {
		object.SetManagedFields(nil)
	}
	return o, nil
}

func (s *session) run(ctx context.Context) error {
	in := custom.NewLines(s.conn, custom.MaxDefinition)
	var first custom.Ask
	s.conn.SetReadDeadline(time.Now().Add(beginWithin))
	if err := in.Next(&first); err != nil {
		return err
	}
	s.conn.SetReadDeadline(time.Time{})
	if err := first.CheckKinds(); err != nil {
		return err
	}
	s.dirty, s.woken = map[custom.Key]bool{}, make(chan struct{}, 1)
	for _, k := range first.Kinds {
		s.kinds = append(s.kinds, &kept{Kind: k, put: map[custom.Key]generation{}, making: map[custom.Key]bool{}})
	}
	defer func() {
		for _, k := range s.kinds {
			if k.release != nil {
				k.release()
			}
		}
	}()
	parts, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	parts.Go(func() error {
		for i := range s.kinds {
			if err := s.open(ctx, i, nil); err != nil {
				return err
			}
		}
		return s.tellChanges(ctx)
	})
	parts.Go(func() error { return s.hear(ctx, in) })
	return parts.Wait()
}

// open begins with a kind, or refuses it; with a definition that the consumer brought, if there is none here. What is here of it is told.
func (s *session) open(ctx context.Context, i int, brought json.RawMessage) error {
	k := s.kinds[i]
	k.opening.Lock()
	defer k.opening.Unlock()
	if k.release != nil {
		return nil
	}
	name, no, err := s.knows(ctx, k, brought)
	if err != nil {
		s.log.Warn("custom resources", "kind", k.Name(), "err", err)
		no = refuse(custom.Failed, "the provider cannot look it up now")
	}
	if no != nil {
		no.Kind = i
		return s.tell(custom.Tell{Refused: no})
	}
	informer, release := s.o.watch(k.GVR())
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { s.changed(i, o) }, UpdateFunc: func(_, o any) { s.changed(i, o) }, DeleteFunc: func(o any) { s.changed(i, o) },
	})
	if err != nil {
		release()
		return err
	}
	k.release = func() {
		_ = informer.RemoveEventHandler(handle)
		release()
	}
	within, cancel := context.WithTimeout(ctx, establishedWithin)
	defer cancel()
	if !cache.WaitForCacheSync(within.Done(), handle.HasSynced) {
		k.release()
		k.release = nil
		no := refuse(custom.Failed, "objects of this kind cannot be listed here; may kithd do that?")
		no.Kind = i
		return s.tell(custom.Tell{Refused: no})
	}
	k.mu.Lock()
	k.name, k.informer = name, informer
	k.mu.Unlock()
	if err := s.flush(ctx); err != nil {
		return err
	}
	return s.tell(custom.Tell{Kept: &i})
}

// knows looks a kind up, and has a definition made that was brought.
func (s *session) knows(ctx context.Context, k *kept, brought json.RawMessage) (name string, no *custom.Refusal, err error) {
	terms := s.o.grants.Of(s.contract)
	var may *v1alpha1.GuestKind
	if terms.InForce(time.Now()) {
		may = allowed(terms, k.Kind)
	}
	if may == nil {
		return "", refuse(custom.NotAllowed, "the owner there does not let peers keep %s (spec.kinds of the SharingPolicy)", k.Name()), nil
	}
	name, no, err = s.o.known(ctx, k.Kind)
	if err != nil || no == nil || no.Reason != custom.Unknown || brought == nil {
		return name, no, err
	}
	if may.Definition != v1alpha1.AccessAllow {
		return "", refuse(custom.NotAllowed, "the owner there has no %s, and does not let peers bring its definition", k.Name()), nil
	}
	if no, err := s.o.define(ctx, k.Kind, brought); no != nil || err != nil {
		return "", no, err
	}
	for late := time.Now().Add(establishedWithin); ; { // until it is served
		_, err = s.o.client.Resource(k.GVR()).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil || !apierrors.IsNotFound(err) || time.Now().After(late) {
			break
		}
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err != nil {
		return "", nil, err
	}
	return s.o.known(ctx, k.Kind)
}

// changed notes that an object is to be told of.
func (s *session) changed(i int, o any) {
	object, err := metav1Object(o)
	if err != nil || object.GetLabels()[v1alpha1.LabelConsumer] != s.consumer.Compact {
		return
	}
	home := object.GetLabels()[v1alpha1.LabelHomeNamespace]
	s.mu.Lock()
	s.dirty[custom.Key{Kind: i, Namespace: home, Name: object.GetName()}] = true
	s.mu.Unlock()
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// tellChanges tells of what changes, the newest only, as fast as the consumer hears.
func (s *session) tellChanges(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.woken:
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
}

func (s *session) flush(ctx context.Context) error {
	s.mu.Lock()
	now := s.dirty
	s.dirty = map[custom.Key]bool{}
	s.mu.Unlock()
	for key := range now {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.tell(custom.Tell{State: s.state(key)}); err != nil {
			return err
		}
	}
	return nil
}

// state is an object as it is here.
func (s *session) state(key custom.Key) *custom.State {
	state := &custom.State{Key: key, Gone: true}
	k := s.kinds[key.Kind]
	o := s.get(k, key)
	if o == nil {
		return state
	}
	state.Gone, state.Generation, state.Digest = false, o.GetGeneration(), o.GetAnnotations()[annotationContent]
	k.mu.Lock()
	if was, known := k.put[key]; known && was.digest == state.Digest && was.number < state.Generation {
		state.Digest = "" // somebody here changed it
	}
	delete(k.making, key)
	k.mu.Unlock()
	if status := o.Object["status"]; status != nil {
		if raw, err := json.Marshal(status); err == nil && len(raw) <= custom.MaxContent {
			state.Status = raw
		}
	}
	return state
}

// get gives the consumer's object as it was seen last; nil when there is none.
func (s *session) get(k *kept, key custom.Key) *unstructured.Unstructured {
	twin, ok := s.o.grants.TwinFor(s.consumer, key.Namespace)
	if !ok {
		return nil
	}
	k.mu.Lock()
	informer := k.informer
	k.mu.Unlock()
	if informer == nil {
		return nil
	}
	seen, exists, err := informer.GetStore().GetByKey(twin.Name + "/" + key.Name)
	if err != nil || !exists {
		return nil
	}
	o := seen.(*unstructured.Unstructured)
	if o.GetLabels()[v1alpha1.LabelConsumer] != s.consumer.Compact {
		return nil
	}
	return o
}

func (s *session) tell(line custom.Tell) error {
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err = s.conn.Write(append(raw, '\n'))
	return err
}

// hear does what the consumer says, of each object in its order.
func (s *session) hear(ctx context.Context, in *wire.Lines) error {
	pace := s.o.pace(s.consumer.ID)
	var queues [workers]chan custom.Ask
	parts, ctx := errgroup.WithContext(ctx)
	for i := range queues {
		queues[i] = make(chan custom.Ask, 4)
		parts.Go(func() error {
			for ask := range queues[i] {
				if err := s.do(ctx, ask); err != nil {
					return err
				}
			}
			return nil
		})
	}
	parts.Go(func() error {
		defer func() {
			for _, q := range queues {
				close(q)
			}
		}()
		for {
			var ask custom.Ask
			if err := in.Next(&ask); err != nil {
				return err
			}
			if err := ask.Check(len(s.kinds)); err != nil {
				return err
			}
			if put := ask.Put; put != nil && len(put.Content) > custom.MaxContent { // it is not kept in a queue either
				no := refuse(custom.TooLarge, "it has %d bytes, at most %d are taken", len(put.Content), custom.MaxContent)
				no.Key = put.Key
				if err := s.tell(custom.Tell{Refused: no}); err != nil {
					return err
				}
				continue
			}
			if err := pace.Wait(ctx); err != nil {
				return err
			}
			if err := s.due(); err != nil {
				return err
			}
			select {
			case queues[lane(ask)] <- ask:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return parts.Wait() // io.EOF when the consumer went: the rest of the session ends with it
}

// due reports that the contract is over.
func (s *session) due() error {
	if !s.o.grants.Of(s.contract).InForce(time.Now()) {
		return errors.New("the contract is not in force")
	}
	return nil
}

// lane is the worker of an object.
func lane(ask custom.Ask) int {
	h := fnv.New32a()
	switch {
	case ask.Put != nil:
		fmt.Fprint(h, ask.Put.Key)
	case ask.Delete != nil:
		fmt.Fprint(h, *ask.Delete)
	}
	return int(h.Sum32() % workers)
}

// do does one thing. An error ends the connection.
func (s *session) do(ctx context.Context, ask custom.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+establishedWithin)
	defer cancel()
	var key custom.Key
	var no *custom.Refusal
	switch {
	case ask.Define != nil:
		return s.open(ctx, ask.Define.Kind, ask.Define.Definition)
	case ask.Put != nil:
		key = ask.Put.Key
		no = s.keep(ctx, ask.Put)
	case ask.Delete != nil:
		key = *ask.Delete
		no = s.takeAway(ctx, key)
	}
	if no == nil {
		return nil
	}
	no.Key = key
	return s.tell(custom.Tell{Refused: no})
}

// keep makes an object what its home says it is.
func (s *session) keep(ctx context.Context, put *custom.Content) *custom.Refusal {
	k := s.kinds[put.Kind]
	content, err := custom.Fields(put.Content, custom.MaxContent)
	if err != nil {
		return refuse(custom.Invalid, "%v", err)
	}
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		if _, there := content[field]; there {
			return refuse(custom.Invalid, "%s is not taken", field)
		}
	}
	if len(put.Digest) > 128 {
		return refuse(custom.Invalid, "the digest is too long")
	}
	may, twin, no := s.place(k, put.Namespace)
	if no != nil {
		return no
	}
	old := s.get(k, put.Key)
	for range 5 {
		if old == nil && !s.room(k, put.Key, int(may.Most)) {
			return refuse(custom.TooMany, "%d objects of %s are kept there, as many as the owner lets peers have", may.Most, k.Name())
		}
		var is *unstructured.Unstructured
		if is, err = s.write(ctx, k, twin.Name, old, put, content); err == nil {
			k.mu.Lock()
			k.put[put.Key] = generation{put.Digest, is.GetGeneration()}
			k.mu.Unlock()
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !(old != nil && apierrors.IsNotFound(err)) {
			break
		}
		if old, no = s.fresh(ctx, k, twin.Name, put.Name); no != nil {
			break
		}
	}
	k.mu.Lock()
	delete(k.making, put.Key)
	k.mu.Unlock()
	if no != nil {
		return no
	}
	return said(err)
}

// place is where a consumer's objects of a namespace are.
func (s *session) place(k *kept, home string) (may *v1alpha1.GuestKind, twin grants.Twin, no *custom.Refusal) {
	terms := s.o.grants.Of(s.contract)
	k.mu.Lock()
	open := k.informer != nil
	k.mu.Unlock()
	if terms.InForce(time.Now()) && open {
		may = allowed(terms, k.Kind)
	}
	if may == nil {
		return nil, twin, refuse(custom.NotAllowed, "the owner there does not let peers keep %s", k.Name())
	}
	twin, there := s.o.grants.TwinFor(s.consumer, home)
	if !there || twin.Leaving {
		return nil, twin, refuse(custom.Failed, "namespace %s has no twin there", home)
	}
	return may, twin, nil
}

// room reports whether one more may be made, and counts it.
func (s *session) room(k *kept, key custom.Key, most int) bool {
	have, err := k.informer.GetIndexer().IndexKeys(byConsumer, s.consumer.Compact)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.making[key] {
		return true
	}
	if err != nil || len(have)+len(k.making) >= most {
		return false
	}
	k.making[key] = true
	return true
}

// write makes the object, or changes the one that there is: all but its metadata and status is what home says.
func (s *session) write(ctx context.Context, k *kept, namespace string, old *unstructured.Unstructured, put *custom.Content, content map[string]any) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	want := &unstructured.Unstructured{Object: maps.Clone(content)}
	if want.Object == nil {
		want.Object = map[string]any{}
	}
	want.SetGroupVersionKind(k.GVR().GroupVersion().WithKind(k.name))
	objects := s.o.client.Resource(k.GVR()).Namespace(namespace)
	if old != nil {
		metadata, _, _ := unstructured.NestedMap(old.Object, "metadata")
		want.Object["metadata"] = metadata
		if status, there := old.Object["status"]; there {
			want.Object["status"] = status
		}
		annotations := want.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[annotationContent] = put.Digest
		want.SetAnnotations(annotations)
		return objects.Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldOwner})
	}
	want.SetName(put.Name)
	want.SetNamespace(namespace)
	want.SetLabels(map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: s.consumer.Compact, v1alpha1.LabelHomeNamespace: put.Namespace,
	})
	want.SetAnnotations(map[string]string{annotationContent: put.Digest})
	return objects.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldOwner})
}

// fresh reads an object past what was seen; nil when there is none. One that is not the consumer's is refused.
func (s *session) fresh(ctx context.Context, k *kept, namespace, name string) (*unstructured.Unstructured, *custom.Refusal) {
	o, err := s.o.client.Resource(k.GVR()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, said(err)
	case o.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || o.GetLabels()[v1alpha1.LabelConsumer] != s.consumer.Compact:
		return nil, refuse(custom.NotOurs, "somebody there made an object of that name")
	}
	return o, nil
}

// takeAway deletes an object of the consumer's.
func (s *session) takeAway(ctx context.Context, key custom.Key) *custom.Refusal {
	k := s.kinds[key.Kind]
	twin, there := s.o.grants.TwinFor(s.consumer, key.Namespace)
	k.mu.Lock()
	open := k.informer != nil
	k.mu.Unlock()
	if !there || !open {
		return nil
	}
	o, no := s.fresh(ctx, k, twin.Name, key.Name)
	if no != nil || o == nil {
		return no
	}
	uid := o.GetUID()
	err := s.o.client.Resource(k.GVR()).Namespace(twin.Name).Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	k.mu.Lock()
	delete(k.put, key)
	k.mu.Unlock()
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return said(err)
}

// said is what the API server's no means to home. What may pass by itself is tried again there.
func said(err error) *custom.Refusal {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		return refuse(custom.Invalid, "%v", err)
	case apierrors.IsRequestEntityTooLargeError(err):
		return refuse(custom.TooLarge, "%v", err)
	}
	return refuse(custom.Failed, "%v", err)
}
