package discovery

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/identity"
)

// Source says which finder saw a cluster.
type Source string

const (
	LANSource    Source = "lan"
	DNSSource    Source = "dns"
	ManualSource Source = "manual"
)

// Sighting is what a finder was told about a cluster. None of it is proven: the ID is a claim until a
// handshake with one of the addresses confirms it.
type Sighting struct {
	Name      string           // for people, cleaned by CleanName; two clusters may share one
	ID        identity.ID      // claimed; zero when the source tells none
	Source    Source           //
	Addresses []netip.AddrPort // of the peer API, the likeliest first, at most 16
	Version   int              // of what was announced, 1 now; 0 when the source tells none
	Seen      time.Time        // when the source last spoke of it
}

// key tells two sightings of one finder apart: by ID where there is one, else by name.
func (s Sighting) key() string {
	if !s.ID.IsZero() {
		return string(s.ID[:])
	}
	return "name " + s.Name
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

// union joins one finder's sightings of the same cluster.
func union(all []Sighting) map[string]Sighting {
	out := map[string]Sighting{}
	for _, s := range all {
		have, ok := out[s.key()]
		if !ok {
			s.Addresses = slices.Clone(s.Addresses)
			out[s.key()] = s
			continue
		}
		for _, a := range s.Addresses {
			if len(have.Addresses) < maxAddresses && !slices.Contains(have.Addresses, a) {
				have.Addresses = append(have.Addresses, a)
			}
		}
		if s.Seen.After(have.Seen) {
			have.Seen = s.Seen
		}
		out[s.key()] = have
	}
	return out
}

// changes brings told up to now and gives the events that say so.
func changes(told, now map[string]Sighting) (events []Event) {
	for key, old := range told {
		if _, ok := now[key]; !ok {
			events = append(events, Event{Sighting: old, Gone: true})
			delete(told, key)
		}
	}
	for key, s := range now {
		if old, ok := told[key]; !ok || worthTelling(old, s) {
			events = append(events, Event{Sighting: s})
			told[key] = s
		}
	}
	return events
}

// seenAgain is after what time an unchanged sighting is reported again, only because it was seen.
const seenAgain = time.Minute

func worthTelling(old, s Sighting) bool {
	sorted := func(in []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(in), netip.AddrPort.Compare)
	}
	return s.Name != old.Name || s.ID != old.ID || s.Version != old.Version || s.Seen.Sub(old.Seen) >= seenAgain ||
		!slices.Equal(sorted(s.Addresses), sorted(old.Addresses)) // their order does not count
}
