package web

import (
	"embed"
	"net/http"
	"path"

	"kith.dev/assets/icon"
)

//go:embed page
var files embed.FS

// asset is a file of the page.
type asset struct {
	mediaType string
	content   []byte
}

// assets are all of them, by path.
var assets = read()

func read() map[string]asset {
	all := map[string]asset{}
	entries, err := files.ReadDir("page")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		content, err := files.ReadFile("page/" + e.Name())
		if err != nil {
			panic(err)
		}
		at := "/" + e.Name()
		if e.Name() == "index.html" {
			at = "/{$}"
		}
		all[at] = asset{mediaType(e.Name()), content}
	}
	all["/kith.svg"] = asset{mediaType("kith.svg"), icon.SVG}
	return all
}

// mediaType does not go by what this machine's own tables say.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".html":
		return "text/html; charset=utf-8"
	}
	panic("what kind of file is " + name)
}

func (a asset) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", a.mediaType)
	w.Write(a.content)
}
