package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/identity"
)

// TestAPartThatCannotStartHoldsNothingUp: its pods are seen whatever becomes of its endpoint, as no pod of the peer goes on before.
func TestAPartThatCannotStartHoldsNothingUp(t *testing.T) {
	none := func(string, HomePods) (int32, func(), error) { return 0, nil, errors.New("no port is free") }
	dividingAt(t, none, func(s *stand, _ func()) {
		s.node.pods.hasSynced.Store(true)
		s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1")), synced)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.node.allParts()) != 1 || !s.node.seesPods() {
			t.Errorf("the pods of %v are not seen", s.node.allParts())
		}
	})
}

// TestAZoneIsALabelHoweverLongTheNames: where it is cut there may be what no label ends in, and no node is made of that.
func TestAZoneIsALabelHoweverLongTheNames(t *testing.T) {
	standing(t, func(s *stand) {
		for cut := 55; cut < 63; cut++ {
			p := s.node.newPart(carolsID, strings.Repeat("c", cut-len("bob."))+"-x"+strings.Repeat("-y", 3))
			p.set("bob", nil, nil, []remote.Part{{ID: carolsID}}, 0)
			if zone := p.state.labels[corev1.LabelTopologyZone]; zone == "" || len(validation.IsValidLabelValue(zone)) > 0 {
				t.Errorf("the zone is %q", zone)
			}
		}
	})
}

// TestABlinkOfThePeerEndsNothing: what it tells nothing of for a moment is not ready, and then as it was.
func TestABlinkOfThePeerEndsNothing(t *testing.T) {
	dividing(t, func(s *stand, _ func()) {
		all := partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1"))
		s.say(all, synced)
		s.shows("kith-bob.carol 1")
		was := s.node.allParts()[carolsID]
		for range 3 {
			s.say(partsLine(t))
			time.Sleep(partBlinks - 2*time.Second)
			s.shows("kith-bob.carol 1 ProviderAway")
			s.say(all)
			s.shows("kith-bob.carol 1")
		}
		if s.node.allParts()[carolsID] != was || was.leaving.Load() {
			t.Error("it is another node")
		}
	})
}

// TestAPeerThatTellsOfOthersAllTheTime has no more nodes than parts, those that go included, and no new one more often than is allowed.
func TestAPeerThatTellsOfOthersAllTheTime(t *testing.T) {
	dividing(t, func(s *stand, _ func()) {
		made, begun := map[string]bool{}, time.Now()
		s.say(synced)
		for i := range 40 {
			var told []remote.Part
			for j := range remote.MaxParts {
				told = append(told, cpuOf(identity.ID{9, byte(i), byte(j)}.String(), fmt.Sprintf("p-%d-%d", i, j), "1m"))
			}
			s.say(partsLine(t, told...))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			are := s.node.allParts()
			for id := range are {
				made[id] = true
			}
			if most := remote.MaxParts + int(time.Since(begun)/partEvery); len(are) > remote.MaxParts || len(made) > most {
				t.Fatalf("after %s there are %d nodes, and there were %d", time.Since(begun), len(are), len(made))
			}
		}
		if len(made) <= remote.MaxParts {
			t.Errorf("there were %d nodes: none came later", len(made))
		}
	})
}

// TestARetirementThatWasCutIsTakenBack when the peer tells of the provider again; a cordon of the owner's is left.
func TestARetirementThatWasCutIsTakenBack(t *testing.T) {
	for _, owners := range []bool{false, true} {
		standing(t, func(s *stand) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob.carol", Labels: map[string]string{v1alpha1.LabelBroker: "bob"},
				Annotations: map[string]string{v1alpha1.AnnotationBehind: carolsID}}, Spec: corev1.NodeSpec{Unschedulable: owners}}
			if err := s.home.Tracker().Add(node); err != nil {
				t.Fatal(err)
			}
			if err := cordon(s.Context(), s.home, node.Name); err != nil {
				t.Fatal(err)
			}
			s.node.cfg.PeerID, s.node.cfg.Endpoint = bobsID, func(string, HomePods) (int32, func(), error) { return 10261, func() {}, nil }
			ctx, cancel := context.WithCancel(s.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := s.node.adoptParts(ctx); err != nil {
					t.Error(err)
				}
				s.node.keepParts(ctx, "v1")
			}()
			cordoned := func() bool {
				time.Sleep(time.Second)
				synctest.Wait()
				is, err := s.home.CoreV1().Nodes().Get(s.Context(), node.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return is.Spec.Unschedulable
			}
			if !cordoned() {
				t.Error("it takes pods before it is known whether it stays")
			}
			s.say(partsLine(t, cpuOf(bobsID, "", "1"), cpuOf(carolsID, "carol", "1")), synced)
			if cordoned() != owners {
				t.Errorf("cordoned by its owner: %t, and then it is otherwise", owners)
			}
			cancel()
			<-done
		})
	}
}

// TestUntilItIsKnownTheNodesAreAsTheyWere: the peer's own has not all that is granted, beside what the others have.
func TestUntilItIsKnownTheNodesAreAsTheyWere(t *testing.T) {
	standing(t, func(s *stand) {
		nodes := map[string]*corev1.Node{
			"kith-bob":       {ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}},
			"kith-bob.carol": {ObjectMeta: metav1.ObjectMeta{Name: "kith-bob.carol", Labels: map[string]string{v1alpha1.LabelBroker: "bob"}, Annotations: map[string]string{v1alpha1.AnnotationBehind: carolsID}}},
		}
		for _, node := range nodes {
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("1")}
			if err := s.home.Tracker().Add(node); err != nil {
				t.Fatal(err)
			}
		}
		s.node.cfg.PeerID, s.node.cfg.Endpoint = bobsID, func(string, HomePods) (int32, func(), error) { return 10261, func() {}, nil }
		ctx, cancel := context.WithCancel(s.Context())
		if err := s.node.adoptParts(ctx); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { s.node.keepParts(ctx, "v1"); close(done) }()
		s.node.Set(corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("4")}, map[string]string{"kith.dev/virtual": "true"})
		s.shows("kith-bob.carol 1")
		if own := s.own(); own != "1" {
			t.Errorf("the peer's own node has %s before it is known", own)
		}
		s.say(partsLine(t, cpuOf(bobsID, "", "3"), cpuOf(carolsID, "carol", "1")), synced)
		s.shows("kith-bob.carol 1")
		if own := s.own(); own != "3" {
			t.Errorf("the peer's own node has %s", own)
		}
		cancel()
		<-done
	})
}
