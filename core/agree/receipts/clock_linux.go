package receipts

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// boot is how Linux names this boot (random(4)).
var boot = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
})

// Now reads the clocks of this machine. CLOCK_MONOTONIC stands still while it sleeps (clock_gettime(2)).
func Now() Instant {
	now := Instant{Wall: time.Now().UTC().Round(0), Boot: boot()}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		now.Boot = ""
	}
	now.Awake = t.Sec
	return now
}
