//go:build lab

// Package images has homes of guests that send bad images, to a containerd of its own with a small disk: nothing of what they send may
// stay, and what it costs is bounded.
package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	disk   = 2 << 30 // of this containerd, in bytes
	inodes = 60_000
	// most is what a pull may take of memory beyond a good one, in bytes.
	most = 16 << 20
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor is the OCI's.
type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls,omitempty"`
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// tarOf is an archive of some entries, each with as many bytes as it says.
func tarOf(entries ...tar.Header) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		_, _ = w.Write(make([]byte, h.Size))
	}
	_ = w.Close()
	return out.Bytes()
}

// image is one that a home has under the name home.example/x:1, with the layers that were added.
type image struct {
	blobs  map[string][]byte
	layers []descriptor
	diffs  []string // of the layers, unpacked
	top    []byte   // what the name means: a manifest, or an index
	kind   string   // its media type
	answer func(w http.ResponseWriter, r *http.Request, ref string) bool
}

func (i *image) add(b []byte, mediaType string) descriptor {
	i.blobs[digest(b)] = b
	return descriptor{MediaType: mediaType, Digest: digest(b), Size: int64(len(b))}
}

// layer adds one, and gives it to be changed.
func (i *image) layer(plain []byte) *descriptor {
	i.layers, i.diffs = append(i.layers, i.add(gz(plain), layerType)), append(i.diffs, digest(plain))
	return &i.layers[len(i.layers)-1]
}

// seal makes the manifest.
func (i *image) seal() {
	config, _ := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": i.diffs}})
	i.top, _ = json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": i.add(config, configType), "layers": i.layers})
	i.kind = manifestType
}

func (i *image) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, ref, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/home/x/"), "/")
	if i.answer != nil && i.answer(w, r, ref) {
		return
	}
	b, has := i.blobs[ref]
	kind := "application/octet-stream"
	if ref == "1" || ref == digest(i.top) {
		b, has, kind = i.top, true, i.kind
		w.Header().Set("Docker-Content-Digest", digest(i.top))
	}
	if !has {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

// runtime is a containerd, and where kith-image finds it.
type runtime struct {
	dir, socket string
	pid         int
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: it is run by scripts/test.sh lab, which has bin/ in its PATH", err)
	}
	return path
}

