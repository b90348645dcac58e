package link

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

func sharedPods(list ...string) (pods []v1alpha1.SharedPod) {
	for _, pod := range list {
		pods = append(pods, v1alpha1.SharedPod{Pod: pod, Ports: []v1alpha1.SharedPort{{Protocol: corev1.ProtocolTCP, Port: 443}, {Protocol: corev1.ProtocolTCP, Port: 80}, {Protocol: corev1.ProtocolTCP, Port: 443}}})
	}
	return pods
}

// hasInCommon has a side share services with whoever it has to do with.
func (s *side) hasInCommon(namespaces ...string) {
	s.t.Helper()
	policy := &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.SharingPolicySpec{Services: namespaces}}
	if err := s.client.Create(s.t.Context(), policy); err != nil {
		s.t.Fatal(err)
	}
}

// share has a side share pods with another, and gives their addresses there.
func (s *side) share(with *side, pods ...string) map[netip.Addr]netip.Addr {
	s.t.Helper()
	at, err := s.linker.Share(s.t.Context(), with.me.ID().String(), sharedPods(pods...))
	if err != nil {
		s.t.Fatal(err)
	}
	return at
}

func TestPodsAreSharedUnderAddressesThatThePeerReaches(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	bob.hasInCommon("shop")
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	before := alice.pair(bob)
	one, two := netip.MustParseAddr("10.42.0.5"), netip.MustParseAddr("10.42.0.9")
	at := bob.share(alice, "10.42.0.5", "10.42.0.9")
	p := bob.pair(alice)
	if len(at) != 2 || !before.There.Contains(at[one]) || !netplan.LastGuest(before.There).Less(at[one]) || at[one] == at[two] || len(p.Shared) != 2 {
		t.Fatalf("%v, %v", at, p.Shared)
	}
	// The pods at home have the same addresses as those here: they are called something else.
	if len(p.Aliases) != 1 || p.Aliases[0].Real != usual.Pods || !netplan.Free(p.Aliases[0].Alias, []netip.Prefix{usual.Pods, usual.Services, p.Here}) {
		t.Errorf("%v", p.Aliases)
	}
	kept := bob.peer(alice).Status.Network.Shared
	if len(kept) != 2 || len(kept[0].Ports) != 2 || kept[0].Ports[0].Port != 80 {
		t.Errorf("%v", kept)
	}
	if !reflect.DeepEqual(alice.pair(bob), before) {
		t.Error("the peer was asked for something")
	}
	linked(t, alice, bob)

	// They stay under their addresses while they are shared: over a restart, another link, and others that come and go.
	bob.restart()
	if err := bob.linker.Restore(t.Context(), bob.peer(alice)); err != nil {
		t.Fatal(err)
	}
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	if now := bob.pair(alice); !reflect.DeepEqual(now.Shared, p.Shared) || !reflect.DeepEqual(now.Aliases, p.Aliases) {
		t.Errorf("%v %v became %v %v", p.Shared, p.Aliases, now.Shared, now.Aliases)
	}
	if now := bob.share(alice, "10.42.0.7", "10.42.0.9"); now[two] != at[two] || len(now) != 2 || now[netip.MustParseAddr("10.42.0.7")] == at[two] {
		t.Errorf("%v became %v", at, now)
	}
	if bob.share(alice); len(bob.pair(alice).Shared) != 0 || bob.peer(alice).Status.Network.Shared != nil {
		t.Error("pods are still shared")
	}
}

// TestNoMorePodsAreSharedThanThereAreAddresses: those that have one keep it, and guests' addresses are not given away.
func TestNoMorePodsAreSharedThanThereAreAddresses(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	bob.hasInCommon("*")
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	here := bob.pair(alice).Here
	for a := range netplan.SharedAt(here, 0) {
		bob.addresses = append(bob.addresses, a)
		if len(bob.addresses) == 27 {
			break
		}
	}
	var many []string
	for i := range 110 {
		many = append(many, fmt.Sprintf("10.42.0.%d", i+2))
	}
	at, err := bob.linker.Share(t.Context(), alice.me.ID().String(), sharedPods(many...))
	if !errors.Is(err, ErrNoRoom) || len(at) != netplan.MaxShared-27 {
		t.Fatalf("%d have addresses: %v", len(at), err)
	}
	for pod, a := range at {
		if slices.Contains(bob.addresses, a) {
			t.Errorf("%s has a guest's address, %s", pod, a)
		}
	}
	if len(bob.pair(alice).Shared) != len(at) {
		t.Errorf("%d are shared", len(bob.pair(alice).Shared))
	}
}

func TestWhatIsNoPodOrNoConsumersIsNotShared(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"192.0.2.7", "10.43.0.1", "x"} {
		if _, err := bob.linker.Share(t.Context(), alice.me.ID().String(), sharedPods(pod)); err == nil {
			t.Errorf("%s is shared", pod)
		}
	}
	for what, c := range map[string]struct{ at, with *side }{"with a provider": {alice, bob}, "with nobody": {bob, newSide(t, "carol")}} {
		_, err := c.at.linker.Share(t.Context(), c.with.me.ID().String(), sharedPods("10.42.0.5"))
		if !errors.Is(err, &peering.Problem{Code: peering.CodeNoContract}) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTranslatedPodsAreSharedByTheirOwnTranslation: where guests' addresses are translated, so are those of all pods.
func TestTranslatedPodsAreSharedByTheirOwnTranslation(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	bob.config.Links = false
	bob.restart()
	bob.hasInCommon("*")
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	pod := netip.MustParseAddr("10.42.3.7")
	at := bob.share(alice, pod.String())
	if want, _ := bob.pair(alice).Guests.ToAlias(pod); at[pod] != want || bob.peer(alice).Status.Network.Shared[0].Address != want.String() {
		t.Errorf("%v, want %s", at, want)
	}
	var many []string
	for i := range netplan.MaxShared + 1 {
		many = append(many, fmt.Sprintf("10.42.3.%d", i+1))
	}
	if at, err := bob.linker.Share(t.Context(), alice.me.ID().String(), sharedPods(many...)); !errors.Is(err, ErrNoRoom) || len(at) != netplan.MaxShared {
		t.Errorf("%d have addresses: %v", len(at), err)
	}
}
