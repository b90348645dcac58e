// Package metrics shows what kithd knows as Prometheus metrics: a table of them, counters that the rooms count up, and
// a collector that asks the daemon for everything else whenever somebody scrapes.
//
// The daemon makes one Metrics, gives its counters to the rooms, and serves its Handler at GET /metrics of the local
// API and, when configured, at a TCP address of this machine. Nothing runs between two scrapes.
//
// Labels are bounded: `peer` is the name of a Peer (never of what is merely nearby), and all others come from fixed
// lists. It must never show a key, an address or a pod's name, and asks no cluster itself.
package metrics
