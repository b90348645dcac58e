package suspend

import (
	"testing"
	"time"
)

func TestOnlyAClockThatStoodStillMeansSuspend(t *testing.T) {
	for _, c := range []struct {
		wall, monotonic time.Duration
		want            bool
	}{
		{3 * time.Second, 3 * time.Second, false},
		{time.Hour, 3 * time.Second, true},        // suspended for an hour
		{time.Hour, time.Hour, false},             // stopped for an hour: the clocks went on
		{5 * time.Second, 3 * time.Second, false}, // the wall clock was put right
		{-time.Hour, 3 * time.Second, false},      // or back
	} {
		if got := slept(c.wall, c.monotonic); got != c.want {
			t.Errorf("%s by the wall clock, %s by the monotonic: %v", c.wall, c.monotonic, got)
		}
	}
}
