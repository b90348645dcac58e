// Package mode is whether this laptop decides for itself what it runs (Autonomous) or one company's cluster does (Tethered), and the
// switch between the two: a table of idempotent steps, each written to a journal on the disk before it is begun, so that a switch that
// was broken off at any point, by a kill or the loss of power, is finished or taken back by the next start.
//
// The daemon makes one Machine and runs it; the local API asks it for switches; relations asks it who may have all of this laptop.
// It tells the engine whether to decide, hosting whether to bind guests, and the front door where to lead.
//
// What the owner does to the company's Peer by other means is his word too: without spec.request the laptop is untethered, and without
// the Peer it is so by force. The company's word is that its contract is over and that it answers BeginTether with a no.
//
// It must never move a pod or a packet by itself, nor decide what a company's users may do, nor speak for the company: that side is
// core/mode/company.
package mode
