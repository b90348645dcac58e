package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"
)

// A copy leaves the disk the room that others' volumes are to hold. Until there is some the volume stays with its pods, and the claim says why.
func TestAVolumeIsNotCopiedWhereTheDiskWouldBeFull(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	if err := unix.Mount("small", f.root, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(f.root, unix.MNT_DETACH)
	pv, data := guestsVolume(t, f)
	is := growing(pv)
	g := newGrower(f, pv, is)
	path := filepath.Dir(data)
	piece := bytes.Repeat([]byte("x"), 1<<20)
	word, err := os.Create(filepath.Join(data, "word"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = word.Write(bytes.Repeat(piece, 8))
	if err := errors.Join(err, word.Sync(), word.Close(), lengthen(path, 64<<20)); err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(f.root, "others")
	if err := os.WriteFile(others, bytes.Repeat(piece, 46), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.between(t.Context(), is); err == nil || errors.Is(err, errInUse) || !strings.Contains(err.Error(), "make room there") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(filepath.Join(data, "word")); err != nil {
		t.Errorf("it is taken from its pods: %v", err)
	}
	if left, err := filepath.Glob(path + halfSuffix + "*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	if err := g.between(t.Context(), is); err != nil || g.grown[cache.MetaObjectToName(is)] != 64<<20 {
		t.Errorf("with room it grows to %d, %v", g.grown[cache.MetaObjectToName(is)], err)
	}
}

// While a volume is copied, which takes as long as it is large, those of others are made, and nobody mounts or removes this one, nor copies a second.
func TestACopyHoldsUpNobodyElse(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	pv, data := guestsVolume(t, f)
	is := growing(pv)
	g := newGrower(f, pv, is)
	path, bin := filepath.Dir(data), t.TempDir()
	if err := lengthen(path, 64<<20); err != nil {
		t.Fatal(err)
	}
	cp, err := exec.LookPath("cp")
	if err != nil {
		t.Fatal(err)
	}
	slow := fmt.Sprintf("#!/bin/sh\n: > %[1]s/begun\nuntil [ -e %[1]s/go ]; do sleep 0.01; done\nexec %[2]s \"$@\"\n", bin, cp)
	if err := os.WriteFile(filepath.Join(bin, "cp"), []byte(slow), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	meanwhile := withMounts(func() (err error) {
		defer func() { err = errors.Join(err, os.WriteFile(filepath.Join(bin, "go"), nil, 0o600)) }()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Lstat(filepath.Join(bin, "begun")); err == nil {
				break
			}
			if time.Now().After(end) {
				return errors.New("no copy began")
			}
		}
		if !f.images.TryLock() {
			return errors.New("no other volume could be made")
		}
		f.images.Unlock()
		if g.copies.TryLock() {
			g.copies.Unlock()
			return errors.New("a second copy could begin")
		}
		if err := f.Delete(t.Context(), pv); err == nil || !strings.Contains(err.Error(), "removed after that") {
			return fmt.Errorf("removed while it is copied: %w", err)
		}
		if err := g.enlarge(cache.ObjectName{Namespace: "other", Name: "data"}, path, 96<<20); !errors.Is(err, errInUse) {
			return fmt.Errorf("made larger where it is mounted, which it is not: %w", err)
		}
		if mounted, err := isMount(path); mounted || err != nil {
			return fmt.Errorf("mounted while it is copied: %v, %w", mounted, err)
		}
		return nil
	})
	if err := g.between(t.Context(), is); err != nil {
		t.Error(err)
	}
	if err := <-meanwhile; err != nil {
		t.Fatal(err)
	}
	if size := g.grown[cache.MetaObjectToName(is)]; size < 64<<20 {
		t.Errorf("it has grown to %d", size)
	}
	if err := f.Delete(t.Context(), pv); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(f.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
