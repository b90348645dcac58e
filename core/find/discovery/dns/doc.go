// Package dns finds clusters by names in the DNS: SRV and TXT records of configured domains, and of names by which Peers were added, or their
// hosts' addresses. It also makes the records for a zone, by which others find this cluster (records).
//
// One goroutine schedules the look-ups (finder). A look-up makes its queries one by one (lookup), from a cache (memory) or else to the
// system's name servers (resolver); which records of a reply count is a pure function (answer). So each query has its own TTL, a
// failed one delays no other, and a query that two names share is made once. A zone can claim anything: the TLS handshake at an address
// proves who is there.
//
// Called by the daemon, its backend and its doctor, and by directory for the names of Peers. It must never look up a name that nobody configured or
// typed in, never take from a reply what was not asked for, and never repeat a query before its answer expires, unless this machine's network
// changed or a user asks by Find.
package dns
