package virtualnode

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/consume/remote"
)

// TestAPartThatCannotStartHoldsNothingUp: its pods are seen whatever becomes of its endpoint, as no pod of the peer goes on before.
func TestAPartThatCannotStartHoldsNothingUp(t *testing.T) {
	dividing(t, func(s *stand, _ func()) {
		s.node.cfg.Endpoint = func(string, HomePods) (int32, func(), error) { return 0, nil, errors.New("no port is free") }
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
