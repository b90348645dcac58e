package backend

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
)

// The event says what was shared and what is; where nothing is otherwise there is no event.
func TestAChangeOfAPolicyIsToldOldAndNew(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(node, sharing.Default(50)).Build())
	c := &Cluster{Client: objects, Fresh: objects, Provider: provider.New(provider.Config{Client: objects, Fresh: objects, Name: "bob", Patience: time.Minute, Log: slog.New(slog.DiscardHandler)})}
	var events []api.Event
	b := &Backend{
		Engine: steady{}, Cluster: func() *Cluster { return c }, News: &notify.Broadcast{}, Publish: func(e api.Event) { events = append(events, e) },
	}
	for _, test := range []struct {
		share string
		want  string
	}{{"25%", "the sharing policy default was changed: 50% → 25%"}, {"25%", ""}, {"0%", "the sharing policy default was changed: 25% → nothing"}} {
		events = nil
		if _, err := b.SetPolicy(t.Context(), api.DefaultPolicy, api.PolicyChange{Amounts: api.ShareOf(test.share)}, false); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range events {
			got = e.Message
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.share, got, test.want)
		}
	}
}

// kubectl made a policy a moment ago, and the memory has not heard of it: what was shared stays where the change names nothing of it.
func TestAPolicyThatTheMemoryLacksIsNotMadeAnew(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}
	objects := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(node, sharing.Default(50)).Build()
	behind := interceptor.NewClient(objects, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, policy := o.(*v1alpha1.SharingPolicy); policy {
				return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "sharingpolicies"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	memory := ledgertest.Over(t, behind)
	c := &Cluster{Client: memory, Fresh: objects, Provider: provider.New(provider.Config{Client: memory, Fresh: objects, Name: "bob", Patience: time.Minute, Log: slog.New(slog.DiscardHandler)})}
	b := &Backend{Engine: steady{}, Cluster: func() *Cluster { return c }, News: &notify.Broadcast{}, Publish: func(api.Event) {}}
	off, err := b.SetPolicy(t.Context(), api.DefaultPolicy, api.PolicyChange{Paused: new(true)}, false)
	if err != nil || !off.Paused || off.Amounts.Share() != "50%" {
		t.Errorf("%+v, %v, want what was shared, paused", off, err)
	}
	if _, err := b.SetPolicy(t.Context(), "none", api.PolicyChange{Paused: new(true)}, false); err == nil {
		t.Error("a policy that shares nothing was made")
	}
}
