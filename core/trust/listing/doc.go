// Package listing holds what a provider says that it would give to somebody new, signed by it and good for some minutes: what a catalogue shows to
// others. Who shows it can neither change it nor make one up, and it says nothing of where the provider is: that is a hint, as everywhere, and the key
// decides.
//
// It reads and writes canonical JSON (core/trust/canonical), and takes no other. It must never decide what is listed where
// (core/agree/relations/provider), or keep listings (core/find/catalogue).
package listing
