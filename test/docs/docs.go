// Package docs is for tests of amounts that a page of docs/ names: page and code say the same. Tests call it, nothing else does.
package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/docs"
)

// Say wants each text on a page of docs/, word for word; where lines end, and what stands in comments, says nothing.
func Say(t *testing.T, name string, texts ...string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		page, err := os.ReadFile(filepath.Join(dir, "docs", name))
		if os.IsNotExist(err) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
		said := words(docs.Plain(string(page)))
		for _, text := range texts {
			if !strings.Contains(said, words(text)) {
				t.Errorf("docs/%s does not say %q", name, text)
			}
		}
		return
	}
}
