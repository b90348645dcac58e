// Package discovery is what finders of other clusters share, and the Table of what they see now. There are two, which report to one stream of
// sightings and know nothing of each other:
//
//   - mdns: multicast DNS and DNS-SD on the local network (RFC 6762, RFC 6763), service _kith._tcp
//   - dns: SRV and TXT records of configured domains, and of names by which Peers were added, or their hosts' addresses
//
// Shared are what a sighting is, its bounds, which names and addresses pass, and the TXT record, the same on the LAN and in the DNS.
// Addresses that the user typed in are kept with the Peer itself, which is made once its key is known (core/agree/relations/record).
//
// Called by the daemon, which runs the Table, and by directory, which watches it. A sighting is an unproven
// claim, even its ID. This package and its finders must never dial a peer, never decide whom to trust, and never end a
// peering because a sighting is gone: the peer connection and the tunnel show who is alive. All that comes
// from the network is bounded, in size, number and rate. This package must never know how a finder finds: it imports none.
//
// # One codec
//
// Both finders read and make messages by golang.org/x/net/dns/dnsmessage. The Go team maintains it, as package net's own; of
// github.com/miekg/dns the first version takes fixes alone and is to be archived. It reads record by record, so what one packet of a stranger
// costs is bounded before it is decoded; it packs with compression; and it leaves classes as they are, with mDNS' cache-flush bit. It knows no
// NSEC, which we neither send nor read, and no resolv.conf, of which the name servers are all that is wanted. The servers in the tests speak
// by miekg/dns, so that two implementations have to agree.
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
	MaxAddresses = 16 // of one sighting

	maxNameRunes = 63  // of a name
	maxNameBytes = 240 // of a name; with its key it fits a TXT string of 255
)

// seenAgain is after what time an unchanged sighting is reported again, only because it was seen.
const seenAgain = time.Minute

// WorthTelling reports whether a sighting says more than the one that was told before, so that a finder reports it.
func WorthTelling(old, s Sighting) bool {
	sorted := func(in []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(in), netip.AddrPort.Compare)
	}
	return s.Name != old.Name || s.Seen.Sub(old.Seen) >= seenAgain ||
		!slices.Equal(sorted(s.Addresses), sorted(old.Addresses)) // their order does not count
}

// Dialable refuses the addresses that would make us dial ourselves or nobody in particular.
func Dialable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// Earlier gives the earlier of two times, of which zero means never: when a finder is to look again.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
