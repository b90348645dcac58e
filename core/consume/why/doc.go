// Package why decides why a pod of this cluster is where it is, or does not run: facts in, a chain of causes out, the nearest first.
//
// daemon/backend gathers the facts and makes the sentences. What is decided by are typed values: reasons of conditions, of container states
// and of events, what a peer answered, what nodes have and pods request. The package must never read a cluster, a clock, or a sentence:
// words of Kubernetes and of peers are only passed on (api.Cause.Said).
package why
