package reflection

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
)

// twin is a namespace abroad and what is known of it.
type twin struct {
	home, name string

	mu       sync.Mutex
	session  *session
	writes   map[item]written
	problems map[item]string
	ca       authority
}

// authority is home's, as the version of a ConfigMap has it.
type authority struct{ version, pem string }

// written is what was written last for an item.
type written struct {
	stamp    string // of what it was made from
	version  string // the resource version it got
	at       time.Time
	seen     bool // the watch abroad has shown that version, or a later one
	unneeded time.Time
}

// session is a twin that is looked at.
type session struct {
	ctx    context.Context
	stop   context.CancelFunc
	member *member
	ready  chan struct{} // closed when all was seen
}

func newTwin(home, name string) *twin {
	return &twin{home: home, name: name, writes: map[item]written{}, problems: map[item]string{}}
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

func (t *twin) current() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

func (t *twin) written(it item) written {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes[it]
}

func (t *twin) remember(it item, m written) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes[it] = m
}

func (t *twin) forget(it item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.writes, it)
}

func (t *twin) knows(it item) bool { return t.written(it).version != "" }

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
	}
}

// have gives the metadata of what is abroad for the item, nil when there is nothing of ours.
func (r *Reflector) have(t *twin, it item) metav1.Object {
	name := it.name
	if it.kind == kinds.Pod {
		name = companionName(it.name)
	}
	o := r.cfg.View.Metadata[it.abroad().Name].Get(t.name, name)
	if o == nil || !ours(o) || itemOf(it.abroad(), t.home, o) != it {
		return nil
	}
	return o
}

// follow begins to look at a twin. It is called with r.mu held.
func (r *Reflector) follow(t *twin, isNew bool) {
	if r.member == nil {
		member, err := r.cfg.Home.join(r.homeChanged)
		if err != nil {
			r.log.Error("cannot watch what is at home", "namespace", t.home, "err", err)
			return
		}
		r.member = member
	}
	s := &session{member: r.member, ready: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(r.life)
	t.mu.Lock()
	t.session = s
	t.mu.Unlock()
	go r.await(t, s, isNew)
}

// await waits until both sides are known, then has everything compared.
func (r *Reflector) await(t *twin, s *session, isNew bool) {
	if isNew && r.untilReadable(s.ctx, t) != nil {
		return
	}
	if !cache.WaitFor(s.ctx, "", s.member.synced...) {
		return
	}
	select {
	case <-r.cfg.View.Known():
	case <-s.ctx.Done():
		return
	}
	close(s.ready)
	r.log.Debug("namespace is reflected", "namespace", t.home, "twin", t.name)
	r.compare(t, s)
}

// untilReadable waits until the rights in a new twin have reached the peer's API server. It gives the error of ctx when that ended.
func (r *Reflector) untilReadable(ctx context.Context, t *twin) error {
	growing := wait.Backoff{Duration: 25 * time.Millisecond, Factor: 2, Steps: 100, Cap: maxDelay}
	return growing.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := r.abroad.reachable(ctx, t.name)
		if err != nil {
			r.log.Debug("twin cannot be read yet", "namespace", t.home, "twin", t.name, "err", err)
		}
		return err == nil, nil
	})
}

// compare has everything in a namespace and its twin looked at, at once, also what waits for its next attempt.
func (r *Reflector) compare(t *twin, s *session) {
	look := func(it item) {
		r.queue.Forget(it)
		r.queue.Add(it)
	}
	for k := range s.member.informers {
		for _, it := range s.member.list(k, t.home) {
			look(it)
		}
	}
	for _, k := range kinds.Reflected() {
		for _, o := range r.cfg.View.Metadata[k.Name].In(t.name) {
			if ours(o) {
				look(itemOf(k, t.home, o))
			}
		}
	}
}

// ours: made from here; what else is in a twin is the peer's own.
func ours(o metav1.Object) bool { return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy }

// abroadChanged queues what a change in a twin may matter to.
func (r *Reflector) abroadChanged(k *kinds.Kind, was, is *metav1.PartialObjectMetadata) {
	o := is
	if o == nil {
		o = was
	}
	if home := r.cfg.View.HomeOf(o.Namespace); r.twin(home) != nil && ours(o) {
		r.queue.Add(itemOf(k, home, o))
	}
}

// synced is called when the view has told of everything: what was refused, or cut off, is tried again.
func (r *Reflector) synced() {
	for _, t := range r.allTwins() {
		if s := t.current(); s.isReady() {
			r.compare(t, s)
		}
	}
}
