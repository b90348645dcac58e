// Command macos makes what a Mac installs: the tree of the disk image with Kith.app in it, and the image of a tree that xorriso wrote.
// scripts/dmg.sh calls it; it runs on any system, and gives the same bytes for the same input.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kith.dev/packaging/macos/app"
	"kith.dev/packaging/macos/udzo"
)

const usage = `usage: macos tree VERSION BIN DIR   write the tree of the disk image to DIR, of BIN/darwin-amd64 and BIN/darwin-arm64
       macos pack DISK IMAGE        compress the HFS+ volume on a disk of xorriso's into IMAGE
       macos unpack IMAGE VOLUME    the volume of an image, its checksums looked at
       macos check DIR              whether the Kith.app in DIR is whole and its signatures are right`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "macos:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "tree":
		return tree(args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "pack":
		return pack(args[1], args[2])
	case len(args) == 3 && args[0] == "unpack":
		return unpack(args[1], args[2])
	case len(args) == 2 && args[0] == "check":
		b, err := read(filepath.Join(args[1], bundle))
		if err == nil {
			err = app.Check(b)
		}
		return err
	}
	return fmt.Errorf("%s", usage)
}

const bundle = "Kith.app"

// tree writes Kith.app, the link to Applications and what Finder shows behind them.
func tree(version, bin, dir string) error {
	var pngs [][]byte
	for _, size := range []string{"128", "256", "512"} {
		p, err := os.ReadFile("assets/icon/png/kith-" + size + ".png")
		if err != nil {
			return err
		}
		pngs = append(pngs, p)
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	thin := func(program, arch string) ([]byte, error) {
		return os.ReadFile(filepath.Join(bin, "darwin-"+arch, program))
	}
	b, err := app.Make(version, thin, pngs, license)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for path, content := range b {
		if err := put(filepath.Join(dir, bundle, path), content, app.Mode(path)); err != nil {
			return err
		}
	}
	background, err := os.ReadFile("packaging/macos/background.png")
	if err != nil {
		return err
	}
	if err := put(filepath.Join(dir, ".background", "background.png"), background, 0o644); err != nil {
		return err
	}
	return os.Symlink("/Applications", filepath.Join(dir, "Applications"))
}

func put(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask
}

func pack(disk, image string) error {
	b, err := os.ReadFile(disk)
	if err == nil {
		b, err = volume(b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", disk, err)
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := udzo.Write(f, b); err != nil {
		return err
	}
	return f.Close()
}

func unpack(image, disk string) error {
	b, err := os.ReadFile(image)
	if err == nil {
		b, err = udzo.Read(b)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(disk, b, 0o644)
}

// read reads a bundle from a directory.
func read(dir string) (app.Bundle, error) {
	b := app.Bundle{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type() != 0 {
			return fmt.Errorf("%s is no plain file", path)
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator)))
		b[name], err = os.ReadFile(path)
		return err
	})
	return b, err
}
