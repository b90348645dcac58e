package backend

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
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
	"kith.dev/core/trust/identity"
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

// What a change says of hours, bounds and conditions is in the object, and a later change of something else leaves it there.
func TestWhatAPolicyIsBoundedByIsWrittenAndStays(t *testing.T) {
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(sharing.Default(50)).Build())
	c := &Cluster{Client: objects, Fresh: objects, Provider: provider.New(provider.Config{Client: objects, Fresh: objects, Name: "bob", Patience: time.Minute, Log: slog.New(slog.DiscardHandler)})}
	b := &Backend{Engine: steady{}, Cluster: func() *Cluster { return c }, News: &notify.Broadcast{}, Publish: func(api.Event) {}}
	change := api.PolicyChange{
		Hours:    &api.List[api.Hours]{{Days: api.List[string]{"Sat", "Sun"}, From: "00:00", To: "24:00"}, {From: "22:00", To: "06:00"}},
		TimeZone: new("Europe/Berlin"), Reserve: &api.Resources{"cpu": "2"}, MaxPerPeer: &api.Resources{"memory": "10%"}, MaxPeers: new(int32(3)), OnMains: new(true), BatteryAbove: new(int32(40)), IdleFor: new("10m"), NotMetered: new(true), Cool: new(true),
		Bandwidth: &api.Bandwidth{Ingress: "20M"},
	}
	read := func() v1alpha1.SharingPolicySpec {
		t.Helper()
		var p v1alpha1.SharingPolicy
		if err := objects.Get(t.Context(), client.ObjectKey{Name: api.DefaultPolicy}, &p); err != nil {
			t.Fatal(err)
		}
		return p.Spec
	}
	for _, change := range []api.PolicyChange{change, {AutoAccept: new(true)}, {NoInternet: new(true)}} {
		shown, err := b.SetPolicy(t.Context(), api.DefaultPolicy, change, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := api.HoursWords(shown.Hours, shown.TimeZone); got != "Sat,Sun 00:00-24:00; 22:00-06:00 Europe/Berlin" || shown.Reserve["cpu"] != "2" || shown.MaxPeers != 3 || !shown.OnMains || shown.Bandwidth.String() != "ingress=20M" {
			t.Errorf("%+v", shown)
		}
		s := read()
		if len(s.Hours) != 2 || s.Hours[0].Days[1] != "Sun" || s.Hours[1].To != "06:00" || s.TimeZone != "Europe/Berlin" || s.Reserve["cpu"] != "2" || s.MaxPerPeer["memory"] != "10%" ||
			s.MaxPeers == nil || *s.MaxPeers != 3 || s.Only == nil || !s.Only.OnMains || s.Only.BatteryAbove != 40 || s.Only.IdleFor == nil || s.Only.IdleFor.Duration != 10*time.Minute || !s.Only.NotMetered || !s.Only.Cool ||
			s.Network == nil || *s.Network.Bandwidth != (v1alpha1.GuestBandwidth{Ingress: "20M"}) {
			t.Errorf("%+v", s)
		}
	}
	if _, err := b.SetPolicy(t.Context(), api.DefaultPolicy, api.PolicyChange{TimeZone: new("Europe/Nowhere")}, false); !errors.Is(err, &api.Error{Code: api.CodeInvalid}) {
		t.Error(err)
	}
	none := api.PolicyChange{Hours: &api.List[api.Hours]{}, TimeZone: new(""), Reserve: &api.Resources{}, MaxPerPeer: &api.Resources{}, MaxPeers: new(int32(0)), OnMains: new(false), BatteryAbove: new(int32(0)), IdleFor: new(""), NotMetered: new(false), Cool: new(false),
		Bandwidth: &api.Bandwidth{}}
	if _, err := b.SetPolicy(t.Context(), api.DefaultPolicy, none, false); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.Hours != nil || s.TimeZone != "" || s.Reserve != nil || s.MaxPerPeer != nil || s.MaxPeers != nil || s.Only != nil || s.Network.Bandwidth != nil || s.Network.Internet != v1alpha1.AccessDeny {
		t.Errorf("taken away: %+v", s)
	}
}

// What kithd says of an offer is what the provider weighs, in words; a stranger is meant by its ID, before it was ever met.
func TestOfferedIsWhatTheProviderWeighs(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Labels: map[string]string{v1alpha1.LabelFenced: "true"}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	policy := sharing.Default(50)
	policy.Spec.Reserve = map[string]v1alpha1.Amount{"cpu": "6"}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(node, policy).Build())
	id := identity.ID{7}
	p := provider.New(provider.Config{Client: objects, Fresh: objects, Name: "bob", Patience: time.Minute, Log: slog.New(slog.DiscardHandler)})
	e, err := p.Explain(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	o := offeredView("alice", id, e)
	if o.Policy != "default" || o.Reason != "" || len(o.Policies) != 1 || !o.Policies[0].Applies || o.Policies[0].Selected != api.SelectedEverybody {
		t.Errorf("%+v", o)
	}
	want := api.OfferedResource{Name: "cpu", Offered: "2", Bound: api.BoundByReserve, Policy: "50%", Amount: "4", Others: "0", Allocatable: "8", OwnPods: "0", Granted: "0", Reserve: "6"}
	if len(o.Resources) != 3 || o.Resources[0] != want {
		t.Errorf("%+v, want %+v", o.Resources, want)
	}
	policy.Spec.Paused = true
	if err := objects.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if e, err = p.Explain(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if o := offeredView("alice", id, e); o.Reason != api.NoOfferPaused || o.Why == "" || o.Policies[0].Reason != api.NoOfferPaused || o.Resources[0].Offered != "2" {
		t.Errorf("%+v", o)
	}
}
