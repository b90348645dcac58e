package reflection

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// twin is a namespace abroad and what is known of it.
type twin struct {
	home, name string

	mu       sync.Mutex
	session  *session
	memos    map[item]memo
	problems map[item]string
	ca       authority
}

// authority is home's, as the version of a ConfigMap has it.
type authority struct{ version, pem string }

// memo is what was written last for an item.
type memo struct {
	stamp    string // of what it was made from
	version  string // the resource version it got
	at       time.Time
	seen     bool // the watch abroad has shown that version, or a later one
	unneeded time.Time
}

// session is one look at both namespaces, from a list on.
type session struct {
	ctx    context.Context
	stop   context.CancelFunc
	member *member
	abroad map[kind]cache.SharedIndexInformer
	ready  chan struct{} // closed when all was seen
}

func newTwin(home, name string) *twin {
	return &twin{home: home, name: name, memos: map[item]memo{}, problems: map[item]string{}}
}

func (s *session) isReady() bool {
	if s == nil {
		return false
	}
	select {
	case <-s.ready:
		return s.ctx.Err() == nil
	default:
		return false
	}
}

// have gives the metadata of what is abroad for the item, nil when there is nothing of ours.
func (s *session) have(t *twin, it item) metav1.Object {
	name := it.name
	if it.kind == kindPod {
		name = companionName(it.name)
	}
	o, exists, err := s.abroad[it.kind.abroad()].GetStore().GetByKey(t.name + "/" + name)
	if err != nil || !exists {
		return nil
	}
	m := object(o)
	if itemOf(it.kind.abroad(), t.home, m) != it {
		return nil
	}
	return m
}

func (t *twin) current() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

func (t *twin) memo(it item) memo {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.memos[it]
}

func (t *twin) remember(it item, m memo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memos[it] = m
}

func (t *twin) forget(it item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.memos, it)
}

func (t *twin) knows(it item) bool { return t.memo(it).version != "" }

// tell notes a problem, or with "" that there is none, and says whether that is news.
func (t *twin) tell(it item, problem string) (all []string, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problems[it] == problem {
		return nil, false
	}
	if problem == "" {
		delete(t.problems, it)
	} else {
		t.problems[it] = problem
	}
	for it, problem := range t.problems {
		all = append(all, fmt.Sprintf("%s %s: %s", it.kind, it.name, problem))
	}
	slices.Sort(all)
	return all, true
}

// untold says whether problems were told that nobody looks after any more.
func (t *twin) untold() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.problems) > 0
}

func (t *twin) close() {
	if s := t.current(); s != nil {
		s.stop()
		s.member.leave()
	}
}

// follow begins a new session. It is called with r.mu held.
func (r *Reflector) follow(t *twin) {
	member, err := r.cfg.Home.join(t.home, r.homeChanged)
	if err != nil {
		r.log.Error("cannot watch a namespace at home", "namespace", t.home, "err", err)
		return
	}
	s := &session{member: member, abroad: map[kind]cache.SharedIndexInformer{}, ready: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(r.life)
	synced := member.synced()
	for _, k := range watchedAbroad {
		informer := r.abroad.informer(k, t.name)
		changed := func(o any) { r.queue.Add(itemOf(k, t.home, object(o))) }
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed,
		})
		if err != nil { // only of an informer that has stopped
			r.log.Error("cannot watch a twin namespace", "namespace", t.home, "twin", t.name, "err", err)
			continue
		}
		_ = informer.SetTransform(strip) // fails once it runs
		_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			r.log.Debug("watch of a twin broke", "namespace", t.home, "twin", t.name, "kind", string(k), "err", err)
		})
		s.abroad[k], synced = informer, append(synced, registration.HasSyncedChecker())
	}
	old := t.current()
	t.mu.Lock()
	t.session = s
	t.mu.Unlock()
	if old != nil {
		old.stop()
		old.member.leave()
	}
	go r.look(t, s, synced)
}

// look waits until both sides are known, then has everything compared.
func (r *Reflector) look(t *twin, s *session, synced []cache.DoneChecker) {
	for delay := 25 * time.Millisecond; ; delay = min(2*delay, maxDelay) {
		err := r.abroad.reachable(s.ctx, t.name)
		if err == nil {
			break
		}
		r.log.Debug("twin cannot be read yet", "namespace", t.home, "twin", t.name, "err", err)
		select {
		case <-time.After(delay):
		case <-s.ctx.Done():
			return
		}
	}
	for _, informer := range s.abroad {
		go informer.RunWithContext(s.ctx)
	}
	if !cache.WaitFor(s.ctx, "", synced...) {
		return
	}
	close(s.ready)
	r.log.Debug("namespace is reflected", "namespace", t.home, "twin", t.name)
	for k := range s.member.informers {
		for _, it := range s.member.list(k) {
			r.queue.Add(it)
		}
	}
	for k, informer := range s.abroad {
		for _, o := range informer.GetStore().List() {
			r.queue.Add(itemOf(k, t.home, object(o)))
		}
	}
}
