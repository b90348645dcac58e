package mode

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/frontdoor"
	"kith.dev/core/identity"
	"kith.dev/core/notify"
	"kith.dev/core/peering"
	"kith.dev/core/relations/link"
)

var corpID, aliceID = newID(), newID()

func newID() string {
	key, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	return identity.IDOf(key).String()
}

// world is alice's laptop and corp, apart from alice's machine, which may die and come again.
type world struct {
	t       *testing.T
	path    string
	objects client.Client
	changed notify.Broadcast

	mu       sync.Mutex
	machine  *Machine
	decides  bool
	binds    bool
	contact  link.Contact
	answer   peering.Tether
	answers  error  // in place of answer
	refuses  error  // of BeginTether
	declines string // why corp declines
	silent   bool   // corp's owner does not answer
	stuck    bool   // corp does not take its guests away
	slow     bool   // corp makes no contract
	accepted bool
	runs     bool
	events   []api.Event
	goodbyes int // how often corp was told to give alice back
	calls    int // how often it was told to have her
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "corp"}, Spec: v1alpha1.PeerSpec{ID: corpID}})
	return &world{
		t: t, path: filepath.Join(t.TempDir(), "mode.json"), decides: true, contact: link.Contact{Reachable: true}, answer: peering.Tether{Answer: peering.TetherYes},
		objects: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.Contract{}).Build(),
	}
}

// react does what relations and corp do, at some later moment.
func (w *world) react(after time.Duration) {
	time.AfterFunc(after, func() {
		w.step()
		w.changed.Notify()
	})
}

func (w *world) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx := context.Background()
	var peer v1alpha1.Peer
	if w.objects.Get(ctx, client.ObjectKey{Name: "corp"}, &peer) == nil {
		was := peer.DeepCopy()
		switch r := peer.Spec.Request; {
		case r == nil:
			peer.Status.Outgoing.State = v1alpha1.StateNone
		case r.Tether && r.Attempt > peer.Status.Outgoing.Attempt && w.contact.Reachable:
			peer.Status.Outgoing.Attempt = r.Attempt
			switch {
			case w.declines != "":
				peer.Status.Outgoing.State, peer.Status.Outgoing.Why = v1alpha1.StateDeclined, w.declines
			case w.silent:
				peer.Status.Outgoing.State, peer.Status.Outgoing.Why, peer.Status.Outgoing.Code = v1alpha1.StateRequested, "waiting for the owner of corp", "123456"
			default:
				w.yes(&peer)
			}
		}
		w.check(client.IgnoreNotFound(w.objects.Status().Patch(ctx, &peer, client.MergeFrom(was))))
	}
	ctr := w.contract()
	_, joins := "", false
	if w.machine != nil {
		_, joins = w.machine.Company()
	}
	switch {
	case ctr != nil && ctr.DeletionTimestamp != nil: // the provider clears away what was under it
		w.clear(ctr)
		if w.runs {
			w.react(time.Second)
		}
	case w.runs && ctr == nil && w.contact.Reachable && w.machine != nil && !w.slow:
		if !joins { // "this laptop is not tethered to you"
			w.runs = false
			return
		}
		ctr = &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "to-corp-1", Finalizers: []string{v1alpha1.FinalizerContract}},
			Spec: v1alpha1.ContractSpec{ID: "contract", Revision: 1, Role: v1alpha1.RoleProvider, Peer: "corp", NotAfter: &metav1.Time{Time: time.Now().Add(24 * time.Hour)}}}
		w.check(w.objects.Create(ctx, ctr))
		w.check(w.objects.Create(ctx, guest("web-0")))
		w.incoming(v1alpha1.StateConnected)
	case !w.runs && ctr != nil && w.contact.Reachable && !w.stuck:
		w.clear(ctr)
	}
}

func (w *world) yes(peer *v1alpha1.Peer) {
	w.accepted = true
	peer.Status.Outgoing.State = v1alpha1.StateNone
	if peer.Status.Tether == nil {
		peer.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherLaptop}
	}
	peer.Status.Tether.Accepted = peer.Spec.Request.Attempt
}

