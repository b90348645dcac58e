package images

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// image is a program and how it becomes an image.
type image struct {
	// Tag is the image's name in a pod's spec.
	Tag string
	// Package is the program's import path.
	Package string
	// Links are further names for the program, which acts by the name it is called.
	Links []string
	Ports []string
}

// all are the images of the tests.
var all = []image{
	{
		Tag: "kith.dev/echo:1", Package: "kith.dev/test/images/echo",
		Links: []string{"/bin/tar", "/bin/cat", "/bin/echo", "/bin/ls", "/bin/sleep"}, // kubectl cp wants tar
		Ports: []string{"8080/tcp", "9999/udp"},
	},
	{Tag: "kith.dev/load:1", Package: "kith.dev/test/images/load", Ports: []string{"7000/tcp"}},
}

// epoch is the time of everything in an image, so that it does not change from build to build.
var epoch = time.Unix(0, 0).UTC()

// user is nobody: pods of these images pass the strictest pod security level when they set runAsNonRoot.
const user = "65532:65532"

// Build compiles all programs and writes an archive for each (docker layout, as `docker save` does) into dir, named
// after the program. It must run inside Kith's source tree and returns the paths.
func Build(ctx context.Context, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	var paths []string
	for _, i := range all {
		path := filepath.Join(dir, filepath.Base(i.Package)+".tar")
		if err := i.write(ctx, path); err != nil {
			return nil, fmt.Errorf("build image %s: %w", i.Tag, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func (i image) write(ctx context.Context, path string) error {
	program, err := compile(ctx, i.Package)
	if err != nil {
		return err
	}
	files, err := layer(program, i.Links)
	if err != nil {
		return err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return err
	}
	ports := map[string]struct{}{}
	for _, p := range i.Ports {
		ports[p] = struct{}{}
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: epoch},
		Config: v1.Config{
			Entrypoint: []string{"/app"}, User: user, WorkingDir: "/", ExposedPorts: ports,
			Env: []string{"PATH=/bin:/"},
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(img)},
	})
	if err != nil {
		return err
	}
	tag, err := name.NewTag(i.Tag)
	if err != nil {
		return err
	}
	// Beside and renamed: nobody imports half an archive.
	if err := tarball.WriteToFile(path+".new", tag, img); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func diffIDs(img v1.Image) []v1.Hash {
	c, err := img.ConfigFile()
	if err != nil {
		return nil
	}
	return c.RootFS.DiffIDs
}

func compile(ctx context.Context, pkg string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kith-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "app")
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out, pkg)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-mod=readonly")
	if msg, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s: %w: %s", pkg, err, msg)
	}
	return os.ReadFile(out)
}

// layer is a tar of the whole root file system: the program as /app, its other names, and places to write to.
func layer(program []byte, links []string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h *tar.Header, body []byte) error {
		h.ModTime, h.Size, h.Format = epoch, int64(len(body)), tar.FormatUSTAR
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(body)
		return err
	}
	entries := []*tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "data/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
	}
	for _, l := range links {
		entries = append(entries, &tar.Header{Name: l[1:], Typeflag: tar.TypeSymlink, Linkname: "/app", Mode: 0o777})
	}
	for _, h := range entries {
		if err := add(h, nil); err != nil {
			return nil, err
		}
	}
	passwd := "root:x:0:0:root:/:/app\nnobody:x:65532:65532:nobody:/tmp:/app\n"
	if err := add(&tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte(passwd)); err != nil {
		return nil, err
	}
	if err := add(&tar.Header{Name: "app", Typeflag: tar.TypeReg, Mode: 0o755}, program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
