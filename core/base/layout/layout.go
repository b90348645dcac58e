// Package layout keeps a Kith from what a newer one stored. Each folder that outlives its program has a file in it, `version`,
// which says in what form the folder is and who wrote it last. kithd has one in its data directory, kith-k8s one in its own, and
// both look before they touch anything else.
//
// The file has lines KEY=VALUE, as os-release(5) has, so that a package's script can read it while no Kith is installed
// (packaging/check-data.sh). Lines and keys that are not known are left alone: what an older Kith must know is in the layout's number.
//
// It must never guess: a file that it cannot read is a reason not to start.
package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kith.dev/core/base/durable"
)

const (
	// Current is the form in which this Kith keeps its folders (docs/upgrade.md has what is in them). It is raised when what an older
	// Kith would do there does harm; what it would merely not use does not raise it.
	Current = 1
	// File is the name of the file in its folder.
	File = "version"
	// Engine is the folder of the built-in Kubernetes in kithd's data directory.
	Engine = "k8s"
)

// unmarked is the Kubernetes of all Kiths that wrote no such file.
const unmarked = "1.36"

const maxFile = 4 << 10

// Version is what wrote, or is about to write, into a folder.
type Version struct {
	Layout     int
	Kith       string // such as v0.12.0, for people
	Kubernetes string // its minor version, such as 1.36; "" where it is not known or there is none
}

// A Refusal is why a Kith must not start on a folder: one or two sentences that end with what to do.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Check returns a *Refusal when a program of version mine must not start on dir. It changes nothing. A folder that is empty, or not there,
// is free for all.
func Check(dir string, mine Version) error {
	last, err := read(dir)
	if err != nil || last == nil {
		return err
	}
	return decide(dir, mine, *last)
}

// Start is Check, and notes in dir, which is made if need be, that a program of version mine writes there from now on. Call it before
// anything else is written.
func Start(dir string, mine Version) error {
	last, err := read(dir)
	if err != nil {
		return err
	}
	if last != nil {
		if err := decide(dir, mine, *last); err != nil {
			return err
		}
		if mine.Kubernetes == "" {
			mine.Kubernetes = last.Kubernetes // a build by hand does not know it
		}
		if *last == mine && exists(filepath.Join(dir, File)) {
			return nil
		}
	}
	if err := write(dir, mine); err != nil && !errors.Is(err, unix.ENOSPC) { // on a full disk what runs goes on, and the next start notes it
		return fmt.Errorf("note the version in %s: %w", dir, err)
	}
	return nil
}

// CheckAll is Check of kithd's data directory and of the folder of the built-in Kubernetes in it.
func CheckAll(dataDir string, mine Version) error {
	if err := Check(dataDir, Version{Layout: mine.Layout, Kith: mine.Kith}); err != nil {
		return err
	}
	return Check(filepath.Join(dataDir, Engine), mine)
}

// decide has the rules: a layout is read by those who know it, and Kubernetes never goes back a minor version nor over one, as upstream
// has it for API servers (kubernetes.io/releases/version-skew-policy).
func decide(dir string, mine, last Version) error {
	if last.Layout > mine.Layout {
		return refuse("%s was written by a newer Kith, %s, in a layout of number %d; this is %s, which knows those up to %d. "+
			"Nothing was changed: install Kith %[2]s or a newer one again, or move the folder away to begin with a new identity and an empty cluster",
			dir, named(last.Kith), last.Layout, named(mine.Kith), mine.Layout)
	}
	if mine.Kubernetes == "" || last.Kubernetes == "" {
		return nil
	}
	ours, err := minor(mine.Kubernetes)
	if err != nil {
		return err
	}
	theirs, err := minor(last.Kubernetes)
	if err != nil {
		return damaged(filepath.Join(dir, File), err)
	}
	switch {
	case ours < theirs:
		return refuse("the cluster in %s was written by Kubernetes %s (Kith %s), and this is Kubernetes %s (Kith %s): Kubernetes does not go back to an "+
			"older minor version. Nothing was changed: install a Kith with Kubernetes %[2]s or the one after it",
			dir, last.Kubernetes, named(last.Kith), mine.Kubernetes, named(mine.Kith))
	case ours > theirs+1:
		return refuse("the cluster in %s was written by Kubernetes %s (Kith %s), and this is Kubernetes %s (Kith %s): Kubernetes goes up one minor version at a "+
			"time. Nothing was changed: install a Kith with Kubernetes 1.%d first, wait until `kith status` says ready, and install this one then",
			dir, last.Kubernetes, named(last.Kith), mine.Kubernetes, named(mine.Kith), theirs+1)
	}
	return nil
}

func named(kith string) string {
	if kith == "" {
		return "of an unknown version"
	}
	return kith
}

// Minor is the minor version of a Kubernetes: 1.36 of v1.36.3; "" of what is no version.
func Minor(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return ""
	}
	text := parts[0] + "." + parts[1]
	if _, err := minor(text); err != nil {
		return ""
	}
	return text
}

func minor(text string) (int, error) {
	digits, one := strings.CutPrefix(text, "1.")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !one || err != nil {
		return 0, fmt.Errorf("%.40q is no minor version of Kubernetes such as 1.36", text)
	}
	return int(n), nil
}

// read gives nil for a folder in which nothing is yet.
func read(dir string) (*Version, error) {
	path := filepath.Join(dir, File)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if exists(filepath.Join(dir, "db", "state.db")) { // of an engine from before there were such files
			return &Version{Layout: 1, Kubernetes: unmarked}, nil
		}
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read which Kith wrote last: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, damaged(path, err)
	}
	v, err := parse(string(text))
	if err != nil {
		return nil, damaged(path, err)
	}
	return &v, nil
}

func damaged(path string, err error) error {
	return refuse("%s, which says which Kith wrote there last, is damaged: %v. Nothing was changed: bring it back from a backup, "+
		"or delete it if no newer Kith than this one has run here", path, err)
}

func parse(text string) (v Version, err error) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "LAYOUT":
			if v.Layout, err = strconv.Atoi(value); err != nil || v.Layout < 1 {
				return v, fmt.Errorf("LAYOUT is %.40q, and should be a number", value)
			}
		case "KITH":
			v.Kith = printable(value)
		case "KUBERNETES":
			if v.Kubernetes = value; value != "" {
				if _, err := minor(value); err != nil {
					return v, err
				}
			}
		}
	}
	if v.Layout == 0 {
		return v, errors.New("it has no LAYOUT")
	}
	return v, nil
}

// printable is a version as it may stand in a line of a log.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), 80)])
}

// write is atomic and on the disk when it returns.
func write(dir string, v Version) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf("# Who wrote this folder last. Kith reads it first, and does not start on what a newer one wrote.\nLAYOUT=%d\nKITH=%s\n", v.Layout, printable(v.Kith))
	if v.Kubernetes != "" {
		text += "KUBERNETES=" + v.Kubernetes + "\n"
	}
	return durable.WriteFile(filepath.Join(dir, File), []byte(text), 0o644)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
