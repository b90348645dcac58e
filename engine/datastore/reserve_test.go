package datastore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
)

// A disk that is full to the last byte: what is written next is written, with the room that was kept for that.
func TestFullDiskCostsTheReserve(t *testing.T) {
	disk := smallDisk(t)
	s := &Store{reserve: newReserve(disk, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), writers: &sync.WaitGroup{}}
	ctx := t.Context()
	backend, err := s.open(ctx, filepath.Join(disk, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	if held, err := s.reserve.take(); !held || err != nil {
		t.Fatalf("held %v: %v", held, err)
	}
	fill(t, filepath.Join(disk, "filler"))
	if held, err := newReserve(disk, s.reserve.log).take(); !held || err != nil {
		t.Errorf("another start does not find the reserve: %v %v", held, err)
	}
	for i := 0; ; i++ { // the log in front of the database has some room of its own
		if _, err := backend.Create(ctx, fmt.Sprint("/registry/", i), make([]byte, 16<<10), 0); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		if _, err := os.Stat(s.reserve.file); err != nil {
			break
		}
	}
	if held, err := s.reserve.take(); held || err != nil {
		t.Errorf("a reserve on a full disk: %v %v", held, err)
	}
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	if held, err := s.reserve.take(); !held || err != nil {
		t.Errorf("there is room again, and no reserve: %v %v", held, err)
	}
}

// Upkeep that finds no room, and no reserve either, ends neither the process nor what is stored, and goes on when there is room.
func TestUpkeepOutlivesAFullDisk(t *testing.T) {
	disk := smallDisk(t)
	b := open(t, filepath.Join(disk, "state.db"))
	ctx := t.Context()
	for i := range 2 * retained {
		key := fmt.Sprint("/registry/things/", i/2)
		rev, err := b.Create(ctx, key, []byte(key), 0)
		if err == nil {
			_, _, _, err = b.Update(ctx, key, []byte(key+" again"), rev, 0)
		} else if errors.Is(err, server.ErrKeyExists) {
			_, _, _, err = b.Delete(ctx, key, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := contents(t, b)
	fill(t, filepath.Join(disk, "filler"))
	for i := 0; ; i++ { // the log has some room of its own
		key := fmt.Sprint("/registry/late/", i)
		if _, err := b.Create(ctx, key, make([]byte, 16<<10), 0); err != nil {
			break
		}
		want[key] = string(make([]byte, 16<<10))
	}
	now, err := b.CurrentRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Compact(ctx, now); err == nil {
		t.Error("it compacted without room")
	}
	compare(t, contents(t, b), want)
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Compact(ctx, now); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	compare(t, contents(t, b), want)
	check(t, b.upkeep.db)
}

// smallDisk mounts one of 32 MB until the test ends.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk takes root")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=32m"); err != nil {
		t.Skip("mounting a small disk: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk
}

func TestReserveFitsTheDisk(t *testing.T) {
	r := newReserve(t.TempDir(), slog.New(slog.DiscardHandler))
	if held, err := r.take(); !held || err != nil {
		t.Skipf("held %v: %v", held, err)
	}
	if err := os.Truncate(r.file, reserveMax+1); err != nil {
		t.Fatal(err)
	}
	if held, err := r.take(); !held || err != nil {
		t.Errorf("held %v: %v", held, err)
	}
	if info, err := os.Stat(r.file); err != nil || info.Size() > reserveMax {
		t.Errorf("it stays larger than a reserve here may be: %v %v", info, err)
	}
}

func TestOnlyAFullDiskCostsTheReserve(t *testing.T) {
	r := newReserve(t.TempDir(), slog.New(slog.DiscardHandler))
	if held, err := r.take(); !held || err != nil {
		t.Skipf("held %v: %v", held, err)
	}
	if r.giveUp(nil) || r.giveUp(os.ErrNotExist) || r.giveUp(errors.New("UNIQUE constraint failed: kine.name")) {
		t.Error("given up for nothing")
	}
	full := errors.New("database or disk is full (13)")
	if !r.giveUp(full) || r.giveUp(full) {
		t.Error("not given up, or twice")
	}
}

// fill writes a file until the disk takes no byte more.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}
