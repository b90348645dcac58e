// Package canonical writes and reads documents that are signed: canonical JSON (RFC 8785) of one form, so that one content has one signature and no
// reader can see in it what another does not. core/trust/receipt and core/trust/listing keep theirs by it.
//
// It must never decide what a document may say, which the document's own Validate does, or take a spelling that it would not write itself.
package canonical
