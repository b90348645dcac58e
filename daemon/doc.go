// Package daemon is kithd: it makes the rooms of core/, gives them to each other and keeps them running, and
// answers the local API from what they know. cmd/kithd calls it with the configuration read.
//
// It must never decide what core/ decides: here things are only created, connected, started and stopped.
package daemon
