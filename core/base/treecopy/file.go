//go:build linux

package treecopy

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openFolder opens a folder that no symbolic link stands for.
func openFolder(at int, name string) (*os.File, error) {
	return openFile(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// openFile opens what is in a folder; never what a symbolic link leads to, and a fifo does not keep it waiting.
func openFile(at int, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// fdPath names an open file for calls that take paths, such as those for extended attributes of symbolic links.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

func join(path []string) string { return strings.Join(path, "/") }

// xattrs reads the extended attributes that are copied. at is the path of an open file, or of a name in an open folder; buffer has xattrMost bytes.
func xattrs(at string, buffer []byte) (all []xattr, err error) {
	listed, get := unix.Llistxattr, unix.Lgetxattr
	if !strings.Contains(strings.TrimPrefix(at, "/proc/self/fd/"), "/") { // the link to an open file is followed
		listed, get = unix.Listxattr, unix.Getxattr
	}
	n, err := listed(at, buffer)
	switch {
	case errors.Is(err, unix.ENOTSUP) || n == 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	sum := 0
	for name := range strings.SplitSeq(string(buffer[:n]), "\x00") {
		if !travels(name) {
			continue
		}
		n, err := get(at, name, buffer)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sum += n; sum > xattrMost || len(all) == xattrsAll {
			return nil, errors.New("more than is copied of one file")
		}
		all = append(all, xattr{name, bytes.Clone(buffer[:n])})
	}
	return all, nil
}

// data tells where after from the next data of a file begins, and where that ends; all of it is data where the file system cannot tell.
func data(f *os.File, from, size int64) (next, hole int64) {
	next, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size
	}
	if err != nil {
		return from, size
	}
	hole, err = unix.Seek(int(f.Fd()), next, unix.SEEK_HOLE)
	if err != nil || hole <= next {
		return next, size
	}
	return next, hole
}

var nothing [blockSize]byte

func isZero(b []byte) bool { return bytes.Equal(b, nothing[:len(b)]) }
