// Package durable writes small files that must be whole at every moment, also after a loss of power: keys, journals, notes of what was
// decided.
//
// It must never know what is in a file. Consistency between several files is up to the callers.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WriteFile puts data into a file in one step: whoever reads it, whenever, reads the former content or all of the new one, which is on the
// disk when this returns. While it is written there is a hidden file beside it, whose name ends in a number.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600 until all is in it
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Remove removes a file, and it is gone from the disk when this returns. One that is not there is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir writes the entries of a directory to the disk (fsync(2)). A directory that does not exist is no error.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // not every file system has it
		return err
	}
	return nil
}
