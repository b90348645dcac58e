package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/backoff"
	"kith.dev/core/base/queue"
	"kith.dev/core/trust/wire"
)

const (
	workers = 8
	// writeTimeout is how long a provider may take to hear a line.
	writeTimeout = 30 * time.Second
	firstPause   = time.Second
	longestPause = time.Minute
	// olderPause is until a peer is asked again that does not know the question, as an older Kith does not.
	olderPause = 10 * time.Minute
	// statusRate is how many statuses a second a peer may have home write, and statusBurst how many at once after a rest.
	statusRate, statusBurst = 100, 2000
)

// PeerConfig is what a Peer needs; all must be set.
type PeerConfig struct {
	Name string
	// Open opens the connection for Protocol. The peer's own no is a *peering.Problem.
	Open func(context.Context) (io.ReadWriteCloser, error)
	// Abroad reports whether a namespace has a twin there, Permit whether it may have one, and Ensure makes it.
	Abroad, Permit func(namespace string) bool
	Ensure         func(ctx context.Context, namespace string) error

	Recorder record.EventRecorder
	Log      *slog.Logger
}

// Peer keeps the custom resources at one provider what the policies say.
type Peer struct {
	PeerConfig
	home  *Home
	works atomic.Bool
	wake  chan struct{} // has an item when there may be something to begin
	pace  *rate.Limiter // of statuses that home writes

	mu   sync.Mutex
	now  *session  // nil: none
	none []refused // of all kinds, while there is no session
}

// Peer makes that for a provider. It works while Run does.
func (h *Home) Peer(cfg PeerConfig) *Peer {
	return &Peer{PeerConfig: cfg, home: h, wake: make(chan struct{}, 1), pace: rate.NewLimiter(statusRate, statusBurst)}
}

// SetWorks says whether the peer is there and works: a connection to one that is not says nothing any more.
func (p *Peer) SetWorks(works bool) {
	if p.works.Swap(works) != works {
		p.renew()
	}
}

// Opened has what a namespace has go to its new twin. What is there goes with the twin.
func (p *Peer) Opened(namespace string) {
	if s := p.session(); s != nil {
		s.queueAll(namespace)
	}
}

// renew begins anew: with other rules, or another connection.
func (p *Peer) renew() {
	if s := p.session(); s != nil {
		s.conn.Close()
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Peer) session() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// refusals are what the peer will not have.
func (p *Peer) refusals() []refused {
	p.mu.Lock()
	s, none := p.now, p.none
	p.mu.Unlock()
	if s == nil {
		return none
	}
	return s.refusals()
}

// Run works until ctx ends.
func (p *Peer) Run(ctx context.Context) {
	p.home.mu.Lock()
	p.home.peers[p] = true
	p.home.mu.Unlock()
	defer func() {
		p.home.mu.Lock()
		delete(p.home.peers, p)
		p.home.mu.Unlock()
		p.home.letGo(p.Name)
	}()
	pause := backoff.Doubling{First: firstPause, Most: longestPause}
	for ctx.Err() == nil {
		select {
		case <-p.wake: // what it is about is seen below
		default:
		}
		rules, objects := p.home.forPeer(p.Name)
		if len(rules) == 0 || !p.works.Load() {
			p.set(nil, nil)
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		began := time.Now()
		err := p.speak(ctx, rules, objects)
		if time.Since(began) > longestPause {
			pause.Reset()
		}
		again := pause.Next()
		var no *peering.Problem
		if errors.As(err, &no) {
			list := refusedAll(rules, p.Name, no)
			if list[0].reason == NotServed {
				again = olderPause
			}
			p.set(nil, list)
			p.home.showSoon()
		} else if err != nil && ctx.Err() == nil {
			p.Log.Debug("custom resources: the connection ended", "peer", p.Name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
			pause.Reset()
		case <-time.After(again):
		}
	}
}

// refusedAll is a no to everything. One that is starting, or has too much to do, says no for a moment only.
func refusedAll(rules []*rule, peer string, no *peering.Problem) (list []refused) {
	reason := Failed
	switch no.Code {
	case peering.CodeForbidden, peering.CodeNoContract:
		reason = NotAllowed
	case peering.CodeNotFound:
		reason = NotServed
	}
	for _, r := range rules {
		list = append(list, refused{policy: r.policy, peer: peer, kind: r.Name(), reason: reason, why: wire.Line(no.Error(), 500)})
	}
	return list
}

func (p *Peer) set(s *session, none []refused) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.none = s, none
}

// speak has one connection.
func (p *Peer) speak(ctx context.Context, rules []*rule, objects []cache.SharedIndexInformer) error {
	conn, err := p.Open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &session{
		p: p, rules: rules, objects: objects, conn: conn, kinds: make([]kindState, len(rules)), abroad: map[Key]State{}, sent: map[Key]string{}, no: map[Key]objectRefusal{},
		queue: queue.Of(workqueue.NewTypedItemExponentialFailureRateLimiter[Key](200*time.Millisecond, longestPause)),
	}
	first := Ask{}
	for _, r := range rules {
		first.Kinds = append(first.Kinds, r.Kind)
	}
	p.set(s, nil)
	defer p.set(nil, nil)
	if len(p.wake) > 0 { // while there was no connection yet that could be ended
		return nil
	}
	if err := s.say(first); err != nil {
		return err
	}
	parts, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for i, informer := range objects {
		changed := func(o any) { s.changed(i, o) }
		handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed})
		if err != nil {
			return err
		}
		defer informer.RemoveEventHandler(handle)
	}
	parts.Go(func() error { return s.hear() })
	parts.Go(func() error {
		queue.Serve(ctx, p.Log, s.queue, workers, s.reconcile)
		return ctx.Err()
	})
	return parts.Wait()
}

