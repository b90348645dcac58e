package localapi

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/base/notify"
)

// Broker keeps the last events and hands them to whoever asks. It has no queue per reader: a reader says how far it
// has come and gets the rest, so a slow one costs nothing, delays nobody, and is told what it missed.
// It is safe for concurrent use.
type Broker struct {
	now func() time.Time

	mu    sync.Mutex
	ring  []api.Event // the newest at index (next-1) % len
	first uint64      // sequence number of the first event ever published here
	next  uint64      // sequence number of the next one
	wake  notify.Broadcast
}

// NewBroker makes a Broker that remembers the last size events.
//
// Sequence numbers start at the time in microseconds, so that they grow across restarts of kithd without anything
// being written to disk, and fit the 53 bits of a JSON number until the year 2255.
func NewBroker(size int) *Broker {
	start := uint64(time.Now().UnixMicro())
	return &Broker{now: time.Now, ring: make([]api.Event, size), first: start, next: start}
}

// Publish adds an event. It sets Seq, and Time and Severity where they are not set, and never waits for a reader.
func (b *Broker) Publish(e api.Event) {
	if e.Time.IsZero() {
		e.Time = b.now().UTC()
	}
	e.Severity = cmp.Or(e.Severity, api.SeverityInfo)
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Seq = b.next
	b.ring[b.next%uint64(len(b.ring))] = e
	b.next++
	b.wake.Notify()
}

// Last gives the sequence number of the newest event.
func (b *Broker) Last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next - 1
}

// After gives the events after since, oldest first, and a channel that is closed when there is another one. Since 0,
// or a number from a clock that has been set back, gives all that are remembered. When some are gone already, the
// first one given is an EventMissed.
func (b *Broker) After(since uint64) (events []api.Event, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since >= b.next {
		since = 0
	}
	oldest := max(b.first, b.next-min(b.next-b.first, uint64(len(b.ring))))
	from := max(since+1, oldest)
	if since+1 >= b.first && oldest > since+1 {
		events = append(events, api.Event{
			Seq: oldest - 1, Time: b.now().UTC(), Type: api.EventMissed, Severity: api.SeverityWarning,
			Message: fmt.Sprintf("%d events are no longer remembered", oldest-since-1),
		})
	}
	for seq := from; seq < b.next; seq++ {
		events = append(events, b.ring[seq%uint64(len(b.ring))])
	}
	return events, b.wake.Wait()
}
