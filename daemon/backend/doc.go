// Package backend answers the local API (localapi.Backend), of which the command line, the tray and curl are clients. It reads the
// cluster's cache and what the rooms know, and changes things by writing custom resources: what the CLI can do, kubectl can. The daemon
// makes it; the metrics show what it knows.
//
// It must never decide what core/ decides: whatever it is asked to change, a controller there carries out.
package backend
