//go:build lab && soak

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestTheDoctorIsSteadyUnderLoad: a laptop that is well and has much to do is well, each time it is asked.
func TestTheDoctorIsSteadyUnderLoad(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 1})
	alice := l.Laptop("alice")
	eventually(t, time.Minute, "alice is ready", func() string { return engineReady(t, alice) })
	well(t, alice)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Four that compute, one that writes, one that starts programs.
		alice.Run(ctx, lab.Command{Args: []string{"sh", "-c", `for i in 1 2 3 4; do while :; do :; done & done
while :; do dd if=/dev/zero of=/root/filler bs=1M count=64 2>/dev/null; done & while :; do /bin/true; done`}})
	}()
	t.Cleanup(func() { stop(); <-ended })
	times, slowest := 0, time.Duration(0)
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); times++ {
		began := time.Now()
		found, err := examine(t, alice)
		slowest = max(slowest, time.Since(began))
		if list := notOK(found); len(list) > 0 || err != nil {
			t.Errorf("after %d times: %v\n%s", times, err, strings.Join(list, "\n"))
		}
	}
	t.Logf("asked %d times, the slowest took %s", times, slowest)
}
