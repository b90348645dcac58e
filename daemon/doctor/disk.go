package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kith.dev/core/api"
)

// Space is what a file system has.
type Space struct {
	Path        string
	Free, Total uint64  // bytes
	Inodes      float64 // part of the inodes that is free, 0 to 1; 1 where there are no inodes to run out of
}

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

// The engine ends pods when 2 % of the space or 1 % of the inodes are left; an image easily takes 500 MB.
const (
	fullPart, tightPart     = 0.02, 0.05
	fullBytes, tightBytes   = 200 << 20, 2 << 30
	fullInodes, tightInodes = 0.01, 0.03
)

// Trouble says whether there is too little (CheckFail), soon too little (CheckWarning), or enough, and why.
func (s Space) Trouble() (api.CheckState, string) {
	part := 1.0
	if s.Total > 0 {
		part = float64(s.Free) / float64(s.Total)
	}
	switch {
	case part < fullPart || s.Free < fullBytes:
		return api.CheckFail, "below 2 % the engine ends pods, and nothing can be written soon"
	case s.Inodes < fullInodes:
		return api.CheckFail, "it has no inodes left for more files"
	case part < tightPart || s.Free < tightBytes:
		return api.CheckWarning, "images of pods need room; below 2 % the engine ends pods"
	case s.Inodes < tightInodes:
		return api.CheckWarning, fmt.Sprintf("only %.0f %% of its inodes are free", 100*s.Inodes)
	}
	return api.CheckOK, ""
}

func (s Space) String() string {
	return fmt.Sprintf("the disk of %s has %s free of %s", s.Path, bytesOf(s.Free), bytesOf(s.Total))
}

func bytesOf(n uint64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}

func (m Machine) disk(_ context.Context, report func(api.Finding)) {
	in := about{area: api.AreaDisk}
	space, err := SpaceAt(m.DataDir)
	if err != nil {
		report(in.warn("space", "it is not known how much room "+m.DataDir+" has", err.Error(), "see whether dataDir can be read: ls -ld "+m.DataDir))
		return
	}
	const do = "remove what is not needed, or move dataDir to a larger disk"
	switch state, why := space.Trouble(); state {
	case api.CheckOK:
		report(in.ok("space", "%s", space))
	case api.CheckWarning:
		report(in.warn("space", space.String(), why, do))
	default:
		report(in.fail("space", space.String(), why, do))
	}
}
