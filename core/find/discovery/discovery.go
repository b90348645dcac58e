package discovery

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/trust/identity"
)

// Source says which finder saw a cluster.
type Source string

const (
	LANSource Source = "lan"
	DNSSource Source = "dns"
)

// Sighting is what a finder was told about a cluster. None of it is proven: the ID is a claim until a
// handshake with one of the addresses confirms it.
type Sighting struct {
	Name      string           // for people, cleaned by CleanName; two clusters may share one
	ID        identity.ID      // claimed
	Source    Source           //
	Addresses []netip.AddrPort // of the peer API, the likeliest first, at most 16
	Seen      time.Time        // when the source last spoke of it
}

// Event is a sighting that is new or changed, or, when Gone, no longer upheld by its source. A gone
// event repeats the last sighting. That a cluster is gone here does not end a peering with it.
type Event struct {
	Sighting
	Gone bool
}

// Finder watches one source. Run reports to events until ctx ends, then returns nil; every other return
// is an error, after which Run may be called again and reports all anew. It may block on events, and
// sends one event per change, not per packet. String names it in logs.
type Finder interface {
	Run(ctx context.Context, events chan<- Event) error
	String() string
}

// Bounds for everything that comes from outside.
const (
	maxAddresses = 16  // of one sighting
	maxNameRunes = 63  // of a name
	maxNameBytes = 240 // of a name; with its key it fits a TXT string of 255
)

// seenAgain is after what time an unchanged sighting is reported again, only because it was seen.
const seenAgain = time.Minute

func worthTelling(old, s Sighting) bool {
	sorted := func(in []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(in), netip.AddrPort.Compare)
	}
	return s.Name != old.Name || s.Seen.Sub(old.Seen) >= seenAgain ||
		!slices.Equal(sorted(s.Addresses), sorted(old.Addresses)) // their order does not count
}
