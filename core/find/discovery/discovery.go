// Package discovery finds other clusters. Two finders report to one stream of sightings, and Table
// keeps what they see now:
//
//   - LAN: multicast DNS and DNS-SD on the local network (RFC 6762, RFC 6763), service _kith._tcp
//   - DNS: SRV and TXT records of configured domains, and of names by which Peers were added, or their hosts' addresses
//
// Addresses that the user typed in are kept with the Peer itself, which is made once its key is known (core/agree/relations/record).
//
// Called by the daemon, which runs the Table, and by peering, which watches it. A sighting is an unproven
// claim, even its ID. This package must never dial a peer, never decide whom to trust, and never end a
// peering because a sighting is gone: the peer connection and the tunnel show who is alive. All that comes
// from the network is bounded, in size, number and rate.
//
// # In the DNS
//
// One goroutine schedules the look-ups (dns). A look-up makes its queries one by one (dns_lookup), from a cache (dns_memory) or else to the
// system's name servers (dns_resolver); which records of a reply count is a pure function (dns_answer). So each query has its own TTL, a
// failed one delays no other, and a query that two names share is made once. A zone can claim anything: the TLS handshake at an address
// proves who is there. dns_records makes the records for a zone.
//
// # On the LAN
//
// The instance name is the compact cluster ID, the name for people is in the TXT record:
//
//	_kith._tcp.local.        PTR  <id>._kith._tcp.local.
//	<id>._kith._tcp.local.   SRV  0 0 6450 <id>.local.
//	<id>._kith._tcp.local.   TXT  "v=1" "id=<id>" "name=bob"
//	<id>.local.              A/AAAA
//
// So two laptops named bob never contend for a name, which is all that probing (RFC 6762 section 8.1) is
// for; we do not probe. All records travel in one packet, the only one we announce and answer with.
// A sighting is read from one packet, never joined from several. What several senders say of one ID stands
// side by side (see claim), so a spoofed announcement adds an address that will fail its handshake,
// and displaces nothing; a goodbye counts only from who may say it.
//
// Announced are the addresses of real LAN interfaces only, each on its own interface: an address of docker0
// exists on every laptop. When links or addresses change (netlink), the responder starts anew on those links.
// Questions and answers follow RFC 6762: two announcements, answers spread over 20 to 120 ms and not
// twice a second, known answers listed, questions at growing intervals and at 80 to 95 per cent of a TTL.
// Unicast answers are neither asked for nor given. IPv6 carries the same, for LANs without IPv4; what
// IPv4 refreshes, it does not ask for again.
//
// # One codec
//
// Messages are read and made by golang.org/x/net/dns/dnsmessage, on the LAN and in the DNS. The Go team maintains it, as package net's own; of
// github.com/miekg/dns the first version takes fixes alone and is to be archived. It reads record by record, so what one packet of a stranger
// costs is bounded before it is decoded; it packs with compression; and it leaves classes as they are, with mDNS' cache-flush bit. It knows no
// NSEC, which we neither send nor read, and no resolv.conf, of which the name servers are all that is wanted. The servers in the tests speak
// by miekg/dns, so that two implementations have to agree.
//
// # Why no library for mDNS
//
// brutella/dnssd asks once and then drops services that are alive when their TTL ends; it stays deaf after an
// interface is replaced; and its browser searches an unbounded cache in full for every packet: of 10 000
// spoofed announcements in a minute it took in 858, at 84 % of a core. Its responder renames or withdraws the
// service when anybody sends a conflicting record. Starting it anew now and then, against the first two,
// sends a goodbye each time, which all others take for a removal. grandcat/zeroconf never tells of
// removals; hashicorp/mdns polls. What is needed of mDNS is small when one packet says all. It is in
// lan_message (the wire), lan_cache (memory), lan_responder (what to say when; no clock, no
// socket), lan_interfaces, lan_socket and lan (the effects).
//
// Measured with 50 laptops in network namespaces on one bridge, two cores: all see all 1.4 s after starting
// together; a newcomer is seen after 0.1 s and sees all after 1 s (nobody repeats himself within a second); a
// graceful end is seen after 0.02 s, a new address or a replaced link after 0.2 s; when idle for minutes,
// about 40 packets a minute on the whole LAN. 10 000 spoofed announcements in 12 s: 154 events, 5 MiB, and a
// peer with a contract is still seen at once.
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
