// Package version tells which Kith this is. The build stamps it with -ldflags -X; it must never import anything.
package version

var (
	// Version is a semantic version, "dev" for a build by hand.
	Version = "dev"
	// Commit is the Git commit it was built from.
	Commit = ""
)
