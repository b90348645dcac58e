// Package docs holds the documentation for kith docs, which shows it where no browser is.
package docs

import (
	"embed"
	"strings"
)

// Pages are the documents, by their file names.
//
//go:embed *.md
var Pages embed.FS

// Plain is a page without its comments, which a browser does not show either.
func Plain(page string) string {
	var plain strings.Builder
	for {
		before, rest, found := strings.Cut(page, "<!--")
		_, after, ends := strings.Cut(rest, "-->")
		if !found || !ends {
			plain.WriteString(page)
			return plain.String()
		}
		plain.WriteString(strings.TrimRight(before, " "))
		page = after
	}
}
