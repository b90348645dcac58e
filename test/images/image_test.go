package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestTheSameSourcesGiveTheSameImages(t *testing.T) {
	var sums [2]map[string][32]byte
	for i := range sums {
		sums[i] = map[string][32]byte{}
		paths, err := Build(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			sums[i][filepath.Base(p)] = sha256.Sum256(b)
		}
	}
	if len(sums[0]) != len(all) {
		t.Errorf("%d archives of %d images", len(sums[0]), len(all))
	}
	for name, sum := range sums[0] {
		if sums[1][name] != sum {
			t.Errorf("%s differs from build to build", name)
		}
	}
}

func TestEchoImageHasWhatATestNeeds(t *testing.T) {
	dir := t.TempDir()
	if _, err := Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(filepath.Join(dir, "echo.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(filepath.Join(dir, "echo.tar")) })
	if err != nil || len(manifest) != 1 || manifest[0].RepoTags[0] != "kith.dev/echo:1" {
		t.Errorf("manifest %+v, %v", manifest, err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Config.User != user || c.Config.Entrypoint[0] != "/app" || c.Architecture == "" {
		t.Errorf("config %+v", c.Config)
	}
	got := entries(t, img)
	for name, want := range map[string]tar.Header{
		"app":     {Typeflag: tar.TypeReg, Mode: 0o755},
		"bin/tar": {Typeflag: tar.TypeSymlink, Linkname: "/app", Mode: 0o777},
		"tmp/":    {Typeflag: tar.TypeDir, Mode: 0o1777},
	} {
		h, ok := got[name]
		if !ok || h.Typeflag != want.Typeflag || h.Mode != want.Mode || h.Linkname != want.Linkname || h.Uid != 0 {
			t.Errorf("%s is %+v", name, h)
		}
	}
}

func entries(t *testing.T, img v1.Image) map[string]*tar.Header {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	rc, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	all := map[string]*tar.Header{}
	for r := tar.NewReader(rc); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "app" {
			var elf [4]byte
			if _, err := io.ReadFull(r, elf[:]); err != nil || !bytes.Equal(elf[:], []byte("\x7fELF")) {
				t.Errorf("/app is no program: %q, %v", elf, err)
			}
		}
		all[h.Name] = h
	}
}
