// Package version tells which Kith this is. The build stamps it with -ldflags -X; it must never import anything.
package version

var (
	// Version is a semantic version, "dev" for a build by hand.
	Version = "dev"
	// Commit is the Git commit it was built from.
	Commit = ""
	// Kubernetes is the one that the built-in engine of this build is, such as v1.36.3; "" is not known.
	Kubernetes = ""
)