func start(t *testing.T) *runtime {
	t.Helper()
	r := &runtime{dir: t.TempDir()}
	r.socket = filepath.Join(r.dir, "c.sock")
	root := filepath.Join(r.dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d", disk, inodes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	config := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime']\n[grpc]\n  address = %q\n",
		root, filepath.Join(r.dir, "state"), r.socket)
	if err := os.WriteFile(filepath.Join(r.dir, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t, "containerd"), "--config", filepath.Join(r.dir, "config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for range 600 {
		if conn, err := net.Dial("unix", r.socket); err == nil {
			conn.Close()
			return r
		}
		time.Sleep(100 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("containerd does not listen after a minute: %s", text)
	return nil
}

// image runs kith-image, and gives what it says and the most memory that it had.
func (r *runtime) image(ctx context.Context, t *testing.T, verb string, order map[string]any) (said string, memory int64, err error) {
	t.Helper()
	order["socket"] = r.socket
	text, _ := json.Marshal(order)
	cmd := exec.CommandContext(ctx, program(t, "kith-image"), verb)
	cmd.Env = []string{"GOMEMLIMIT=128MiB", "GOGC=50"} // as the engine runs it
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for { // the kernel's count for a process that ended has in it what this test's process had
		select {
		case err := <-ended:
			if err != nil {
				err = errors.New(strings.TrimSpace(errs.String()))
			}
			return strings.TrimSpace(out.String()), memory, err
		case <-time.After(5 * time.Millisecond):
			memory = max(memory, peak(cmd.Process.Pid))
		}
	}
}

// pull has a home's image pulled.
func (r *runtime) pull(t *testing.T, h http.Handler) (string, int64, error) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "h")
	listener, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	return r.image(ctx, t, "pull", map[string]any{"image": "home.example/x:1", "registries": []string{}, "home": at + ":/home", "root": filepath.Join(r.dir, "root")})
}

// used is how much of the disk is.
func (r *runtime) used(t *testing.T) (size, files int64) {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(filepath.Join(r.dir, "root"), &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize, int64(s.Files - s.Ffree)
}

// peak is the most memory that a process had until now; 0 when it is none any more.
func peak(pid int) (kib int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	_, _ = fmt.Sscan(rest, &kib)
	return kib << 10
}

// TestHostileHomesLeaveNothing: a pull from each ends, with an error, and leaves neither an image nor a byte.
func TestHostileHomesLeaveNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("a containerd needs root")
	}
	r := start(t)
	good := &image{blobs: map[string][]byte{}}
	good.layer(tarOf(tar.Header{Name: "bin/app", Size: 1 << 20}))
	good.seal()
	name, calm, err := r.pull(t, good)
	if err != nil || name != "home.example/x@"+digest(good.top) {
		t.Fatalf("%q, %v: what is refused below proves nothing", name, err)
	}
	if _, _, err := r.image(t.Context(), t, "remove", map[string]any{"image": name}); err != nil {
		t.Fatal(err)
	}
	before, filesBefore := r.used(t)
	runtimeBefore := peak(r.pid)

	zeros := make([]byte, 64<<20)
	outside := filepath.Join(t.TempDir(), "outside")
	up := strings.Repeat("../", 40)
	for what, make := range map[string]func(i *image, small []byte){
		"a layer that is another one": func(i *image, small []byte) {
			l := i.layer(small)
			i.seal()
			i.blobs[l.Digest] = gz(tarOf(tar.Header{Name: "bin/app", Size: 1<<20 + 1}))
		},
		"a manifest that is another one": func(i *image, small []byte) {
			i.layer(small)
			i.seal()
			named := digest(i.top)
			i.answer = func(w http.ResponseWriter, r *http.Request, ref string) bool {
				if ref != "1" {
					return false
				}
				w.Header().Set("Docker-Content-Digest", named)
				w.Header().Set("Content-Type", manifestType)
				_, _ = w.Write(bytes.Replace(i.top, []byte(`"schemaVersion":2`), []byte(`"schemaVersion":3`), 1))
				return true
			}
			i.blobs[named] = []byte("{}")
			i.top = nil
		},
		"a configuration that is another one": func(i *image, small []byte) {
			i.layer(small)
			i.seal()
			for d := range i.blobs {
				if d != i.layers[0].Digest {
					i.blobs[d] = append(i.blobs[d][:len(i.blobs[d])-1:len(i.blobs[d])-1], ' ')
				}
			}
		},
		"a layer that is not what the configuration says": func(i *image, small []byte) {
			i.layer(small)
			i.diffs[0] = digest([]byte("another"))
			i.seal()
		},
		"a layer with more bytes than it says": func(i *image, small []byte) {
			l := i.layer(small)
			l.Size -= 100
			i.seal()
		},
		"a layer that says it has none": func(i *image, small []byte) {
			i.layer(small).Size = 0
			i.seal()
		},
		"a layer that says it has a terabyte": func(i *image, small []byte) {
			i.layer(small).Size = 1 << 40
			i.seal()
		},
		"a layer that unpacks to eight gigabytes": func(i *image, _ []byte) {
			var head bytes.Buffer
			_ = tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: 8 << 30})
			bomb := append(gz(head.Bytes()), bytes.Repeat(gz(zeros), 128)...)
			i.layers, i.diffs = append(i.layers, i.add(bomb, layerType)), append(i.diffs, digest([]byte("never")))
			i.seal()
		},
		"a hundred layers that unpack to a hundred megabytes each": func(i *image, small []byte) {
			i.layer(tarOf(tar.Header{Name: "big", Size: 100 << 20}))
			for range 99 {
				i.layers, i.diffs = append(i.layers, i.layers[0]), append(i.diffs, i.diffs[0])
			}
			i.seal()
		},
		"a layer of a hundred thousand files": func(i *image, small []byte) {
			var all []tar.Header
			for n := range 100_000 {
				all = append(all, tar.Header{Name: fmt.Sprint("f", n)})
			}
			i.layer(tarOf(all...))
			i.seal()
		},
		"a manifest of a hundred megabytes": func(i *image, small []byte) {
			i.top, i.kind = append([]byte(`{"x":"`), bytes.Repeat([]byte("x"), 100<<20)...), manifestType
		},
		"a manifest without an end, that does not say how long it is": func(i *image, small []byte) {
			i.answer = func(w http.ResponseWriter, r *http.Request, ref string) bool {
				w.Header().Set("Content-Type", manifestType)
				if r.Method == http.MethodHead {
					w.WriteHeader(http.StatusOK)
					return true
				}
				for chunk := bytes.Repeat([]byte(" "), 1<<20); ; {
					if _, err := w.Write(chunk); err != nil {
						return true
					}
				}
			}
		},
		"a configuration of a hundred megabytes": func(i *image, small []byte) {
			i.layer(small)
			big := i.add(append([]byte(`{"x":"`), bytes.Repeat([]byte("x"), 100<<20)...), configType)
			i.top, _ = json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": big, "layers": i.layers})
			i.kind = manifestType
		},
		"ten thousand layers that are not there": func(i *image, small []byte) {
			for n := range 10_000 {
				i.layers = append(i.layers, descriptor{MediaType: layerType, Digest: digest([]byte(fmt.Sprint(n))), Size: 100})
				i.diffs = append(i.diffs, digest([]byte(fmt.Sprint("d", n))))
			}
			i.seal()
		},
		"an index of ten thousand manifests": func(i *image, small []byte) {
			var all []descriptor
			for n := range 10_000 {
				all = append(all, descriptor{MediaType: manifestType, Digest: digest([]byte(fmt.Sprint(n))), Size: 100})
			}
			i.top, _ = json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": all})
			i.kind = indexType
		},
		"indexes in indexes, a thousand deep": func(i *image, small []byte) {
			d := descriptor{MediaType: manifestType, Digest: digest(nil), Size: 10}
			for range 1000 {
				i.top, _ = json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{d}})
				d = i.add(i.top, indexType)
			}
			i.kind = indexType
		},
		"no archive": func(i *image, small []byte) {
			i.layer(bytes.Repeat([]byte("no archive"), 1000))
			i.seal()
		},
		"no gzip": func(i *image, small []byte) {
			i.layers, i.diffs = append(i.layers, i.add([]byte("\x1f\x8bno gzip"), layerType)), append(i.diffs, digest([]byte("x")))
			i.seal()
		},
		"a layer at another address": func(i *image, small []byte) {
			l := i.layer(small)
			l.URLs = []string{"http://127.0.0.1:1/layer"}
			i.seal()
			delete(i.blobs, l.Digest)
		},
		"another place for everything": func(i *image, small []byte) {
			i.layer(small)
			i.seal()
			i.answer = func(w http.ResponseWriter, r *http.Request, _ string) bool {
				http.Redirect(w, r, "http://127.0.0.1:1"+r.URL.Path, http.StatusTemporaryRedirect)
				return true
			}
		},
		"a hard link to what is outside": func(i *image, small []byte) {
			i.layer(tarOf(tar.Header{Name: "passwd", Typeflag: tar.TypeLink, Linkname: up + "etc/passwd"}))
			i.seal()
		},
	} {
		t.Run(what, func(t *testing.T) {
			i := &image{blobs: map[string][]byte{}}
			make(i, tarOf(tar.Header{Name: what, Size: 1 << 20})) // what no other has
			name, memory, err := r.pull(t, i)
			if err == nil {
				t.Errorf("it became the image %s", name)
			} else {
				t.Logf("%.200v", err)
			}
			if memory > calm+most {
				t.Errorf("kith-image had %d MB, %d for a good image", memory>>20, calm>>20)
			}
			r.nothing(t, before, filesBefore)
		})
	}
	t.Logf("kith-image has %d MB for a good image; the most that containerd had was %d MB, before %d", calm>>20, peak(r.pid)>>20, runtimeBefore>>20)

	// Names that lead out of the image are names within it.
	i := &image{blobs: map[string][]byte{}}
	i.layer(tarOf(
		tar.Header{Name: up + outside, Size: 10}, tar.Header{Name: outside, Size: 10},
		tar.Header{Name: "way", Typeflag: tar.TypeSymlink, Linkname: filepath.Dir(outside)}, tar.Header{Name: "way/outside", Size: 10},
	))
	i.seal()
	name, _, err = r.pull(t, i)
	t.Log(name, err)
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a layer wrote where it liked")
	}
}

// nothing fails unless all that was pulled is gone. What was deleted goes in a moment.
func (r *runtime) nothing(t *testing.T, size, files int64) {
	t.Helper()
	list, _, err := r.image(t.Context(), t, "list", map[string]any{})
	if err != nil || list != "[]" {
		t.Errorf("images: %s, %v", list, err)
	}
	var now, filesNow int64
	for range 100 {
		// The database keeps the pages that it once had.
		if now, filesNow = r.used(t); now < size+16<<20 && filesNow < files+50 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%d KiB in %d files more than before stay", (now-size)>>10, filesNow-files)
}
