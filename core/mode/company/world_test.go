package company

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/identity"
)

var (
	alice = identity.ID{0xaa, 1}
	bob   = identity.ID{0xbb, 2}
)

// world is a company with a cluster.
type world struct {
	*testing.T
	*Company
	client  *ledger.Ledger
	events  []api.Event
	refused []string // by the door
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	return newWorldAt(t, &rest.Config{Host: "http://192.0.2.1"}, objects...) // nobody asks
}

func newWorldAt(t *testing.T, config *rest.Config, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []string{"edit", "view"} {
		objects = append(objects, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}})
	}
	w := &world{T: t}
	w.client = ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.TetherPolicy{}, &v1alpha1.PeeringRequest{}, &v1alpha1.Contract{}).Build())
	audits := audit.New(slog.New(slog.DiscardHandler), audit.Options{Count: func(door audit.Door, reason audit.Reason) {
		w.refused = append(w.refused, string(door)+"/"+string(reason))
	}})
	var err error
	w.Company, err = New(Config{
		Client: w.client, Fresh: w.client, REST: config, Roles: []string{anyRole}, Audit: audits,
		Announce: func(e api.Event) { w.events = append(w.events, e) }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func caller(id identity.ID) peering.Caller { return peering.Caller{ID: id} }

// policy is one for everybody, each after a yes.
func policy(name string, change ...func(*v1alpha1.TetherPolicySpec)) *v1alpha1.TetherPolicy {
	p := &v1alpha1.TetherPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

func in(namespace, role string) func(*v1alpha1.TetherPolicySpec) {
	return func(s *v1alpha1.TetherPolicySpec) {
		s.Namespaces = append(s.Namespaces, v1alpha1.LaptopNamespace{Name: namespace, ClusterRole: role})
	}
}

// laptop is a Peer, whose key was accepted.
func laptop(name string, id identity.ID, change ...func(*v1alpha1.Peer)) *v1alpha1.Peer {
	p := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String(), DisplayName: name}}
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "OwnerAccepted"})
	for _, c := range change {
		c(p)
	}
	return p
}

func tethered(p *v1alpha1.Peer) {
	p.Spec.Tethered, p.Spec.Request = &v1alpha1.Tethered{}, &v1alpha1.ResourceRequest{Attempt: 1}
}

func step(step string) func(*v1alpha1.Peer) {
	return func(p *v1alpha1.Peer) {
		p.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherCompany, Step: step, User: user(p.Spec.ID)}
	}
}

func outgoing(state v1alpha1.RelationState, attempt int64) func(*v1alpha1.Peer) {
	return func(p *v1alpha1.Peer) {
		p.Status.Outgoing.State, p.Status.Outgoing.Attempt = state, attempt
	}
}

func accepted(id identity.ID, by string) *v1alpha1.PeeringRequest {
	return &v1alpha1.PeeringRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "alice-7f3a"},
		Spec: v1alpha1.PeeringRequestSpec{PeerID: id.String(), PeerName: "alice", Tether: true, Code: "123456",
			Expires: metav1.NewTime(time.Now().Add(time.Minute))},
		Status: v1alpha1.PeeringRequestStatus{Answer: v1alpha1.AnswerAccepted, AnsweredBy: by},
	}
}

func (w *world) reconcile(name string) time.Duration {
	w.Helper()
	var result ctrl.Result
	for range 4 { // each write of its own brings it back
		var err error
		if result, err = w.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			w.Fatal(err)
		}
	}
	return result.RequeueAfter
}

func (w *world) peer(name string) *v1alpha1.Peer {
	w.Helper()
	var p v1alpha1.Peer
	if err := w.client.Get(context.Background(), client.ObjectKey{Name: name}, &p); err != nil {
		w.Fatal(err)
	}
	return &p
}

// change writes an object by hand.
func (w *world) change(o client.Object, change func()) {
	w.Helper()
	if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
		w.Fatal(err)
	}
	change()
	o.SetGeneration(o.GetGeneration() + 1)
	if err := w.client.Update(context.Background(), o); err != nil {
		w.Fatal(err)
	}
	if _, is := o.(*v1alpha1.Peer); is {
		was := o.DeepCopyObject().(client.Object)
		change()
		o.SetResourceVersion(was.GetResourceVersion())
		if err := w.client.Status().Update(context.Background(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// bindings are all that Kith made, as "namespace role user".
func (w *world) bindings() (all []string) {
	w.Helper()
	var list rbacv1.RoleBindingList
	if err := w.client.List(context.Background(), &list, client.MatchingLabels(rightsLabels())); err != nil {
		w.Fatal(err)
	}
	for _, b := range list.Items {
		all = append(all, b.Namespace+" "+b.RoleRef.Name+" "+b.Subjects[0].Name[len(UserPrefix):len(UserPrefix)+3])
	}
	slices.Sort(all)
	return all
}

func (w *world) quotas() (all []string) {
	w.Helper()
	var list corev1.ResourceQuotaList
	if err := w.client.List(context.Background(), &list, client.MatchingLabels(rightsLabels())); err != nil {
		w.Fatal(err)
	}
	for _, q := range list.Items {
		pods := q.Spec.Hard[corev1.ResourcePods]
		all = append(all, q.Namespace+" "+q.Name+" "+pods.String())
	}
	slices.Sort(all)
	return all
}

func (w *world) namespaces() map[string]map[string]string {
	w.Helper()
	var list corev1.NamespaceList
	if err := w.client.List(context.Background(), &list); err != nil {
		w.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, n := range list.Items {
		all[n.Name] = n.Labels
	}
	return all
}

// went are the types of the events since it was asked last.
func (w *world) went() (all []string) {
	for _, e := range w.events {
		all = append(all, string(e.Type))
	}
	w.events = nil
	return all
}
