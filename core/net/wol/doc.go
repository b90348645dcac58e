// Package wol is Wake on LAN: the magic packet, the network devices of this machine that one could wake it by, and whether these are armed.
//
// Called by core/agree/relations/waking, which decides who is woken, and by the doctor. It changes nothing at the machine: arming a device is its owner's.
package wol
