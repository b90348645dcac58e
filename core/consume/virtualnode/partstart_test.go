package virtualnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
