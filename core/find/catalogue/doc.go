// Package catalogue shows to accepted peers what the accepted peers of this cluster list here (core/trust/listing), and reads the catalogues of others.
// A catalogue introduces and no more: who finds somebody in it peers with him directly, and compares keys as always.
//
// Nothing is kept but in memory and nobody is asked until somebody looks: then the peers that are there are, each at most once a minute. Catalogues are
// not read from catalogues, so there are no loops of them.
//
// It must never decide who may look or what is listed (daemon, core/agree/relations/provider), nor trust what a catalogue says beyond what the provider
// of each listing signed: addresses are hints.
package catalogue
