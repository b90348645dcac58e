// Package mode switches this laptop between two modes: Autonomous, in which its own scheduler and controllers decide what it runs, and
// Tethered, in which it is a node of another cluster, its company's. A switch is a table of idempotent steps. Each step is written to a
// journal on the disk before it begins, so that after a crash or a loss of power at any point the next start completes or reverts the switch.
//
// The daemon makes one Machine and runs it; the local API requests switches; core/agree/relations asks it which peer may have a contract for all
// of this laptop. It turns the engine's scheduler and controllers on or off, hosting's binding of guests likewise, and points the front door
// to the API server that is in charge.
//
// The owner can also end a tether through the company's Peer object: removing spec.request untethers, deleting the Peer untethers by force.
// The company ends it by ending its contract and refusing BeginTether.
//
// It must never move a pod or a packet by itself, nor decide what a company's users may do. The company's side is core/mode/company.
package mode
