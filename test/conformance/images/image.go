package main

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const tests = "registry.k8s.io/e2e-test-images/"

// image is what a test names in a pod. The tags are those of test/utils/image/manifest.go of this Kubernetes.
type image struct {
	tags   []string
	layers []v1.Layer
	config v1.Config
}

// images are those that NodeConformance and the conformance tests of applications, network, storage and the command line ask
// for. In nginx's place stands agnhost: the tests only want something that answers at port 80. programs is the directory of
// what was built, sources that of upstream's images.
func images(programs, sources string) ([]image, error) {
	box, err := busybox()
	if err != nil {
		return nil, err
	}
	// The shell is bash: busybox's takes its own applets for every name, nc too, and drops variables such as data-1.
	bash, err := hostPrograms("bash")
	if err != nil {
		return nil, err
	}
	maps.Copy(box, bash)
	box.link("/usr/bin/sh", "bash")
	tools, err := hostPrograms("curl", "dig", "nslookup", "host", "nc.openbsd", "ip", "getent")
	if err != nil {
		return nil, err
	}
	tools.link("/usr/bin/nc", "nc.openbsd")
	built := func(program string) string { return filepath.Join(programs, program) }
	source := func(path ...string) string { return filepath.Join(append([]string{sources}, path...)...) }
	agnhost := root{}
	agnhost.link("/agnhost-2", "agnhost")
	nautilus, kitten, nnp, regression, pause := root{}, root{}, root{}, root{}, root{}
	for _, f := range []struct {
		into     root
		from, to string
		mode     fs.FileMode
	}{
		{agnhost, built("agnhost"), "/agnhost", 0o755},
		{agnhost, source("agnhost", "porter", "localhost.crt"), "/localhost.crt", 0o644},
		{agnhost, source("agnhost", "porter", "localhost.key"), "/localhost.key", 0o644},
		{nautilus, source("nautilus", "html", "nautilus.jpg"), "/nautilus.jpg", 0o644},
		{nautilus, source("nautilus", "html", "data.json"), "/data.json", 0o644},
		{kitten, source("kitten", "html", "kitten.jpg"), "/kitten.jpg", 0o644},
		{kitten, source("kitten", "html", "data.json"), "/data.json", 0o644},
		{nnp, built("nnp"), "/usr/local/bin/nnp", 0o755 | fs.ModeSetuid},
		{regression, built("regression-issue-74839"), "/regression-issue-74839", 0o755},
		{pause, built("pause"), "/pause", 0o755},
	} {
		if err := f.into.copy(f.from, f.to, f.mode); err != nil {
			return nil, err
		}
	}
	var failed error
	layers := map[string]v1.Layer{} // one of each, so that the archive holds it once
	for name, r := range map[string]root{
		"box": box, "tools": tools, "agnhost": agnhost, "nautilus": nautilus, "kitten": kitten, "nnp": nnp, "regression": regression, "pause": pause,
	} {
		if layers[name], err = r.layer(); err != nil {
			failed = err
		}
	}
	of := func(names ...string) (all []v1.Layer) {
		for _, n := range names {
			all = append(all, layers[n])
		}
		return all
	}
	test := func(tags ...string) []string {
		for i := range tags {
			tags[i] = tests + tags[i]
		}
		return tags
	}
	entry := []string{"/agnhost"}
	return []image{
		{test("agnhost:2.63.0", "agnhost:2.55"), of("box", "tools", "agnhost"), v1.Config{Entrypoint: entry, Cmd: []string{"pause"}}},
		{test("nginx:1.15-4", "nginx:1.27-0"), of("box", "tools", "agnhost"), v1.Config{Cmd: []string{"/agnhost", "netexec", "--http-port=80", "--udp-port=-1"}}},
		{test("nautilus:1.8"), of("box", "tools", "agnhost", "nautilus"), v1.Config{Entrypoint: entry, Cmd: []string{"test-webserver"}}},
		{test("kitten:1.8"), of("box", "tools", "agnhost", "kitten"), v1.Config{Entrypoint: entry, Cmd: []string{"test-webserver"}}},
		{test("glibc-dns-testing:2.0.0"), of("box", "tools"), v1.Config{Cmd: []string{"bash"}}},
		{test("busybox:1.37.0-1"), of("box"), v1.Config{Cmd: []string{"sh"}}},
		{test("nonroot:1.5"), of("box"), v1.Config{Cmd: []string{"sh"}, User: "1234"}},
		{test("nonewprivs:1.4"), of("box", "nnp"), v1.Config{Cmd: []string{"nnp"}}},
		{test("regression-issue-74839:1.4"), of("box", "regression"), v1.Config{Entrypoint: []string{"/regression-issue-74839"}}},
		{[]string{"registry.k8s.io/pause:3.10.2"}, of("pause"), v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}},
	}, failed
}

// mcsImages are those of the conformance suite of mcs-api: one answers, and its pods' shell tells it what; the other asks, by names and by addresses. The
// tags are those of conformance/k8s_objects.go of the suite.
func mcsImages() ([]image, error) {
	box, err := busybox()
	if err != nil {
		return nil, err
	}
	answers, err := hostPrograms("socat")
	if err != nil {
		return nil, err
	}
	asks, err := hostPrograms("bash", "curl", "dig", "nslookup", "host", "nc.openbsd", "ip")
	if err != nil {
		return nil, err
	}
	asks.link("/usr/bin/nc", "nc.openbsd")
	asks.link("/usr/bin/sh", "bash") // busybox's takes its own nc and nslookup
	var of [3]v1.Layer
	for i, r := range []root{box, answers, asks} {
		if of[i], err = r.layer(); err != nil {
			return nil, err
		}
	}
	return []image{
		{[]string{"docker.io/alpine/socat:1.7.4.4"}, []v1.Layer{of[0], of[1]}, v1.Config{Entrypoint: []string{"socat"}}},
		{[]string{"docker.io/nicolaka/netshoot:v0.15"}, []v1.Layer{of[0], of[2]}, v1.Config{Cmd: []string{"bash"}}},
	}, nil
}

// layer is the file system as a layer of an image.
func (r root) layer() (v1.Layer, error) {
	files, err := r.tar()
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
}

// write puts all images into one archive, in the layout of `docker save`, each layer once.
func write(all []image, path string) error {
	refs := map[name.Reference]v1.Image{}
	for _, i := range all {
		img, err := i.build()
		if err != nil {
			return err
		}
		for _, t := range i.tags {
			tag, err := name.NewTag(t)
			if err != nil {
				return err
			}
			refs[tag] = img
		}
	}
	// Beside and renamed: nobody imports half an archive.
	if err := tarball.MultiRefWriteToFile(path+".new", refs); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (i image) build() (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, i.layers...)
	if err != nil {
		return nil, err
	}
	c := &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: epoch}, Config: i.config, RootFS: v1.RootFS{Type: "layers"}}
	c.Config.WorkingDir = "/"
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, l := range i.layers {
		id, err := l.DiffID()
		if err != nil {
			return nil, err
		}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, id)
	}
	return mutate.ConfigFile(img, c)
}
