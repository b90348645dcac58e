package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Ask says which context goes into which files.
type Ask struct {
	Files   []string // as Files gives them
	Access  []byte   // a kubeconfig of kithd; its current context is merged
	Context string   // its new name; "" is Name
	Use     bool     // make it the current context
}

// Plan is what would be done to one file. Nothing is changed before Write.
type Plan struct {
	Path     string // of the file, as the person named it
	Link     string // where that leads; "" if it is no link
	Context  string // that it will have
	Replaces bool   // it has an older one of Kith's, which is replaced
	New      bool   // there is no such file yet
	Current  string // the current context of all files before; "" is none
	Uses     bool   // the context becomes the current one: it was asked for, or there is none

	before, after []byte
}

// Files returns the kubeconfigs that kubectl reads, in its order of precedence: those of $KUBECONFIG, else ~/.kube/config.
func Files(getenv func(string) string) []string {
	var list []string
	seen := map[string]bool{}
	for _, path := range filepath.SplitList(getenv("KUBECONFIG")) {
		if path != "" && !seen[path] {
			seen[path] = true
			list = append(list, path)
		}
	}
	if len(list) == 0 && getenv("HOME") != "" {
		list = []string{filepath.Join(getenv("HOME"), ".kube", "config")}
	}
	return list
}

// Make plans to put the context into the file in which it is already, or into the one that kubectl would write to: the first that there
// is, else the last.
func Make(ask Ask) (Plan, error) {
	if ask.Context == "" {
		ask.Context = Name
	}
	if len(ask.Files) == 0 {
		return Plan{}, errors.New("where your kubeconfig is, is not known: neither $KUBECONFIG nor $HOME is set")
	}
	a, err := accessOf(ask.Access)
	if err != nil {
		return Plan{}, fmt.Errorf("the kubeconfig that kithd gave is of no use: %w", err)
	}
	p := Plan{Context: ask.Context}
	var target *config
	currentIn, firstThere := "", ""
	var first, last *config
	texts := map[string][]byte{}
	for _, path := range ask.Files {
		text, err := read(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Plan{}, err
		}
		there := err == nil
		c, err := parse(text)
		if err != nil {
			return Plan{}, fmt.Errorf("%s is no kubeconfig that Kith understands, and was not changed: %w", path, err)
		}
		if what := c.foreign(ask.Context, a.server); what != "" {
			return Plan{}, fmt.Errorf("there is a %s named %s already that is not Kith's, in %s: nothing was changed; choose another name with `kith kubeconfig --merge --context NAME`",
				what, ask.Context, path)
		}
		if c.has(ask.Context) {
			if p.Replaces {
				return Plan{}, fmt.Errorf("both %s and %s have entries named %s, and nothing was changed: remove them from one of the two", p.Path, path, ask.Context)
			}
			p.Replaces, p.Path, target = true, path, c
		}
		if there && first == nil {
			first, firstThere = c, path
		}
		if p.Current == "" && c.current() != "" {
			p.Current, currentIn = c.current(), path
		}
		texts[path], last = text, c
	}
	if target == nil {
		if target, p.Path = first, firstThere; target == nil {
			target, p.Path = last, ask.Files[len(ask.Files)-1]
		}
	}
	p.New = firstThere == ""
	p.Uses = p.Current == "" || ask.Use && p.Current != ask.Context
	if p.Uses && currentIn != "" && currentIn != p.Path {
		return Plan{}, fmt.Errorf("the current context is said in %s, and %s goes into %s: merge it without making it the current one, and then `kubectl config use-context %s`",
			currentIn, ask.Context, p.Path, ask.Context)
	}
	if to, err := filepath.EvalSymlinks(p.Path); err == nil {
		if info, err := os.Lstat(p.Path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			p.Link = to
		}
	}
	target.merge(a, ask.Context, p.Uses)
	p.before = texts[p.Path]
	if p.after, err = target.bytes(); err == nil {
		err = keeps(p.before, p.after, ask.Context)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("%s would not be the same but for %s, and was not changed: %w", p.Path, ask.Context, err)
	}
	return p, nil
}

