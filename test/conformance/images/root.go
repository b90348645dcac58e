package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// root is a root file system in memory: absolute paths to what is there. Everything in it belongs to root.
type root map[string]entry

type entry struct {
	mode fs.FileMode // with fs.ModeDir or fs.ModeSymlink
	body []byte
	link string
}

// etc is the least that programs expect. The users and groups are those that tests of agnhost ask for by name.
var etc = map[string]string{
	"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n",
	"/etc/group": "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n" +
		"group-defined-in-image:x:50000:user-defined-in-image\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// busybox is a root file system of busybox and its applets alone.
func busybox() (root, error) {
	r := root{}
	for _, dir := range []string{"/usr/bin", "/usr/lib", "/usr/lib64", "/etc", "/root", "/home", "/var", "/uploads", "/dev", "/proc", "/sys"} {
		r[dir] = entry{mode: fs.ModeDir | 0o755}
	}
	r["/tmp"], r["/var/tmp"] = entry{mode: fs.ModeDir | 0o777 | fs.ModeSticky}, entry{mode: fs.ModeDir | 0o777 | fs.ModeSticky}
	// One directory for all programs: the tests look for some of sbin's in /bin.
	for from, to := range map[string]string{"/bin": "usr/bin", "/sbin": "usr/bin", "/usr/sbin": "bin", "/lib": "usr/lib", "/lib64": "usr/lib64"} {
		r.link(from, to)
	}
	for path, text := range etc {
		r[path] = entry{mode: 0o644, body: []byte(text)}
	}
	program, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("%w (package busybox-static)", err)
	}
	if err := r.copy(program, "/usr/bin/busybox", 0o755); err != nil {
		return nil, err
	}
	out, err := exec.Command(program, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %s: %w", program, err)
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if path := "/usr/bin/" + filepath.Base(applet); path != "/usr/bin/busybox" {
			r.link(path, "/usr/bin/busybox")
		}
	}
	return r, nil
}

// library is a line of ldd's: "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", or the loader's path alone.
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// hostPrograms are programs of this machine in /usr/bin, with the libraries that they need. Over busybox they stand before its applets.
func hostPrograms(programs ...string) (root, error) {
	r := root{}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		if err := r.copy(path, "/usr/bin/"+name, 0o755); err != nil {
			return nil, err
		}
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			return nil, fmt.Errorf("libraries of %s: %w", path, err)
		}
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			to := m[1]
			if !strings.HasPrefix(to, "/usr/") {
				to = "/usr" + to
			}
			if err := r.copy(m[1], to, 0o755); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// copy puts a file of this machine at a path.
func (r root) copy(from, to string, mode fs.FileMode) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	r[to] = entry{mode: mode, body: body}
	return nil
}

func (r root) link(path, to string) { r[path] = entry{mode: fs.ModeSymlink | 0o777, link: to} }

// epoch is the time of everything in an image, so that it does not change from build to build.
var epoch = time.Unix(0, 0).UTC()

// tar writes everything, directories before what is in them.
func (r root) tar() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	dirs := map[string]bool{"/": true}
	var header func(path string, e entry) error
	header = func(path string, e entry) error {
		if up := filepath.Dir(path); !dirs[up] && path != "/" {
			dir, ok := r[up]
			if !ok {
				dir = entry{mode: fs.ModeDir | 0o755}
			}
			if err := header(up, dir); err != nil {
				return err
			}
		}
		if e.mode.IsDir() {
			if dirs[path] {
				return nil
			}
			dirs[path] = true
		}
		h := &tar.Header{Name: path[1:], Mode: int64(e.mode.Perm()), Size: int64(len(e.body)), ModTime: epoch, Format: tar.FormatPAX}
		switch {
		case e.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case e.mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		default:
			h.Typeflag = tar.TypeReg
		}
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if e.mode&fs.ModeSetuid != 0 {
			h.Mode |= 0o4000
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(e.body)
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(r)) {
		if err := header(path, r[path]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
