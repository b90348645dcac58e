package provider

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// world is a provider with a cluster that counts what is asked of it.
type world struct {
	*Provider
	client *ledger.Ledger
	me     *identity.Identity
	writes atomic.Int32
	reads  atomic.Int32 // past the cache
	events []api.Event
	taken  int // how many names of requests to come are taken
}

// newWorld makes a provider of one node with 8 cpu, who shares half of it.
func newWorld(t testing.TB, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Labels: map[string]string{v1alpha1.LabelFenced: "true"}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"), "example.com/fpga": resource.MustParse("1")}
	if len(objects) == 0 {
		objects = []client.Object{sharing.Default(50)}
	}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, node)...).
		WithStatusSubresource(&v1alpha1.Peer{}, &v1alpha1.PeeringRequest{}, &v1alpha1.Contract{}).Build()
	d := &world{me: load(t)}
	wrote := func() { d.writes.Add(1) }
	d.client = ledgertest.Over(t, interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			wrote()
			if _, is := o.(*v1alpha1.PeeringRequest); is && d.taken > 0 {
				d.taken--
				return apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("peeringrequests").GroupResource(), o.GetName())
			}
			if at := o.GetCreationTimestamp(); at.IsZero() { // as an API server has it
				o.SetCreationTimestamp(metav1.Now())
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			wrote()
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			wrote()
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			wrote()
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}))
	fresh := interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			d.reads.Add(1)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			d.reads.Add(1)
			return c.List(ctx, list, opts...)
		},
	})
	d.Provider = New(Config{Client: d.client, Fresh: fresh, Identity: d.me, Name: "bob", Patience: 10 * time.Minute,
		Announce: func(e api.Event) { d.events = append(d.events, e) }, Log: slog.New(slog.DiscardHandler)})
	return d
}

// stranger is a caller whose key nobody saw before.
func stranger(n int, addr string) peering.Caller {
	return peering.Caller{ID: identity.ID{0xee, byte(n >> 16), byte(n >> 8), byte(n), 1}, Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 40000)}
}

// acceptedPeer is a Peer whose key the owner accepted.
func acceptedPeer(name string, id identity.ID) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeerSpec{ID: id.String(), DisplayName: name}}
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "OwnerAccepted"})
	return peer
}

func (d *world) ask(t *testing.T, who peering.Caller, name string) (string, error) {
	t.Helper()
	id, _, err := d.Ask(t.Context(), who, peering.Question{Name: name, Attempt: 1}, "123456", false)
	return id, err
}

func (d *world) requests(t *testing.T) []v1alpha1.PeeringRequest {
	t.Helper()
	var list v1alpha1.PeeringRequestList
	if err := d.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func load(t testing.TB) *identity.Identity {
	t.Helper()
	who, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return who
}
