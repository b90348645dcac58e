package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// tarTool is as much of tar as kubectl cp asks for: "tar cf - PATH…", "tar xmf - -C DIR", and their usual variants.
// -m (do not restore times) is taken and done: it never restores them. Neither does it restore owners.
func tarTool(args []string) error {
	o, err := parseTar(args)
	if err != nil {
		return err
	}
	if o.create {
		return o.write(os.Stdout)
	}
	return o.read(os.Stdin)
}

type tarOptions struct {
	create, extract bool
	archive         string
	dir             string
	paths           []string
}

// parseTar takes the bundled form (cf), dashed or not, and long options as kubectl sends them
// (--no-same-permissions, --no-same-owner), which are how it works anyway.
func parseTar(args []string) (tarOptions, error) {
	o := tarOptions{dir: "."}
	for i := 0; i < len(args); i++ {
		a := args[i]
		value := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch {
		case a == "-C" || a == "--directory":
			o.dir = value()
		case a == "--no-same-permissions" || a == "--no-same-owner":
		case i == 0 || strings.HasPrefix(a, "-") && a != "-":
			for _, f := range strings.TrimPrefix(a, "-") {
				switch f {
				case 'c':
					o.create = true
				case 'x':
					o.extract = true
				case 'f':
					o.archive = value()
				case 'm', 'p', 'v':
				default:
					return o, fmt.Errorf("option -%c is not known", f)
				}
			}
		default:
			o.paths = append(o.paths, a)
		}
	}
	switch {
	case o.create == o.extract:
		return o, errors.New("use either c or x")
	case o.archive != "-":
		return o, errors.New("only archive - is known")
	case o.create && len(o.paths) == 0:
		return o, errors.New("nothing to put in")
	case o.dir == "":
		return o, errors.New("-C needs a directory")
	}
	return o, nil
}

func (o tarOptions) write(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, p := range o.paths {
		top := p
		if !filepath.IsAbs(p) {
			top = filepath.Join(o.dir, p)
		}
		err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(top, file)
			if err != nil {
				return err
			}
			return addFile(w, file, strings.TrimPrefix(path.Join(filepath.ToSlash(p), rel), "/"), d)
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func addFile(w *tar.Writer, file, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(file); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	if d.IsDir() {
		h.Name += "/"
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, h.Size) // no more than the header says, should the file grow
	return err
}

// read extracts below o.dir and never outside: an archive may come from anywhere.
func (o tarOptions) read(from io.Reader) error {
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extract(root, h, r); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	name := strings.TrimPrefix(path.Clean(h.Name), "/")
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, fs.FileMode(h.Mode).Perm())
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode).Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	}
	return nil // devices and the like: kubectl cp sends none
}
