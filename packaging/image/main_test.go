package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// built makes two small static programs.
func built(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name := range programs {
		c := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), source)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-trimpath")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

// unpacked gives what is in the layout of an archive.
func unpacked(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestTheSameProgramsGiveTheSameImage(t *testing.T) {
	dir := built(t)
	var archives [][]byte
	for range 2 {
		o := options{out: filepath.Join(t.TempDir(), "image.tar"), tag: "kith.dev/kith:1.2.3", version: "1.2.3", revision: "abc", when: time.Unix(1700000000, 0).UTC()}
		if err := o.write([]string{runtime.GOARCH + "=" + dir}); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(o.out)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the archives differ")
	}

	manifest, err := unpacked(t, archives[0]).IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["io.containerd.image.name"] != "kith.dev/kith:1.2.3" {
		t.Fatalf("%+v %v", manifest, err)
	}
	all, err := unpacked(t, archives[0]).ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	each, err := all.IndexManifest()
	if err != nil || len(each.Manifests) != 1 || each.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("%+v %v", each, err)
	}
	image, err := all.Image(each.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.User != nobody || config.Config.Labels["org.opencontainers.image.version"] != "1.2.3" || config.Architecture != runtime.GOARCH {
		t.Errorf("%+v %v", config, err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	files, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	modes, seen := map[string]int64{}, map[string]bool{"./": true}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
		if parent := filepath.Dir(strings.TrimSuffix(h.Name, "/")) + "/"; !seen[parent] {
			t.Errorf("%s is before the folder that it is in", h.Name)
		}
		seen[h.Name] = true
		if h.Name == sbomAt {
			var bom struct{ Components []struct{ PURL string } }
			if err := json.NewDecoder(r).Decode(&bom); err != nil || len(bom.Components) == 0 || !strings.HasPrefix(bom.Components[0].PURL, "pkg:golang/std@") {
				t.Errorf("%+v %v", bom, err)
			}
		}
	}
	for path, mode := range map[string]int64{"usr/sbin/kithd": 0o755, "usr/bin/kith": 0o755, "tmp/": 0o1777, sbomAt: 0o644, "etc/passwd": 0o644} {
		if modes[path] != mode {
			t.Errorf("%s has mode %o, want %o", path, modes[path], mode)
		}
	}
}

func TestAnImageHasNothingThatCannotRunInIt(t *testing.T) {
	dir := built(t)
	o := options{out: filepath.Join(t.TempDir(), "image.tar"), tag: "kith.dev/kith:1"}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if err := o.write([]string{other + "=" + dir}); err == nil || !strings.Contains(err.Error(), "is for") {
		t.Errorf("programs of another processor: %v", err)
	}
	if _, err := os.Stat(o.out); err == nil {
		t.Error("an archive was left")
	}
	if err := os.WriteFile(filepath.Join(dir, "kithd"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := o.write([]string{runtime.GOARCH + "=" + dir}); err == nil {
		t.Error("a script became part of an image")
	}
}
