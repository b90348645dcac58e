//go:build linux

// Package treetest lists what a folder has, so that two can be compared, and fills one with whatever a file system knows. Tests alone use it.
package treetest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// List gives a line for each name in a folder, in their order, with all that belongs to it: type and mode, owner, time of the last change, content,
// target, extended attributes. Names of one file have its number in that order.
func List(root string) (all []string, err error) {
	inodes := map[uint64]int{}
	buffer := make([]byte, 64<<10)
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d %d.%09d", name, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if _, ok := inodes[st.Ino]; !ok {
				inodes[st.Ino] = len(inodes)
			}
			sum, err := sumOf(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" #%d of %d, %d bytes %x", inodes[st.Ino], st.Nlink, st.Size, sum)
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		n, err := unix.Llistxattr(path, buffer)
		if err != nil {
			return err
		}
		names := strings.Split(strings.TrimSuffix(string(buffer[:n]), "\x00"), "\x00")
		slices.Sort(names)
		for _, name := range names {
			if strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_") || name == "security.capability" {
				n, err := unix.Lgetxattr(path, name, buffer)
				if err != nil {
					return err
				}
				line += fmt.Sprintf(" %s=%x", name, buffer[:n])
			}
		}
		all = append(all, line)
		return nil
	})
	return all, err
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// Differ tells where two lists differ first; "" where they do not.
func Differ(a, b []string) string {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("entry %d of %d and %d differs:\n%s\n--\n%s", i, len(a), len(b), strings.Join(a[min(i, len(a)):min(i+3, len(a))], "\n"), strings.Join(b[min(i, len(b)):min(i+3, len(b))], "\n"))
		}
	}
	return ""
}

// Fill makes so many small files of so many bytes together, and one of everything else: a large file that is mostly a hole, links of both kinds, a fifo,
// extended attributes, an ACL, owners, modes and times.
func Fill(root string, files int, bytes int64, seed byte) error {
	size := int(bytes / int64(max(files, 1)))
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i*7) ^ seed
	}
	var errs []error
	do := func(err error) {
		if err != nil && len(errs) < 5 {
			errs = append(errs, err)
		}
	}
	at := func(name string) string { return filepath.Join(root, name) }
	for i := range files {
		if i%200 == 0 {
			do(os.MkdirAll(at(fmt.Sprintf("many/%d", i/200)), 0o755))
		}
		if size > 8 {
			copy(content, fmt.Sprintf("%08d", i))
		}
		do(os.WriteFile(at(fmt.Sprintf("many/%d/%d", i/200, i)), content, 0o644))
	}
	hole, err := os.Create(at("hole"))
	do(err)
	if err == nil {
		_, err = hole.WriteAt([]byte("in the middle"), 3<<30)
		do(errors.Join(err, hole.Truncate(5<<30), hole.Close()))
	}
	do(os.WriteFile(at("one"), []byte("of three names"), 0o600))
	do(os.Link(at("one"), at("two")))
	do(os.Link(at("one"), at("many/three")))
	do(os.Symlink("../one", at("many/symlink")))
	do(unix.Mkfifo(at("fifo"), 0o640))
	do(unix.Setxattr(at("one"), "user.colour", []byte("blue"), 0))
	// user::rw- user:1234:r-- group::r-- mask::r-- other::---
	acl := []byte{2, 0, 0, 0}
	for _, e := range [][3]uint32{{1, 6, 1<<32 - 1}, {2, 4, 1234}, {4, 4, 1<<32 - 1}, {16, 4, 1<<32 - 1}, {32, 0, 1<<32 - 1}} {
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
		acl = binary.LittleEndian.AppendUint32(acl, e[2])
	}
	do(unix.Setxattr(at("hole"), "system.posix_acl_access", acl, 0))
	do(os.Chown(at("one"), 1001, 65534))
	do(os.Chmod(at("many/0"), 0o2750))
	when := time.Unix(1e9, 123456789)
	do(os.Chtimes(at("one"), when, when))
	return errors.Join(errs...)
}
