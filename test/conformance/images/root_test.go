package main

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"testing"
)

func TestLayerHasDirectoriesBeforeWhatIsInThemAndModes(t *testing.T) {
	r := root{
		"/tmp":               {mode: fs.ModeDir | fs.ModeSticky | 0o777},
		"/usr/local/bin/nnp": {mode: fs.ModeSetuid | 0o755, body: []byte("program")},
		"/usr/bin/sh":        {mode: 0o755},
	}
	r.link("/bin", "usr/bin")
	b, err := r.tar()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	got := map[string]*tar.Header{}
	for in := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names, got[h.Name] = append(names, h.Name), h
	}
	want := []string{"bin", "tmp/", "usr/", "usr/bin/", "usr/bin/sh", "usr/local/", "usr/local/bin/", "usr/local/bin/nnp"}
	if len(names) != len(want) {
		t.Fatalf("%q, want %q", names, want)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Fatalf("%q, want %q", names, want)
		}
	}
	if h := got["usr/local/bin/nnp"]; h.Mode != 0o4755 || h.Size != 7 || h.Uid != 0 {
		t.Errorf("nnp: %+v", h)
	}
	if h := got["tmp/"]; h.Mode != 0o1777 {
		t.Errorf("/tmp: %o", h.Mode)
	}
	if h := got["bin"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "usr/bin" {
		t.Errorf("/bin: %+v", h)
	}
}
