package consumer

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/virtualnode"
)

// A member that has just begun to run, as after a restart, makes its node while it is retired.
func TestANodeThatComesLateGoesToo(t *testing.T) {
	home := fake.NewClientset()
	f := &Fleet{Config: Config{Home: home, Log: slog.New(slog.DiscardHandler)}, members: map[string]*member{}}
	m := &member{node: &virtualnode.Node{}, done: make(chan struct{})}
	m.guests.Store(&ranges{})
	m.cancel = func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}}
		if _, err := home.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		close(m.done)
	}
	f.members["bob"] = m
	if err := f.Retire(t.Context(), "bob", false, nil); err != nil {
		t.Fatal(err)
	}
	if left, err := home.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("left are %v, %v", left.Items, err)
	}
}

// TestGuestsReachPodsOfTheirOwnClusterOnly: at home, and at every peer that one of its members stands for.
func TestGuestsReachPodsOfTheirOwnClusterOnly(t *testing.T) {
	f := &Fleet{Config: Config{Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}}
	reached := func() (all string) {
		for _, a := range []string{"10.42.0.5", "10.42.255.1", "10.71.0.9", "10.72.0.9", "192.168.1.9", "fd00::1"} {
			if f.reaches(netip.MustParseAddr(a)) {
				all += a + " "
			}
		}
		return all
	}
	if got := reached(); got != "10.42.0.5 10.42.255.1 " {
		t.Errorf("without a peer: %s", got)
	}
	f.space.Store(&[]netip.Prefix{netip.MustParsePrefix("10.71.0.0/24"), {}}) // the second is not linked yet
	if got := reached(); got != "10.42.0.5 10.42.255.1 10.71.0.9 " {
		t.Errorf("with one: %s", got)
	}
}

func TestAMemberKnowsTheRangeOfItsGuests(t *testing.T) {
	peer, m := &v1alpha1.Peer{}, &member{}
	for _, c := range []struct {
		network *v1alpha1.NetworkStatus
		changed bool
		want    string
	}{
		{nil, true, "invalid Prefix"}, // before the link; the first look is always news
		{nil, false, "invalid Prefix"},
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.0.0/24", Endpoint: "192.0.2.1:6450"}, true, "10.71.0.0/24"},
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.0.0/24", Endpoint: "192.0.2.2:6450"}, false, "10.71.0.0/24"}, // it moved
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.1.0/24"}, true, "10.71.1.0/24"},
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.1.0/24", IPv6: &v1alpha1.NetworkIPv6{GuestsThere: "fd71:1:2:3::/64"}}, true, "10.71.1.0/24"}, // it has IPv6, too
		{&v1alpha1.NetworkStatus{GuestsThere: "10.71.1.0/24", IPv6: &v1alpha1.NetworkIPv6{GuestsThere: "fd71:1:2:3::/64"}}, false, "10.71.1.0/24"},
	} {
		peer.Status.Network = c.network
		if changed := m.readdress(peer); changed != c.changed || m.guests.Load()[0].String() != c.want {
			t.Errorf("%+v: changed %v, %s", c.network, changed, m.guests.Load())
		}
	}
}

// TestNothingGoesBeforeItIsKnownWhoseItIs: no member runs, and no twin is asked for.
func TestNothingGoesBeforeItIsKnownWhoseItIs(t *testing.T) {
	down := errors.New("the API server is down")
	f := &Fleet{Config: Config{Load: func(context.Context) error { return down }}, members: map[string]*member{}}
	if err := f.Ensure(t.Context(), &v1alpha1.Peer{}, &v1alpha1.Contract{}); !errors.Is(err, down) || len(f.members) != 0 {
		t.Errorf("%v, %d members", err, len(f.members))
	}
	f = &Fleet{Config: Config{Client: clientfake.NewClientBuilder().WithScheme(scheme(t)).Build(), Onward: func(string, string) (remote.Onward, bool) { return remote.Onward{}, true }}}
	if twin, err := (&twins{fleet: f, id: "carol"}).Ensure(t.Context(), "shop-a"); err == nil {
		t.Errorf("it has the twin %s", twin)
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhatAPeerSaysOfItsBandwidth is on its node, as far as it is a number.
func TestWhatAPeerSaysOfItsBandwidth(t *testing.T) {
	adv := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.AdvertisementSpec{
		Peer: "bob", NodeLabels: map[string]string{v1alpha1.LabelIngress: "020000000", v1alpha1.LabelEgress: "any", "kith.dev/bandwidth": "1"},
	}}
	f := &Fleet{Config: Config{
		Client: clientfake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(adv).Build(), Place: func(*v1alpha1.Peer) map[string]string { return nil },
	}}
	labels, err := f.labels(t.Context(), &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}, &v1alpha1.Contract{})
	if _, says := labels[v1alpha1.LabelEgress]; err != nil || says || labels[v1alpha1.LabelIngress] != "20000000" || labels["kith.dev/bandwidth"] != "" {
		t.Errorf("%v, %v", labels, err)
	}
}
