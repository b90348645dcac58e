package web

import (
	"bytes"
	"compress/gzip"
	"regexp"
	"strings"
	"testing"
)

// most is how much the whole page may be, compressed, in bytes.
const most = 150 << 10

func TestThePageIsSmall(t *testing.T) {
	sum := 0
	for path, a := range assets {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(a.content)
		z.Close()
		sum += b.Len()
		if a.mediaType == "" || len(a.content) == 0 {
			t.Errorf("%s: %q, %d bytes", path, a.mediaType, len(a.content))
		}
	}
	t.Logf("%d files, %d bytes compressed", len(assets), sum)
	if sum > most || len(assets) < 5 {
		t.Errorf("%d files, %d bytes compressed, more than %d", len(assets), sum, most)
	}
}

var (
	refers  = regexp.MustCompile(`(?:src|href)="([^"#]*)"|from "([^"]*)"|import "([^"]*)"`)
	forbids = regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|<style|\sstyle="|\son[a-z]+="|javascript:`)
	outside = regexp.MustCompile(`(?i)https?://[^"'\s]*`)
)

// What the page's policy forbids is not in it either, and nothing in it is anywhere else than here.
func TestThePageIsWholeAndMakesNoMarkupOfText(t *testing.T) {
	found := 0
	for path, a := range assets {
		text := string(a.content)
		if bad := forbids.FindString(text); bad != "" && path != "/kith.svg" {
			t.Errorf("%s has %s", path, bad)
		}
		for _, url := range outside.FindAllString(text, -1) {
			if url != "http://www.w3.org/2000/svg" { // a name, of the elements of SVG
				t.Errorf("%s leads to %s", path, url)
			}
		}
		for _, m := range refers.FindAllStringSubmatch(text, -1) {
			to := "/" + strings.TrimPrefix(strings.TrimPrefix(m[1]+m[2]+m[3], "."), "/")
			if to == "/" {
				continue
			}
			found++
			if _, there := assets[to]; !there {
				t.Errorf("%s refers to %s", path, to)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d references were looked at", found)
	}
}
