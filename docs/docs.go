// Package docs holds the documentation for kith docs, which shows it where no browser is.
package docs

import "embed"

// Pages are the documents, by their file names.
//
//go:embed *.md
var Pages embed.FS
