package mode

import (
	"context"
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/trust/identity"
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
	contact  peering.Contact
	answer   peering.Tether
	answers  error              // in place of answer
	refuses  error              // of BeginTether
	declines string             // why corp declines
	silent   bool               // corp's owner does not answer
	stuck    bool               // corp does not take its guests away
	late     *v1alpha1.Contract // that comes about when corp says yes
	slow     bool               // corp makes no contract
	accepted bool
	runs     bool
	events   []api.Event
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

func newWorld(t *testing.T, objects ...client.Object) *world {
	objects = append(objects, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "corp"}, Spec: v1alpha1.PeerSpec{ID: corpID}})
	return &world{
		t: t, path: filepath.Join(t.TempDir(), "mode.json"), decides: true, contact: peering.Contact{Presence: presence.Presence{State: presence.Reachable}}, answer: peering.Tether{Answer: peering.TetherYes},
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
		case r.Tether && r.Attempt > peer.Status.Outgoing.Attempt && w.contact.Reachable():
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
		if !equality.Semantic.DeepEqual(was, &peer) {
			w.check(client.IgnoreNotFound(w.objects.Status().Patch(ctx, &peer, client.MergeFrom(was))))
		}
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
	case w.runs && ctr == nil && w.contact.Reachable() && w.machine != nil && !w.slow:
		if !joins { // "this laptop is not tethered to you"
			w.runs = false
			return
		}
		ctr = &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "to-corp-1", Finalizers: []string{v1alpha1.FinalizerContract}},
			Spec: v1alpha1.ContractSpec{ID: "contract", Revision: 1, Role: v1alpha1.RoleProvider, Peer: "corp", NotAfter: &metav1.Time{Time: time.Now().Add(24 * time.Hour)}}}
		w.check(w.objects.Create(ctx, ctr))
		w.check(w.objects.Create(ctx, guest("web-0")))
		w.incoming(v1alpha1.StateConnected)
	case !w.runs && ctr != nil && w.contact.Reachable() && !w.stuck:
		w.clear(ctr)
	}
}

func (w *world) yes(peer *v1alpha1.Peer) {
	w.accepted = true
	if w.late != nil {
		w.late.Name = "late"
		w.check(w.objects.Create(context.Background(), w.late))
	}
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

func (w *world) pods() ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.objects.List(context.Background(), &list)
	return list.Items, err
}
