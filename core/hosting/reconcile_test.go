package hosting

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
)

// host is a reconciler for bob's guests in his twin namespace shop.
func (d *desk) host(told events.EventRecorder) *reconciler {
	d.Helper()
	check, err := newChecker()
	if err != nil {
		d.Fatal(err)
	}
	t := d.tenants
	return &reconciler{
		client: d.client, cached: d.client, live: d.client, contracts: t.contracts, book: t.book, rules: rules{checker: check},
		events: told, log: t.log, now: time.Now, memos: map[types.NamespacedName]memo{}, told: map[string]*rate.Limiter{},
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
		d := newDesk(t, peer.DeepCopy(), contract.DeepCopy(), mighty("p"))
		if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
			t.Fatal(err)
		}
		r, k := d.host(events.NewFakeRecorder(10)), key(bobsShop, "p")
		if c.lag {
			r.live = newDesk(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "p", Labels: guests}}).client
			r.remember(k, memo{made: time.Now().Add(-time.Second)})
		}
		r.started = true
		r.book.enter(k, "contractb", list("cpu", "1", "pods", "1"))
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k}); err != nil {
			t.Fatal(err)
		}
		var now v1alpha1.OffloadedPod
		if err := d.client.Get(t.Context(), k, &now); err != nil || now.Status.Phase != v1alpha1.OffloadedPodRefused || now.Status.Reason != reasonPodSecurity {
			t.Errorf("%s: %+v, %v", name, now.Status, err)
		}
		if used := r.book.Used("contractb"); used.Cpu().String() != c.used {
			t.Errorf("%s: %v of the contract are in use", name, used)
		}
	}
}

func TestEventsFitIntoWhatTheAPIServerTakes(t *testing.T) {
	told := events.NewFakeRecorder(1)
	r := newDesk(t).host(told)
	r.event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, corev1.EventTypeWarning, "NotChanged", "%s", strings.Repeat("é100%s ", 1000))
	_, note, _ := strings.Cut(<-told.Events, "NotChanged ")
	if len(note) > 1024 || len(note) < 1000 || !strings.HasPrefix(note, "é100%s é") {
		t.Errorf("%d bytes: %s", len(note), note)
	}
}

// behind is a client whose reads of one kind show what was before the writes.
func behind[T client.Object](d *desk, into func(dst, src T)) (c client.Client, freeze func(T)) {
	var old *T
	c = interceptor.NewClient(d.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if dst, ok := obj.(T); ok && old != nil {
				into(dst, *old)
				return nil
			}
			return c.Get(ctx, k, obj, opts...)
		},
	})
	return c, func(is T) { old = &is }
}

func TestUseOfAContractIsWrittenHoweverFarBehindTheCacheIs(t *testing.T) {
	peer, _ := peerOf("bob", 1)
	d := newDesk(t, peer, contractWith("bob", "contractb"))
	var before v1alpha1.Contract
	get := func(into *v1alpha1.Contract) {
		t.Helper()
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: "bob-contractb"}, into); err != nil {
			t.Fatal(err)
		}
	}
	get(&before)
	cached, freeze := behind(d, func(dst, src *v1alpha1.Contract) { src.DeepCopyInto(dst) })
	freeze(&before)
	h := &Host{client: cached, contracts: d.tenants.contracts, book: d.tenants.book, log: d.tenants.log}
	if err := h.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() { h.book.enter(key(bobsShop, "p"), "contractb", list("cpu", "1")) }, "1"},
		{func() { h.book.release(key(bobsShop, "p")) }, "0"},
	} {
		c.do()
		if err := h.publishOne(t.Context(), "contractb"); err != nil {
			t.Fatal(err)
		}
		var now v1alpha1.Contract
		if get(&now); now.Status.Used.Cpu().String() != c.want {
			t.Errorf("used %v, want cpu %s", now.Status.Used, c.want)
		}
	}
}

func TestAddressesOfGuestsAreToldHoweverFarBehindTheCacheIs(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "p", Labels: guests}}
	d := newDesk(t, peer, contract, pod)
	if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	cached, freeze := behind(d, func(dst, src *corev1.Namespace) { src.DeepCopyInto(dst) })
	h := &tenants{client: cached, told: told{last: map[string]telling{}}, log: d.tenants.log}
	shop := func() *corev1.Namespace {
		t.Helper()
		var ns corev1.Namespace
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns); err != nil {
			t.Fatal(err)
		}
		return &ns
	}
	at := func(ips ...corev1.PodIP) (later time.Duration) {
		t.Helper()
		pod.Status.PodIPs = ips
		if err := d.client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		result, err := h.tellAddresses(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: bobsShop}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	before := shop()
	if later := at(corev1.PodIP{IP: "10.42.0.9"}); later != 0 || shop().Annotations[annotationGuests] != "10.42.0.9" {
		t.Fatalf("%s, %v", later, shop().Annotations)
	}
	time.Sleep(2 * eachGuest) // else it would wait for that
	freeze(before)
	if later := at(); later <= 0 {
		t.Error("the address went, and what the cache shows has none: taken for told")
	}
	freeze(shop())
	if later := at(); later != 0 || shop().Annotations[annotationGuests] != "" {
		t.Errorf("%s, %v", later, shop().Annotations)
	}
}
