// Package suspend notices that this machine was suspended. It must never measure how long something took.
package suspend

import "time"

// least is how long a suspend must be to be noticed: small steps of the wall clock, by NTP for example, are none.
const least = 10 * time.Second

// Between reports whether the machine was suspended between two readings of the clock: the wall clock runs on then, and the monotonic one
// stands still (clock_gettime(2), CLOCK_MONOTONIC). A wall clock that is set forward looks the same.
func Between(from, to time.Time) bool { return slept(to.Round(0).Sub(from.Round(0)), to.Sub(from)) }

func slept(wall, monotonic time.Duration) bool { return wall-monotonic > least }
