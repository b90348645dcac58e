// Package mdns finds clusters on the local network, by multicast DNS and DNS-SD (RFC 6762, RFC 6763), and lets this one be found. It also says which
// interfaces of this machine are a LAN's, at which addresses neighbours reach it there, and whether multicast comes back (Echoes).
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
// Called by the daemon, its backend and its doctor. It must never announce on what is no LAN, never pass on an address that is no neighbour's on the
// link it was announced on, and never let one sender displace what others said.
//
// # Why no library for mDNS
//
// brutella/dnssd asks once and then drops services that are alive when their TTL ends; it stays deaf after an
// interface is replaced; and its browser searches an unbounded cache in full for every packet: of 10 000
// spoofed announcements in a minute it took in 858, at 84 % of a core. Its responder renames or withdraws the
// service when anybody sends a conflicting record. Starting it anew now and then, against the first two,
// sends a goodbye each time, which all others take for a removal. grandcat/zeroconf never tells of
// removals; hashicorp/mdns polls. What is needed of mDNS is small when one packet says all. It is in
// message (the wire), cache (memory), responder (what to say when; no clock, no
// socket), interfaces, socket and finder (the effects).
//
// Measured with 50 laptops in network namespaces on one bridge, two cores: all see all 1.4 s after starting
// together; a newcomer is seen after 0.1 s and sees all after 1 s (nobody repeats himself within a second); a
// graceful end is seen after 0.02 s, a new address or a replaced link after 0.2 s; when idle for minutes,
// about 40 packets a minute on the whole LAN. 10 000 spoofed announcements in 12 s: 154 events, 5 MiB, and a
// peer with a contract is still seen at once.
package mdns