// session is one connection.
type session struct {
	p       *Peer
	rules   []*rule
	objects []cache.SharedIndexInformer
	conn    io.ReadWriteCloser
	queue   workqueue.TypedRateLimitingInterface[Key]

	writing sync.Mutex // of lines

	mu     sync.Mutex
	kinds  []kindState
	abroad map[Key]State  // what the peer has
	sent   map[Key]string // digests, or gone, of which nothing was heard yet
	no     map[Key]objectRefusal
}

// gone in sent is that a deletion was asked for.
const gone = "-"

type kindState struct {
	kept    bool
	defined bool // its definition was sent
	no      *Refusal
}

type objectRefusal struct {
	digest string // "": it is tried again
	Refusal
}

func (s *session) say(line Ask) error {
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if c, is := s.conn.(interface{ SetWriteDeadline(time.Time) error }); is {
		c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	_, err = s.conn.Write(append(raw, '\n'))
	if err != nil {
		s.conn.Close()
	}
	return err
}

// hear takes in what the peer tells until the connection ends.
func (s *session) hear() error {
	for in := NewLines(s.conn, MaxContent); ; {
		var line Tell
		if err := in.Next(&line); err != nil {
			return err
		}
		if err := s.told(line); err != nil {
			return err
		}
	}
}

func (s *session) told(line Tell) error {
	switch {
	case line.Kept != nil:
		i := *line.Kept
		if i < 0 || i >= len(s.kinds) {
			return fmt.Errorf("the peer keeps kind %d, which was not named", i)
		}
		s.mu.Lock()
		s.kinds[i] = kindState{kept: true}
		s.mu.Unlock()
		s.p.home.showSoon()
		for _, key := range s.objects[i].GetStore().ListKeys() {
			namespace, name, _ := cache.SplitMetaNamespaceKey(key)
			s.queue.Add(Key{i, namespace, name})
		}
		s.queueAbroad(i)
	case line.State != nil:
		key := line.State.Key
		if err := key.check(len(s.kinds)); err != nil {
			return err
		}
		s.mu.Lock()
		if line.State.Gone {
			delete(s.abroad, key)
		} else {
			s.abroad[key] = *line.State
		}
		delete(s.sent, key)
		s.mu.Unlock()
		s.queue.Add(key)
	case line.Refused != nil && line.Refused.Name != "":
		return s.refused(*line.Refused)
	case line.Refused != nil:
		return s.refusedKind(*line.Refused)
	}
	return nil
}

// queueAbroad has what the peer has of a kind looked at.
func (s *session) queueAbroad(kind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.abroad {
		if key.Kind == kind {
			s.queue.Add(key)
		}
	}
}

// queueAll has what a namespace has looked at.
func (s *session) queueAll(namespace string) {
	for i, objects := range s.objects {
		keys, _ := objects.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace)
		for _, key := range keys {
			_, name, _ := cache.SplitMetaNamespaceKey(key)
			s.queue.Add(Key{i, namespace, name})
		}
	}
}

func (s *session) refused(no Refusal) error {
	if err := no.check(len(s.kinds)); err != nil {
		return err
	}
	no.Why = wire.Line(no.Why, 500)
	s.mu.Lock()
	r := objectRefusal{Refusal: no}
	if no.Reason != Failed {
		r.digest = s.sent[no.Key]
	}
	was := s.no[no.Key]
	s.no[no.Key] = r
	delete(s.sent, no.Key)
	s.mu.Unlock()
	if no.Reason == Failed {
		s.queue.AddRateLimited(no.Key)
	}
	if was.Reason != no.Reason || was.Why != no.Why {
		s.p.home.showSoon()
		if o := s.at(no.Key); o != nil && no.Reason != Failed {
			s.p.Recorder.Eventf(o, corev1.EventTypeWarning, "NotReflected", "not reflected to %s: %s: %s", s.p.Name, no.Reason, no.Why)
		}
	}
	return nil
}

