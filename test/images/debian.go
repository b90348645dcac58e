package images

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Tools is the image that TestDevelopmentJobs works with: compilers, distcc, make and rsync of Debian's.
const Tools = "tools/dev:1"

var (
	toolsHas = []string{"distcc", "gcc", "libc6-dev", "make", "rsync", "bash", "coreutils", "sed", "grep", "findutils"}
	// What only installing and administering on Debian needs, sanitizers, and a client of RPC.
	toolsLack = regexp.MustCompile(`^(perl|libperl|lib.*-perl|debconf|dpkg|tar|adduser|passwd|init-system|lsb-|sysvinit|usrmerge|libpam|libsemanage|libsepol|` +
		`libaudit|libcap-ng|libdb5|libgdbm|lib[atl]san|libubsan|libitm|libquadmath|libgprofng|libnsl|libtirpc|rpcsvc|libcrypt-dev|libmd0$)`)
	toolsDrop = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bug",
		"usr/bin/*lto-dump*", "usr/lib/gcc/*/*/lto1", "usr/lib/*/gconv", "usr/lib/gcc/*/*/lib*san*"}
)

// BuildTools writes the archive of Tools into dir, out of packages that apt-get downloads and nobody installs, and gives its path and
// that of the folder with the image's files.
func BuildTools(ctx context.Context, dir string) (archive, root string, err error) {
	if archive, root, err = buildTools(ctx, dir); err != nil {
		return "", "", fmt.Errorf("build image %s: %w", Tools, err)
	}
	return archive, root, nil
}

func buildTools(ctx context.Context, dir string) (archive, root string, err error) {
	debs, root := filepath.Join(dir, "debs"), filepath.Join(dir, "tools")
	for _, d := range []string{debs, root} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", "", err
		}
	}
	if err := download(ctx, debs); err != nil {
		return "", "", err
	}
	packages, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return "", "", err
	}
	for _, p := range packages {
		if _, err := command(ctx, dir, "dpkg-deb", "-x", p, root); err != nil {
			return "", "", err
		}
	}
	if err := furnish(root); err != nil {
		return "", "", err
	}
	archive = filepath.Join(dir, "tools.tar")
	return archive, root, pack(root, archive)
}

// download gets all packages that the tools need where nothing is installed.
func download(ctx context.Context, dir string) error {
	none := filepath.Join(dir, "none") // the state of a Debian without any package
	if err := os.WriteFile(none, nil, 0o644); err != nil {
		return err
	}
	try := append([]string{"apt-get", "install", "-s", "--no-install-recommends", "-o", "Dir::State::status=" + none}, toolsHas...)
	said, err := command(ctx, dir, try...)
	if err != nil { // a machine that has not asked yet which packages there are
		if _, err := command(ctx, dir, "apt-get", "update", "-q"); err != nil {
			return err
		}
		said, err = command(ctx, dir, try...)
	}
	if err != nil {
		return err
	}
	get := []string{"apt-get", "download", "-q"}
	for line := range strings.Lines(said) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "Inst" && !toolsLack.MatchString(words[1]) {
			get = append(get, words[1])
		}
	}
	_, err = command(ctx, dir, get...)
	return err
}

func command(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args[:min(len(args), 3)], " "), err, out)
	}
	return string(out), nil
}

// furnish does what the packages' own scripts would, as far as it matters, and takes away what no compiler needs.
func furnish(root string) error {
	for _, pattern := range toolsDrop {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	for _, d := range []string{"proc", "sys", "dev", "tmp", "data", "usr/lib/distcc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "data"} {
		if err := os.Chmod(filepath.Join(root, d), 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	links := map[string]string{"usr/bin/cc": "gcc", "usr/bin/awk": "mawk", "bin/sh": "bash"}
	for _, pattern := range []string{"*gcc", "*gcc-[0-9]*"} {
		compilers, err := filepath.Glob(filepath.Join(root, "usr/bin", pattern))
		if err != nil {
			return err
		}
		for _, c := range compilers { // distccd runs what is linked there, and nothing else
			links[filepath.Join("usr/lib/distcc", filepath.Base(c))] = "../../bin/distcc"
		}
	}
	for link, to := range links {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	for file, text := range map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/bash\ndev:x:65532:65532:dev:/data:/bin/bash\n",
		"group":         "root:x:0:\ndev:x:65532:\n",
		"nsswitch.conf": "hosts: files dns\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack writes a folder as an image of one layer.
func pack(root, archive string) error {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeFolder(w, root)) }()
		return r, nil
	})
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return err
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: epoch},
		Config: v1.Config{Cmd: []string{"bash"}, User: user, WorkingDir: "/data", Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(img)},
	})
	if err != nil {
		return err
	}
	tag, err := name.NewTag(Tools)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, img)
}

// writeFolder is a tar of a folder, all of it root's.
func writeFolder(to io.Writer, root string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
		if h.Name, err = filepath.Rel(root, path); err != nil {
			return err
		}
		h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime = 0, 0, "", "", epoch
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
