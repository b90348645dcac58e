package daemon

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPeersAreToldOfAClusterThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := ""
		h := health{well: func() string { return why }}
		says := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if got := h.ailing(); got != want {
				t.Errorf("says %q, want %q", got, want)
			}
		}
		says(0, "")
		why = "its Kubernetes does not answer"
		says(time.Hour, "") // nobody asked meanwhile; it counts from now
		says(ailingAfter-time.Second, "")
		why = ""
		says(2*time.Second, "")
		why = "its Kubernetes does not answer"
		says(0, "")
		says(ailingAfter, why)
		says(time.Hour, why)
		why = ""
		says(0, "")
	})
}
