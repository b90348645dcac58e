package backend

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
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