// refusedKind is the peer's no to a kind. One that it does not know may be sent.
func (s *session) refusedKind(no Refusal) error {
	i := no.Kind
	if i < 0 || i >= len(s.kinds) {
		return fmt.Errorf("the peer refuses kind %d, which was not named", i)
	}
	no.Why = wire.Line(no.Why, 500)
	s.mu.Lock()
	define := no.Reason == Unknown && s.rules[i].definition != nil && !s.kinds[i].defined
	s.kinds[i] = kindState{no: &no, defined: s.kinds[i].defined || define}
	s.mu.Unlock()
	s.p.home.showSoon()
	if define {
		return s.say(Ask{Define: &Definition{Kind: i, Definition: s.rules[i].definition}})
	}
	return nil
}

func (s *session) changed(kind int, o any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return
	}
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	s.queue.Add(Key{kind, namespace, name})
}

// at is an object at home as it was seen last; nil when there is none.
func (s *session) at(key Key) *unstructured.Unstructured {
	o, exists, err := s.objects[key.Kind].GetStore().GetByKey(key.Namespace + "/" + key.Name)
	if err != nil || !exists {
		return nil
	}
	return o.(*unstructured.Unstructured)
}

// reconcile brings the peer in step with an object of home, and that with what the peer says of its status.
func (s *session) reconcile(ctx context.Context, key Key) error {
	r := s.rules[key.Kind]
	if !s.objects[key.Kind].HasSynced() {
		return errors.New("objects at home are not all seen yet")
	}
	o := s.at(key)
	var want *Content
	var no *Refusal
	if s.p.Abroad(key.Namespace) || s.p.Permit(key.Namespace) {
		want, no = r.content(o)
	}
	id := object{r.Name(), key.Namespace, key.Name}
	s.mu.Lock()
	kept := s.kinds[key.Kind].kept
	s.mu.Unlock()
	if !kept {
		return nil
	}
	if want != nil && !s.p.Abroad(key.Namespace) {
		if err := s.p.Ensure(ctx, key.Namespace); err != nil {
			return err
		}
	}
	s.mu.Lock()
	have, has := s.abroad[key]
	if no != nil { // what is there stays as it was
		s.no[key] = objectRefusal{Refusal: Refusal{Key: key, Reason: no.Reason, Why: no.Why}}
		s.p.home.showSoon()
	} else if want == nil || has && have.Digest == want.Digest {
		delete(s.no, key)
	}
	var line Ask
	switch {
	case want == nil && no == nil && has && s.sent[key] != gone:
		line.Delete, s.sent[key] = &key, gone
	case want != nil && !(has && have.Digest == want.Digest) && s.sent[key] != want.Digest && s.no[key].digest != want.Digest:
		want.Key = key
		line.Put, s.sent[key] = want, want.Digest
	}
	s.mu.Unlock()
	if line.Put != nil || line.Delete != nil {
		if err := s.say(line); err != nil {
			return nil // the connection is over
		}
	}
	counts := s.p.home.hold(id, s.p.Name, has)
	if !has || want == nil || have.Digest != want.Digest {
		return nil
	}
	s.queue.Forget(key)
	if !counts || r.spec.Direction == v1alpha1.ReflectOut {
		return nil
	}
	err := s.p.home.writeStatus(ctx, r, o, have, s.p.pace)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("somebody else writes it, too: %w", err)
	}
	return err
}

// refusals are what the peer will not have.
func (s *session) refusals() (list []refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type which struct {
		kind   int
		reason Reason
	}
	objects := map[which]*refused{}
	for _, no := range s.no {
		w := which{no.Kind, no.Reason}
		if objects[w] == nil {
			r := s.rules[no.Kind]
			objects[w] = &refused{policy: r.policy, peer: s.p.Name, kind: r.Name(), reason: no.Reason}
		}
		objects[w].objects++
		if text := fmt.Sprintf("%s/%s: %s", no.Namespace, no.Name, no.Why); objects[w].why == "" || text < objects[w].why {
			objects[w].why = text
		}
	}
	for i, k := range s.kinds {
		if k.no != nil {
			r := s.rules[i]
			list = append(list, refused{policy: r.policy, peer: s.p.Name, kind: r.Name(), reason: k.no.Reason, why: k.no.Why})
		}
	}
	for _, r := range objects {
		list = append(list, *r)
	}
	return list
}
