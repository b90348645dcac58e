package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// record is what the pid file holds.
type record struct {
	PID         int    `json:"pid"`
	Born        string `json:"born"`        // see birth
	Fingerprint string `json:"fingerprint"` // of program and arguments
}

// readRecord returns the running process of the pid file, or nil if there is none.
func readRecord(path string) (*process, record) {
	var r record
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &r) != nil {
		return nil, record{}
	}
	p, err := openProcess(r.PID, r.Born)
	if err != nil {
		return nil, record{}
	}
	return p, r
}

// writeRecord replaces the pid file in one step.
func writeRecord(path string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// lockFile keeps two supervisors from looking after one engine.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another kithd looks after the engine in %s; stop it first", filepath.Dir(path))
	}
	return f, nil
}
