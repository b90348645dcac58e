// Package receipts meters contracts and keeps their receipts. Both sides count what a contract grants, and what pods and claims request of it, by the
// seconds; each hour the provider closes a receipt of it (core/trust/receipt), which the consumer fetches, compares with what it counted itself, and
// signs, or disputes. The daemon calls it: it says what is in force whenever that changes, has Run look at the clock, and hands it what consumers ask
// at the peer API.
//
// What is not sent yet is asked for again, so nothing is lost while two are apart. All is kept in one directory, two files for each contract: the
// receipts, one line each, appended to, and where the count stands. It must never keep anything else of a peer, ask the API server, or decide whether
// something is paid.
package receipts
