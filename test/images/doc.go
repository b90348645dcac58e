// Package images turns small programs of ours into container images made from nothing, for the tests and for newcomers:
// no registry, no Dockerfile, no base image. test/images/echo and test/images/load are the programs, test/images/build the
// command that writes build/images/*.tar. The same sources and the same Go give the same bytes.
//
// It is used by tests and by the Makefile only; nothing that Kith ships may need it.
package images
