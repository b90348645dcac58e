// Package cli is kith, the command line: it asks kithd through core/api/client and shows the answers to people (tables,
// colours and progress on a terminal) and to scripts (-o json, exit codes).
//
// cmd/kith runs it. One file per noun; each command is a cobra.Command made from the program, which holds what the
// process has (arguments, streams, clock) so that tests need no process. It must never decide anything that the
// daemon could, import Kubernetes code, or print a peer's words without clean.
package cli
