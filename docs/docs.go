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

// Manifests are the Kubernetes objects of a page: its blocks of YAML that name their kind.
func Manifests(page string) (all []string) {
	for {
		_, rest, found := strings.Cut(page, "\n```yaml\n")
		block, after, ends := strings.Cut(rest, "\n```")
		if !found || !ends {
			return all
		}
		if strings.HasPrefix(block, "apiVersion: ") {
			all = append(all, block+"\n")
		}
		page = after
	}
}
