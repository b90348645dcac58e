package api

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"strings"
	"time"
)

// BugReportFolder is the folder in a bug report that all its files are in.
const BugReportFolder = "kith-bugreport/"

// BugReportFile is a file of a bug report.
type BugReportFile struct {
	Name string // below BugReportFolder
	Size int64  // bytes
}

// BugReportFiles lists what is in a bug report. It reads all of it, so that a broken one is an error.
func BugReportFiles(archive io.Reader) (files []BugReportFile, err error) {
	broken := func(err error) error {
		return &Error{Code: CodeInternal, Message: "the bug report is broken", Reason: err.Error(), Do: "try again; the log of kithd says what went wrong"}
	}
	packed, err := gzip.NewReader(archive)
	if err != nil {
		return nil, broken(err)
	}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, broken(err)
		}
		files = append(files, BugReportFile{strings.TrimPrefix(path.Clean(h.Name), BugReportFolder), h.Size})
	}
}

// BugReportName is what the file of a report made at a time is called.
func BugReportName(at time.Time) string {
	return "kith-bugreport-" + at.Format("20060102-150405") + ".tar.gz"
}
