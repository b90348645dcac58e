package tenants

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
	"kith.dev/core/hosting/guests"
	"kith.dev/core/kinds"
)

// behind is a client whose reads of one kind show what was before the writes.
func behind[T client.Object](d *provider, into func(dst, src T)) (c client.Client, freeze func(T)) {
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

func TestAddressesOfGuestsAreToldHoweverFarBehindTheCacheIs(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: bobsShop, Name: "p", Labels: guests.Selector}}
	d := newProvider(t, peer, contract, pod)
	if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	cached, freeze := behind(d, func(dst, src *corev1.Namespace) { src.DeepCopyInto(dst) })
	h := &Tenants{client: cached, written: map[string]addressWrite{}, log: d.tenants.log}
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
		result, err := h.writeAddresses(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: bobsShop}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	before := shop()
	if later := at(corev1.PodIP{IP: "10.42.0.9"}); later != 0 || shop().Annotations[kinds.AnnotationGuests] != "10.42.0.9" {
		t.Fatalf("%s, %v", later, shop().Annotations)
	}
	time.Sleep(2 * eachGuest) // else it would wait for that
	freeze(before)
	if later := at(); later <= 0 {
		t.Error("the address went, and what the cache shows has none: taken for told")
	}
	freeze(shop())
	if later := at(); later != 0 || shop().Annotations[kinds.AnnotationGuests] != "" {
		t.Errorf("%s, %v", later, shop().Annotations)
	}
}

func TestAddressesToldToThePolicy(t *testing.T) {
	pods := []corev1.Pod{
		{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.42.0.9"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "waits"}},
		{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.42.0.5"}, {IP: "fd00::5"}}}},
	}
	if got := addresses(pods); got != "10.42.0.5,10.42.0.9,fd00::5" {
		t.Errorf("guests: %s", got)
	}
	peer := &v1alpha1.Peer{}
	if got := grants.AliasesOf(peer); got != "" {
		t.Errorf("ranges without a link: %s", got)
	}
	peer.Status.Network = &v1alpha1.NetworkStatus{Theirs: []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.76.0.0/16"}, {Name: "more", Real: "10.1.0.0/24", Alias: "10.3.0.0/24"}}}
	if got := grants.AliasesOf(peer); got != "10.3.0.0/24,10.76.0.0/16" {
		t.Errorf("ranges: %s", got)
	}
}
