// Command image writes the container image of kithd and kith, built from scratch, as one OCI archive: a tar of an image layout
// (github.com/opencontainers/image-spec, image-layout.md) with an image for each processor. No registry and no base image is asked for, and the
// same programs give the same bytes.
//
//	image -o FILE -tag NAME:TAG -version VERSION -revision COMMIT ARCH=DIR...
//
// DIR has the programs for that processor.
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// programs of an image, and where in it they are.
var programs = map[string]string{"kithd": "usr/sbin/kithd", "kith": "usr/bin/kith"}

// nobody is whom the image runs as, unless a pod says otherwise: kithd on the network of a node does, for a capability needs root.
const nobody = "65532:65532"

// sbomAt is where the image says what is in it.
const sbomAt = "usr/share/doc/kith/sbom.cdx.json"

type options struct {
	out, tag, version, revision string
	when                        time.Time
}

func main() {
	var o options
	flag.StringVar(&o.out, "o", "", "the archive")
	flag.StringVar(&o.tag, "tag", "", "name of the image, with its tag")
	flag.StringVar(&o.version, "version", "", "version of the programs")
	flag.StringVar(&o.revision, "revision", "", "commit they were built from")
	flag.Parse()
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	o.when = time.Unix(seconds, 0).UTC()
	if err := o.write(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o options) write(archs []string) error {
	if o.out == "" || o.tag == "" || len(archs) == 0 {
		return errors.New("-o, -tag and an ARCH=DIR are needed")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range archs {
		arch, dir, ok := strings.Cut(one, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=DIR", one)
		}
		image, err := o.image(arch, dir)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	work, err := os.MkdirTemp("", "kith-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	at, err := layout.Write(work, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(o.tag, ":")
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": o.tag, // ctr and nerdctl take the name from here
	})); err != nil {
		return err
	}
	return o.pack(work)
}

// image of one processor.
func (o options) image(arch, dir string) (v1.Image, error) {
	files := map[string][]byte{
		"etc/passwd": []byte("root:x:0:0:root:/:/usr/sbin/kithd\nkith:x:65532:65532:kith:/:/usr/sbin/kithd\n"),
		"etc/group":  []byte("root:x:0:\nkith:x:65532:\n"),
	}
	var built []*buildinfo.BuildInfo
	for name, to := range programs {
		path := filepath.Join(dir, name)
		if err := static(path, arch); err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		built = append(built, info)
		if files[to], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	sbom, err := o.sbom(built)
	if err != nil {
		return nil, err
	}
	files[sbomAt] = sbom
	text, err := o.layer(files)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: o.when}, CreatedBy: "kith " + o.version}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: o.when}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/sbin/kithd"}, User: nobody, WorkingDir: "/", Env: []string{"PATH=/usr/bin:/usr/sbin"},
		Labels: map[string]string{ // image-spec, annotations.md
			"org.opencontainers.image.title": "kith", "org.opencontainers.image.description": "kithd and kith: one Kubernetes of the clusters around you",
			"org.opencontainers.image.version": o.version, "org.opencontainers.image.revision": o.revision,
			"org.opencontainers.image.created": o.when.Format(time.RFC3339), "org.opencontainers.image.url": "https://kith.dev",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// static says what keeps a program from running in an image with nothing but it.
func static(path, arch string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		return fmt.Errorf("%s is for %s", path, f.Machine)
	}
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		return fmt.Errorf("%s is not static: %v %w", path, libraries, err)
	}
	return nil
}

// layer is a tar of the whole file system.
func (o options) layer(files map[string][]byte) ([]byte, error) {
	entries := map[string][]byte{"tmp/": nil, "run/": nil, "var/lib/kith/": nil}
	for path, content := range files {
		entries[path] = content
	}
	for path := range entries {
		for dir := filepath.Dir(strings.TrimSuffix(path, "/")); dir != "."; dir = filepath.Dir(dir) {
			if _, there := entries[dir+"/"]; !there {
				entries[dir+"/"] = nil
			}
		}
	}
	var names []string
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names) // a folder is before what is in it
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := &tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: o.when, Format: tar.FormatUSTAR}
		switch {
		case name == "tmp/":
			h.Mode = 0o1777
		case !strings.HasSuffix(name, "/"):
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, int64(len(entries[name]))
			if strings.Contains(name, "bin/") {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(entries[name]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// sbom lists the modules that were linked, as the programs themselves say it, in CycloneDX (ECMA-424).
func (o options) sbom(programs []*buildinfo.BuildInfo) ([]byte, error) {
	type component struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl"`
	}
	all := map[string]component{}
	for _, p := range programs {
		std := component{"library", "std", strings.TrimPrefix(p.GoVersion, "go"), "pkg:golang/std@" + strings.TrimPrefix(p.GoVersion, "go")}
		all[std.PURL] = std
		for _, m := range p.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version}
			all[c.PURL] = c
		}
	}
	var list []component
	for _, c := range all {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b component) int { return strings.Compare(a.PURL, b.PURL) })
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"timestamp": o.when.Format(time.RFC3339), "component": component{"application", "kith", o.version, "pkg:golang/kith.dev@" + o.version}},
		"components": list,
	}, "", " ")
}

// pack makes the archive of a layout.
func (o options) pack(dir string) error {
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	f, err := os.Create(o.out + ".new") // beside and renamed: nobody imports half an archive
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, path := range names {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: o.when, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		return err
	}
	return os.Rename(o.out+".new", o.out)
}
