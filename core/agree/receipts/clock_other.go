//go:build !linux

package receipts

import "time"

// began stands for the boot: what was counted by an earlier process cannot be compared with this one's clock.
var began = time.Now()

// Now reads the clocks of this machine.
func Now() Instant {
	return Instant{Wall: time.Now().UTC().Round(0), Boot: began.UTC().String(), Awake: int64(time.Since(began) / time.Second)}
}
