package peering

import (
	"net/http"
	"time"
)

// clockOf tells by how much the clock of whoever answered is ahead of this one's, from the Date of an answer that
// came between asked and now. Date has whole seconds, rounded down, so it is right to within half a second and half
// the round trip. ok is false when there is no Date.
func clockOf(h http.Header, asked, now time.Time) (ahead time.Duration, ok bool) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0, false
	}
	middle := asked.Add(now.Sub(asked) / 2)
	// Without the monotonic clock: what the wall clocks say is the question.
	return date.Add(time.Second / 2).Sub(middle.Round(0)), true
}
