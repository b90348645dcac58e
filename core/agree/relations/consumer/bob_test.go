package consumer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// bob is a provider with a cluster of one node with 8 cpu, and counts what is written there.
type bob struct {
	*provider.Provider
	client *ledger.Ledger
	me     *identity.Identity
	writes atomic.Int32
}

// newBob shares half of it, unless the objects have another policy.
func newBob(t *testing.T, objects ...client.Object) *bob {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Labels: map[string]string{v1alpha1.LabelFenced: "true"}}}
	node.Status.Allocatable = list("cpu", "8", "memory", "16Gi", "pods", "110")
	if len(objects) == 0 {
		objects = []client.Object{sharing.Default(50)}
	}
	b := &bob{me: load(t)}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, node)...).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringRequest{}, &v1alpha1.Contract{}).Build()
	b.client = ledgertest.Over(t, interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			b.writes.Add(1)
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			b.writes.Add(1)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			b.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}))
	b.Provider = provider.New(provider.Config{Client: b.client, Fresh: b.client, Identity: b.me, Name: "bob", Patience: 10 * time.Minute, Notices: new(provider.Notices),
		Announce: func(api.Event) {}, Log: slog.New(slog.DiscardHandler)})
	return b
}

func (b *bob) requests(t *testing.T) []v1alpha1.PeeringRequest {
	t.Helper()
	var all v1alpha1.PeeringRequestList
	if err := b.client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// accepts has the owner say yes to what is asked, whatever would be granted at this moment.
func (b *bob) accepts(t *testing.T, r *v1alpha1.PeeringRequest) {
	t.Helper()
	before := r.DeepCopy()
	r.Status.Answer, r.Status.AnsweredBy = v1alpha1.AnswerAccepted, "owner"
	if err := b.client.Status().Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	b.answered(t, r.Name)
}

// answered is what bob's cluster does when a request changed: who waits for the answer looks again.
func (b *bob) answered(t *testing.T, request string) {
	t.Helper()
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: request}}); err != nil {
		t.Fatal(err)
	}
}

// provided is a Provider behind the peer API.
type provided struct {
	*provider.Provider
	others
}

// others are the calls that no Provider answers.
type others struct{ peering.Handler }

func (provided) Notices(context.Context, peering.Caller) <-chan peering.Notice { return nil }

// acceptedPeer is a Peer whose key the owner accepted.
func acceptedPeer(name string, id identity.ID) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String(), DisplayName: name}}
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "OwnerAccepted"})
	return peer
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}