func (w *world) clear(ctr *v1alpha1.Contract) {
	ctx := context.Background()
	was := ctr.DeepCopy()
	ctr.Finalizers = nil
	w.check(client.IgnoreNotFound(w.objects.Patch(ctx, ctr, client.MergeFrom(was))))
	w.check(client.IgnoreNotFound(w.objects.Delete(ctx, ctr)))
	w.check(client.IgnoreNotFound(w.objects.Delete(ctx, guest("web-0"))))
	w.incoming(v1alpha1.StateNone)
}

func (w *world) incoming(state v1alpha1.RelationState) {
	var peer v1alpha1.Peer
	if w.objects.Get(context.Background(), client.ObjectKey{Name: "corp"}, &peer) == nil {
		was := peer.DeepCopy()
		peer.Status.Incoming.State = state
		w.check(w.objects.Status().Patch(context.Background(), &peer, client.MergeFrom(was)))
	}
}

func (w *world) check(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) contract() *v1alpha1.Contract {
	var list v1alpha1.ContractList
	w.check(w.objects.List(context.Background(), &list))
	for i := range list.Items {
		if list.Items[i].Spec.Peer == "corp" {
			return &list.Items[i]
		}
	}
	return nil
}

func (w *world) peer() *v1alpha1.Peer {
	var peer v1alpha1.Peer
	w.check(w.objects.Get(context.Background(), client.ObjectKey{Name: "corp"}, &peer))
	return &peer
}

func guest(name string) *corev1.Pod {
	id, _ := identity.ParseID(corpID)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop-abc", Labels: map[string]string{v1alpha1.LabelConsumer: id.Compact()}}}
}

// pod is one of the owner's; kind "" has no controller.
func pod(name, kind string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "1"}, Spec: corev1.PodSpec{NodeName: "alice"}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "of-" + name, Controller: new(true)}}
	}
	return p
}

// set changes the world, and has everybody look.
func (w *world) set(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.react(0)
}

// life is one process of alice's kithd. It dies when deaths effects have been counted, before the last one or after it.
type life struct {
	*world
	*Machine
	ctx  context.Context
	kill context.CancelFunc
	over chan struct{}

	mu     sync.Mutex
	effect int
	dies   int // 0: never
	after  bool
	at     step // where it died
	led    []frontdoor.Destination
}

var errDead = errors.New("killed")

// do has an effect on the world, unless the process is dead or dies by it.
func (l *life) do(effect func() error) error {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return errDead
	}
	l.effect++
	dies := l.effect == l.dies
	if dies {
		if j := l.Machine.now.Load(); j != nil {
			l.at = j.Step
		}
		l.kill()
	}
	l.mu.Unlock()
	if dies && !l.after {
		return errDead
	}
	err := effect()
	if dies {
		return errDead
	}
	return err
}

