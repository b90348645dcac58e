package guests

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// host is a reconciler for bob's guests in his twin namespace shop.
func (d *provider) host(told events.EventRecorder) *Reconciler {
	d.Helper()
	check, err := newRules()
	if err != nil {
		d.Fatal(err)
	}
	return &Reconciler{
		client: d.client, cached: d.client, live: d.client, contracts: d.contracts, allocations: d.allocations, rules: check,
		events: told, log: slog.New(slog.DiscardHandler), now: time.Now, records: map[types.NamespacedName]record{}, evicted: map[types.NamespacedName]*corev1.Pod{}, eventLimits: map[string]*rate.Limiter{},
		seeking: map[types.NamespacedName]struct{}{}, reserved: map[types.UID]string{}, yielded: map[types.UID]bool{},
	}
}

// mighty is an OffloadedPod that was accepted once, and is against the provider's pod security level by now.
func mighty(name string) *v1alpha1.OffloadedPod {
	o := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: name, UID: types.UID("o-" + name)}}
	o.Spec.HomeNamespace = "shop"
	o.Spec.Template.Spec = corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1")}}}}
	o.Status = v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodAccepted, PodUID: "earlier"}
	return o
}

func TestARefusedPodThatDoesNotRunHoldsNothing(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	for name, c := range map[string]struct {
		lag  bool // the Pod is there, and the cache does not show it yet
		used string
	}{
		"lost":      {false, "0"},
		"just made": {true, "1"},
	} {
		d := newProvider(t, peer.DeepCopy(), contract.DeepCopy(), mighty("p"))
		if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
			t.Fatal(err)
		}
		r, k := d.host(events.NewFakeRecorder(10)), key(bobsShop, "p")
		if c.lag {
			r.live = newProvider(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "p", Labels: Selector}}).client
			r.remember(k, record{made: time.Now().Add(-time.Second)})
		}
		r.started = true
		r.allocations.Enter(k, "contractb", "", list("cpu", "1", "pods", "1"))
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k}); err != nil {
			t.Fatal(err)
		}
		var now v1alpha1.OffloadedPod
		if err := d.client.Get(t.Context(), k, &now); err != nil || now.Status.Phase != v1alpha1.OffloadedPodRefused || now.Status.Reason != grants.ReasonPodSecurity {
			t.Errorf("%s: %+v, %v", name, now.Status, err)
		}
		if used := r.allocations.Used("contractb"); used.Cpu().String() != c.used {
			t.Errorf("%s: %v of the contract are in use", name, used)
		}
	}
}

func TestEventsFitIntoWhatTheAPIServerTakes(t *testing.T) {
	told := events.NewFakeRecorder(1)
	r := newProvider(t).host(told)
	r.event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, corev1.EventTypeWarning, "NotChanged", "%s", strings.Repeat("é100%s ", 1000))
	_, note, _ := strings.Cut(<-told.Events, "NotChanged ")
	if len(note) > 1024 || len(note) < 1000 || !strings.HasPrefix(note, "é100%s é") {
		t.Errorf("%d bytes: %s", len(note), note)
	}
}
