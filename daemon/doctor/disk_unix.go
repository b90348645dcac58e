//go:build linux || darwin

package doctor

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SpaceAt asks for the file system that path is on, or will be once it is made.
func SpaceAt(path string) (Space, error) {
	var st unix.Statfs_t
	for at := path; ; at = filepath.Dir(at) {
		err := unix.Statfs(at, &st)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil {
			return Space{}, &fs.PathError{Op: "statfs", Path: at, Err: err}
		}
		break
	}
	s := Space{Path: path, Free: st.Bavail * uint64(st.Bsize), Total: st.Blocks * uint64(st.Bsize), Inodes: 1}
	if st.Files > 0 {
		s.Inodes = float64(st.Ffree) / float64(st.Files)
	}
	return s, nil
}