// begin starts a process.
func (w *world) begin(change func(*Config), dies int, after bool) *life {
	l := &life{world: w, dies: dies, after: after, over: make(chan struct{})}
	l.ctx, l.kill = context.WithCancel(context.Background())
	written := func(call func() error) error {
		err := l.do(call)
		w.react(20 * time.Millisecond)
		return err
	}
	own := interceptor.NewClient(w.objects.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return written(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return written(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return written(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return written(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	cfg := Config{
		Path: w.path, ID: aliceID, Engine: l, Ours: true, Door: l, Directory: l, Changed: w.changed.Wait, Notify: func() {}, Log: slog.New(slog.DiscardHandler),
		Home: func() (frontdoor.Destination, error) { return frontdoor.Destination{Name: "home"}, nil },
		Company: func(p *v1alpha1.Peer) (frontdoor.Destination, error) {
			return frontdoor.Destination{Name: p.Name, Base: &url.URL{}}, nil
		},
		Cluster: func() *Cluster {
			return &Cluster{Client: own, Fresh: own, SetBinding: func(on bool) {
				_ = l.do(func() error { w.mu.Lock(); w.binds = on; w.mu.Unlock(); return nil })
			}}
		},
		Announce: func(e api.Event) { w.mu.Lock(); w.events = append(w.events, e); w.mu.Unlock() },
	}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	l.Machine = m
	m.reach = func(*v1alpha1.Peer) (company, error) { return l, nil }
	m.write = func(path string, j *journal) error { return l.do(func() error { return writeJournal(path, j) }) }
	w.mu.Lock()
	w.machine = m
	w.mu.Unlock()
	go func() {
		defer close(l.over)
		for l.ctx.Err() == nil {
			_ = m.Run(l.ctx)
			select {
			case <-time.After(time.Second):
			case <-l.ctx.Done():
			}
		}
	}()
	w.react(0)
	synctest.Wait()
	return l
}

func (l *life) stop() {
	l.kill()
	<-l.over
	l.world.mu.Lock()
	l.world.machine = nil
	l.world.mu.Unlock()
	synctest.Wait()
}

func (l *life) WaitReady(context.Context) error { return nil }
func (l *life) Decides() bool                   { l.world.mu.Lock(); defer l.world.mu.Unlock(); return l.decides }
func (l *life) Decide(_ context.Context, on bool) error {
	return l.do(func() error { l.world.mu.Lock(); l.decides = on; l.world.mu.Unlock(); return nil })
}

func (l *life) Lead(to frontdoor.Destination) {
	_ = l.do(func() error { l.mu.Lock(); l.led = append(l.led, to); l.mu.Unlock(); return nil })
}

// leads is where the front door leads.
func (l *life) leads() frontdoor.Destination {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.led) == 0 {
		return frontdoor.Destination{}
	}
	return l.led[len(l.led)-1]
}

func (l *life) Client(*v1alpha1.Peer) (*peering.Client, error) { return nil, errors.ErrUnsupported }
func (l *life) Contact(*v1alpha1.Peer) link.Contact {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.contact
}

var errAway = errors.New("no answer in time")

func (l *life) call(what func() error) error {
	err := l.do(func() error {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		if !l.contact.Reachable {
			return errAway
		}
		return what()
	})
	l.react(50 * time.Millisecond)
	return err
}

func (l *life) Tether(context.Context) (peering.Tether, error) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.answer, l.answers
}

func (l *life) BeginTether(context.Context) (peering.Tether, error) {
	t := peering.Tether{Runs: true, Grant: &peering.TetherGrant{User: "kith:laptop:bbb", Namespaces: []peering.TetherNamespace{{Name: "team-a", Role: "edit"}}}}
	return t, l.call(func() error {
		l.calls++
		switch {
		case l.refuses != nil:
			return l.refuses
		case !l.accepted && !l.runs:
			return &peering.Problem{Code: peering.CodeForbidden, Message: "nothing was accepted"}
		}
		l.accepted, l.runs = false, true
		return nil
	})
}

func (l *life) EndTether(context.Context) error {
	return l.call(func() error { l.goodbyes++; l.accepted, l.runs = false, false; return nil })
}

// tether begins a tether and gives its result.
func (l *life) tether(options api.TetherOptions) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.Machine.Tether(l.ctx, l.world.peer(), options, func(api.Progress) {}) }()
	return result
}

func (l *life) untether(options api.UntetherOptions, report func(api.Progress)) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.Untether(l.ctx, options, report) }()
	return result
}

// settled checks that all of the world fits to the mode.
func (l *life) settled(want api.Mode) {
	l.t.Helper()
	synctest.Wait()
	mode, _ := l.Status()
	if mode != want {
		_, t := l.Status()
		l.t.Fatalf("mode %s (%+v), want %s", mode, t, want)
	}
	is, peer, ctr := mode == api.Tethered, l.world.peer(), l.world.contract()
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	if l.decides == is {
		l.t.Errorf("%s: the engine decides: %v", mode, l.decides)
	}
	if l.binds != is {
		l.t.Errorf("%s: guests are bound here: %v", mode, l.binds)
	}
	if door := l.leads().Name; door != map[bool]string{true: "corp", false: "home"}[is] {
		l.t.Errorf("%s: the front door leads to %q", mode, door)
	}
	if (ctr != nil) != is {
		l.t.Errorf("%s: contract %v", mode, ctr)
	}
	if l.runs != is {
		l.t.Errorf("%s: corp runs alice: %v", mode, l.runs)
	}
	if (peer.Spec.Request != nil) != is || (peer.Status.Tether != nil) != is {
		l.t.Errorf("%s: request %v, status %v", mode, peer.Spec.Request, peer.Status.Tether)
	}
	if is && (peer.Status.Tether.Step != "tethered" || peer.Status.Tether.User == "") {
		l.t.Errorf("the Peer shows %+v", peer.Status.Tether)
	}
}

func (w *world) pods() ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.objects.List(context.Background(), &list)
	return list.Items, err
}
