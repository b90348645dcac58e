// Package crds carries the CustomResourceDefinitions of Kith inside the binary. `make generate`
// writes the YAML from the Go types; it must never be edited by hand.
package crds

import (
	"embed"
	"strconv"
	"strings"
)

// FS holds one YAML file per kind.
//
//go:embed *.yaml
var FS embed.FS

// revision is a number and the SHA-256 of the files, which `make generate` writes: one more with each change.
//
//go:embed REVISION
var revision string

// RevisionAnnotation is on each definition in a cluster, and holds the revision of the Kith that applied it last.
const RevisionAnnotation = "kith.dev/schema-revision"

// Revision counts the changes of what is in FS: a Kith leaves definitions of a higher one as they are.
func Revision() int {
	number, _, _ := strings.Cut(revision, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic("crds: REVISION: " + err.Error())
	}
	return n
}

// Sum is the SHA-256 of the files that have the revision, in hexadecimal.
func Sum() string {
	_, sum, _ := strings.Cut(strings.TrimSpace(revision), " ")
	return sum
}
