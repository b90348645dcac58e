// Package logfile is a log in a file that does not grow without end: when it is full it becomes kithd.log.1, in the place of the one before,
// and begins anew. It is for systems whose service manager keeps no log, which is a Mac's launchd.
package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Full is how large a file may be, in bytes: some weeks of a laptop.
const Full = 8 << 20

// File is an io.Writer for one process. It is safe for concurrent use.
type File struct {
	path string
	full int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// Open opens the log at path, or makes it with its directory, for its owner alone.
func Open(path string, full int64) (*File, error) {
	f := &File{path: path, full: full}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write adds one record, which is never split over two files.
func (f *File) Write(record []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(record)) > f.full {
		// What cannot be renamed goes on to grow: a long log is better than none.
		if os.Rename(f.path, f.path+".1") == nil {
			full := f.file
			if f.open() == nil {
				full.Close()
			}
		}
	}
	n, err := f.file.Write(record)
	f.size += int64(n)
	return n, err
}

// Close closes it.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
