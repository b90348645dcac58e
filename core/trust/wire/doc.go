// Package wire checks JSON from other clusters before it is decoded: how much memory decoding would cost.
//
// A Shape holds for a Go type how much a decoder allocates for each field, element and entry. Check walks over a text with a shape, and refuses
// the text if it would cost more than a multiple of its own length, is nested too deep, or cannot be decoded anyway. It is called by all that
// decode bytes from a peer: core/agree/peering for messages, core/provide/hosting for what consumers write, core/consume/virtualnode and core/consume/reflection for what
// providers answer (through core/trust/wire/codec, which knows Kubernetes; this package does not).
//
// What others say may be shown to people: Printable and Line keep it to one line of letters. Neighbourhood says whose address is whose.
//
// It is pure, and never keeps what it reads.
package wire