// Same reports whether another plan does to the same file what this one says, whatever else is in it by now. Whether the context becomes
// the current one is not compared: that is asked for.
func (p Plan) Same(o Plan) bool {
	return p.Path == o.Path && p.Link == o.Link && p.Context == o.Context && p.Replaces == o.Replaces && p.New == o.New && p.Current == o.Current
}

// read returns the content of a regular file that is not too large to be a kubeconfig.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if link, linkErr := os.Readlink(path); linkErr == nil {
			return nil, fmt.Errorf("%s is a link to %s, which is not there: nothing was changed", path, link)
		}
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("your kubeconfig cannot be read, and was not changed: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file, and was not changed", path)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, which is no kubeconfig, and was not changed", path, info.Size())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("your kubeconfig cannot be read, and was not changed: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("your kubeconfig cannot be read, and was not changed: %w", err)
	}
	return text, nil
}

// Backup is where Write keeps the file as it was before.
func (p Plan) Backup() string { return p.Path + ".before-" + Name }

// Write does what was planned: the file is the old one or the new one at every moment, it is its owner's and nobody else reads it. The file
// as it was is kept in backup, "" if there was none. A link stays one: what it leads to is written. A file that its owner made
// read-only, or that is somebody else's, is left alone.
func (p Plan) Write() (backup string, err error) {
	dir := filepath.Dir(p.Path)
	if err := makeDir(dir); err != nil {
		return "", fmt.Errorf("write your kubeconfig: %w", err)
	}
	// kubectl takes the same lock.
	lock, err := os.OpenFile(p.Path+".lock", os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("another program is writing %s: try again; if none is, remove %s.lock", p.Path, p.Path)
	} else if err != nil {
		return "", fmt.Errorf("write your kubeconfig: %w", err)
	}
	defer os.Remove(p.Path + ".lock")
	defer lock.Close()
	now, err := read(p.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return "", err
	}
	if missing != p.New || !bytes.Equal(now, p.before) {
		return "", fmt.Errorf("%s was changed meanwhile, and was left as it is: try again", p.Path)
	}
	if missing {
		return "", p.put(p.Path, dir)
	}
	to, err := filepath.EvalSymlinks(p.Path)
	if err != nil {
		return "", fmt.Errorf("write your kubeconfig: %w", err)
	}
	info, err := os.Stat(to)
	if err == nil {
		err = kept(info, os.Geteuid())
	}
	if err != nil {
		return "", fmt.Errorf("%s %w: it was left as it is", p.Path, err)
	}
	if err := replace(p.Backup(), to, p.before); err != nil {
		return "", fmt.Errorf("keep your kubeconfig as it was, and nothing was changed: %w", err)
	}
	return p.Backup(), p.put(to, to)
}

func (p Plan) put(path, like string) error {
	if err := replace(path, like, p.after); err != nil {
		return fmt.Errorf("write your kubeconfig: %w", err)
	}
	return nil
}

// makeDir makes a directory that belongs to the owner of its parent: under sudo -E a ~/.kube of root's would lock its user out.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if err := makeDir(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if uid, gid := owner(above); os.Geteuid() == 0 && (uid > 0 || gid > 0) {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

// owner returns the user ID of a file's owner; -1 if it is not known.
func owner(path string) (uid, gid int) {
	if info, err := os.Stat(path); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			return int(s.Uid), int(s.Gid)
		}
	}
	return -1, -1
}

// kept says why the user with the given ID must not replace a file: the new file would belong to that user and be writable.
func kept(info fs.FileInfo, euid int) error {
	if info.Mode()&0o200 == 0 {
		return errors.New("is read-only")
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && euid != 0 && int(s.Uid) != euid {
		return fmt.Errorf("belongs to another user, number %d", s.Uid)
	}
	return nil
}

// replace writes a file with mode 0600 in one step. Where root writes, the file gets the owner of like, a file or a directory.
func replace(path, like string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".kith-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if uid, gid := owner(like); os.Geteuid() == 0 && (uid > 0 || gid > 0) {
		if err := f.Chown(uid, gid); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
