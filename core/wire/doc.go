// Package wire reads what others send: it says what a text of JSON would cost before anything is made of it.
//
// A Shape knows of a Go type what a decoder allocates for each field, element and entry; Check walks along a text and its
// shape and refuses the text when it would cost more than a multiple of its own length, is nested too deep, or holds
// something that cannot be decoded anyway. It is called by whatever takes bytes from a peer: core/peering for messages,
// core/hosting for what consumers write, core/virtualnode and core/reflection for what providers answer (by way of
// core/wire/codec, which knows Kubernetes; this package does not).
//
// What others say may be shown to people: Printable and Line keep it to one line of letters. Neighbourhood says whose address is whose.
//
// It is pure, and never keeps what it reads.
package wire
