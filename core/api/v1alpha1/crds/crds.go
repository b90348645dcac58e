// Package crds carries the CustomResourceDefinitions of Kith inside the binary. `make generate`
// writes the YAML from the Go types; it must never be edited by hand.
package crds

import "embed"

// FS holds one YAML file per kind.
//
//go:embed *.yaml
var FS embed.FS
