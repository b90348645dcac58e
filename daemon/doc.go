// Package daemon is kithd: it makes the rooms of core/, gives them to each other and keeps them running. cmd/kithd calls it with the
// configuration read. What the local API answers is daemon/backend's.
//
// It must never decide what core/ decides: here things are only created, connected, started and stopped.
package daemon
