package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/fence"
	"kith.dev/daemon/backend"
	"kith.dev/daemon/localapi"
	"kith.dev/daemon/metrics"
)

// TestAWrongRangeIsSaid: in status, which doctor reads too, as an event, and to those who would come; and no more once it is right.
func TestAWrongRangeIsSaid(t *testing.T) {
	d := &Daemon{log: slog.New(slog.DiscardHandler), events: localapi.NewBroker(10), backend: &backend.Backend{}}
	d.metrics = metrics.New(func(context.Context) metrics.Facts { return metrics.Facts{} }, prometheus.NewRegistry(), nil, d.log)
	d.parts = newParts(d.metrics, d.changed.Notify)
	f, err := fence.New(fence.Config{
		Tunnel: netplan.Tunnel, Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16"), DNS: netip.MustParseAddr("10.43.0.10"),
		Kernel: new(hostnet.Changes), Log: d.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.follow(f)
	if list := d.failing(); len(list) > 0 || d.closedToGuests() != "" {
		t.Fatalf("%v, %q before anything is known", list, d.closedToGuests())
	}
	node := func(pods string) []corev1.Node {
		return []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "corp-2"}, Spec: corev1.NodeSpec{PodCIDR: pods}}}
	}
	changed := d.changed.Wait()
	f.Compare(node("10.99.2.0/24"), nil)
	<-changed
	list := d.failing()
	if len(list) != 1 || list[0].Severity != api.SeverityError || d.closedToGuests() == "" {
		t.Fatalf("%+v, %q", list, d.closedToGuests())
	}
	for _, word := range []string{"podRange", "10.42.0.0/16", "corp-2", "10.99.2.0/24"} {
		if !strings.Contains(list[0].What, word) {
			t.Errorf("%q does not say %q", list[0].What, word)
		}
	}
	f.Compare(node("10.42.2.0/24"), nil)
	if list := d.failing(); len(list) > 0 || d.closedToGuests() != "" {
		t.Errorf("%v, %q when it is right", list, d.closedToGuests())
	}
}
