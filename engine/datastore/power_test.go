package datastore

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A disk that loses its power has what it was told to sync, and of the rest what it liked, in any order. What SQLite does to its files is
// noted here, and files are made of it as such a disk may have them: at 200 moments of a life with many checkpoints, compactions and
// restarts of the log. What a store finds in them is a state that there was, not older than the last sync of the log.
func TestPowerLossLosesOnlyWhatWasNotSynced(t *testing.T) {
	dir := t.TempDir()
	disk := noteWrites(t, dir)
	b := open(t, filepath.Join(dir, "state.db"))
	states := []state{{content: contents(t, b)}}
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	at := map[string]int64{}
	for i := range 6000 {
		key, value := fmt.Sprint("/registry/things/", random.IntN(80)), fmt.Sprint(i, " ", noise(random.IntN(3000)))
		now := maps.Clone(states[len(states)-1].content)
		rev, there := at[key]
		var err error
		switch {
		case there && random.IntN(3) == 0:
			if rev, _, _, err = b.Delete(t.Context(), key, rev); err == nil {
				delete(at, key)
				delete(now, key)
			}
		case there:
			if rev, _, _, err = b.Update(t.Context(), key, []byte(value), rev, 0); err == nil {
				at[key], now[key] = rev, value
			}
		default:
			if rev, err = b.Create(t.Context(), key, []byte(value), 0); err == nil {
				at[key], now[key] = rev, value
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, state{rev, now})
		disk.told(len(states) - 1)
		if i%1000 == 999 {
			if _, err := b.Compact(t.Context(), rev-100); err != nil {
				t.Fatal(err)
			}
		}
	}

	disk.mu.Lock()
	ops := disk.ops
	disk.mu.Unlock()
	lost, synced := 0, 0
	for round := range 200 {
		n := random.IntN(len(ops))
		share := []float64{0, 0.1, 0.5, 0.9, 1}[round%5]
		files, safe, last := leftBy(ops[:n], random, share)
		where := t.TempDir()
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(where, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found, newest := reopened(t, where)
		is := -1
		for i := min(last+1, len(states)-1); i >= safe && is < 0; i-- { // the one behind last may be there, and not be told yet
			if maps.Equal(states[i].content, found) {
				is = i
			}
		}
		if is < 0 {
			t.Fatalf("round %d, power lost after %d of %d ops, %.1f of what was not synced is there: the store holds none of the states %d to %d", round, n, len(ops), share, safe, last)
		}
		if told := states[last].revision; newest <= told && told > 1 {
			t.Fatalf("round %d: the next revisions come after %d, and %d was told before", round, newest, told)
		}
		lost, synced = lost+max(0, last-is), synced+safe
	}
	if lost == 0 || synced == 0 {
		t.Errorf("%d writes were lost in all, and %d were synced: nothing was tried", lost, synced)
	}
	t.Logf("%d ops of SQLite; %d writes lost in 200 losses of power", len(ops), lost)
}

// state is what keys hold after a revision was told.
type state struct {
	revision int64
	content  map[string]string
}

// reopened opens what a power loss left, as the next boot does.
func reopened(t *testing.T, dir string) (content map[string]string, newest int64) {
	t.Helper()
	s := &Store{boot: []byte("the next\n"), reserve: newReserve(dir, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), writers: &sync.WaitGroup{}}
	ctx, stop := context.WithCancel(t.Context())
	defer s.writers.Wait()
	defer stop()
	b, err := s.open(ctx, filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, b.(backend).upkeep.db)
	newest, err = b.CurrentRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return contents(t, b), newest
}

// A client that outlives a loss of power is told that it must list again, whatever it saw last; after a start in the same boot it is not.
func TestRevisionsOfALostLifeAreNotGivenAgain(t *testing.T) {
	dir := t.TempDir()
	life := func(boot string, do func(b backend)) {
		s := &Store{boot: []byte(boot), reserve: newReserve(dir, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), writers: &sync.WaitGroup{}}
		ctx, stop := context.WithCancel(t.Context())
		defer s.writers.Wait()
		defer stop()
		b, err := s.open(ctx, filepath.Join(dir, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		do(b.(backend))
	}
	var first, lost, later int64
	var err error
	life("one", func(b backend) {
		if first, err = b.Create(t.Context(), "/registry/things/a", []byte("1"), 0); err != nil || first > 10 {
			t.Fatalf("a new database begins at %d, %v", first, err)
		}
	})
	life("one", func(b backend) {
		if lost, _, _, err = b.Update(t.Context(), "/registry/things/a", []byte("2"), first, 0); err != nil || lost != first+1 {
			t.Fatalf("a start in the same boot goes on at %d after %d, %v", lost, first, err)
		}
	})
	life("two", func(b backend) {
		if later, err = b.Create(t.Context(), "/registry/things/b", []byte("1"), 0); err != nil || later <= lost+bootStep/2 {
			t.Fatalf("the next boot goes on at %d after %d, %v", later, lost, err)
		}
		if got := b.Watch(t.Context(), "/registry/things/", "/registry/things0", lost+100); got.CompactRevision <= lost+100 {
			t.Errorf("who watches from %d hears of what was compacted up to %d", lost+100, got.CompactRevision)
		}
		if got := contents(t, b); got["/registry/things/a"] != "2" || got["/registry/things/b"] != "1" {
			t.Errorf("there is %v", got)
		}
	})
}

// The kinds of what is done to a file.
const (
	wrote = iota
	truncated
	syncing // and done is true once it is
	removed
	told
)

// op is one thing done to a file, or that a write was acknowledged.
type op struct {
	kind int
	file string
	at   int64 // offset, size, or the number of the state told
	data []byte
	from int // of a sync that is done: the ops before it are on the disk
	dir  bool
}

// disk notes what is done to the files of one directory.
type disk struct {
	dir  string
	mu   sync.Mutex
	ops  []op
	open map[uintptr]string // by SQLite's file
}

func (d *disk) note(o op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, o)
}

func (d *disk) told(state int) { d.note(op{kind: told, at: int64(state)}) }

const sector = 512

// leftBy gives the files after some ops as a disk may have them: all that was synced, and a share of the sectors that were not. The state safe was told
// before the last sync of the log began, the state last was told last.
func leftBy(ops []op, random *rand.Rand, share float64) (files map[string][]byte, safe, last int) {
	type file struct {
		synced []byte
		there  bool
		later  []int // ops
	}
	all := map[string]*file{}
	do := func(data []byte, o op) []byte {
		switch o.kind {
		case wrote:
			if end := int(o.at) + len(o.data); end > len(data) {
				data = append(data, make([]byte, end-len(data))...)
			}
			copy(data[o.at:], o.data)
		case truncated:
			data = append(data, make([]byte, max(0, int(o.at)-len(data)))...)[:o.at]
		}
		return data
	}
	toldAt := make([]int, 0, len(ops)) // by op, what was told last before it
	for i, o := range ops {
		if o.kind == told {
			last = int(o.at)
		}
		toldAt = append(toldAt, last)
		f := all[o.file]
		if f == nil {
			f = &file{}
			all[o.file] = f
		}
		switch o.kind {
		case wrote, truncated:
			f.later = append(f.later, i)
		case removed:
			if o.dir {
				*f = file{}
			} else {
				f.later = append(f.later, i)
			}
		case syncing:
			var rest []int
			for _, n := range f.later {
				switch {
				case n >= o.from:
					rest = append(rest, n)
				case ops[n].kind == removed:
					f.synced = nil
				default:
					f.synced = do(f.synced, ops[n])
				}
			}
			f.later, f.there = rest, true
			if strings.HasSuffix(o.file, "-wal") && o.from > 0 {
				safe = max(safe, toldAt[o.from-1])
			}
		}
	}
	files = map[string][]byte{}
	for name, f := range all {
		if name == "" {
			continue
		}
		data, there := f.synced, f.there
		for _, n := range f.later {
			o := ops[n]
			if o.kind != wrote {
				if random.Float64() >= share {
					continue
				}
				if o.kind == removed {
					data, there = nil, false
				} else {
					data, there = do(data, o), true
				}
				continue
			}
			for begin := 0; begin < len(o.data); begin += sector {
				if random.Float64() < share {
					data, there = do(data, op{kind: wrote, at: o.at + int64(begin), data: o.data[begin:min(begin+sector, len(o.data))]}), true
				}
			}
		}
		if there {
			files[name] = data
		}
	}
	return files, safe, last
}

// The functions of SQLite's own that the noting ones call.
type (
	openFunc     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	removeFunc   = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32
	writeFunc    = func(tls *libc.TLS, file, data uintptr, n int32, at int64) int32
	truncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc     = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// call makes a Go function of a pointer to one, as SQLite has it translated to Go.
func call[F any](pointer uintptr) F {
	holder := &struct{ uintptr }{pointer}
	return *(*F)(unsafe.Pointer(holder))
}

// pointer is the reverse of call, for a function that lives as long as the program.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// noteWrites has SQLite's access to files, which is the VFS of dsn, note what is done in dir until the test ends.
func noteWrites(t *testing.T, dir string) *disk {
	t.Helper()
	d := &disk{dir: dir, open: map[uintptr]string{}}
	tls := libc.NewTLS()
	t.Cleanup(tls.Close)
	name, err := libc.CString("unix-excl")
	if err != nil {
		t.Fatal(err)
	}
	defer libc.Xfree(tls, name)
	vfs := (*lib.Tsqlite3_vfs)(addr(lib.Xsqlite3_vfs_find(tls, name)))
	was := *vfs
	t.Cleanup(func() { vfs.FxOpen, vfs.FxDelete = was.FxOpen, was.FxDelete })
	inner := map[uintptr]lib.Tsqlite3_io_methods{} // by the methods that note
	noting := map[uintptr]uintptr{}                // by the methods that do not
	var mu sync.Mutex
	methods := func(file uintptr) lib.Tsqlite3_io_methods {
		mu.Lock()
		defer mu.Unlock()
		return inner[(*lib.Tsqlite3_file)(addr(file)).FpMethods]
	}
	base := func(file uintptr) string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.open[file]
	}
	write := writeFunc(func(tls *libc.TLS, file, data uintptr, n int32, where int64) int32 {
		d.note(op{kind: wrote, file: base(file), at: where, data: append([]byte(nil), unsafe.Slice((*byte)(addr(data)), n)...)})
		return call[writeFunc](methods(file).FxWrite)(tls, file, data, n, where)
	})
	truncate := truncateFunc(func(tls *libc.TLS, file uintptr, size int64) int32 {
		d.note(op{kind: truncated, file: base(file), at: size})
		return call[truncateFunc](methods(file).FxTruncate)(tls, file, size)
	})
	synced := syncFunc(func(tls *libc.TLS, file uintptr, flags int32) int32 {
		d.mu.Lock()
		from := len(d.ops)
		d.mu.Unlock()
		rc := call[syncFunc](methods(file).FxSync)(tls, file, flags)
		d.note(op{kind: syncing, file: base(file), from: from})
		return rc
	})
	remove := removeFunc(func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32 {
		if path := libc.GoString(name); filepath.Dir(path) == dir {
			d.note(op{kind: removed, file: filepath.Base(path), dir: syncDir != 0})
		}
		return call[removeFunc](was.FxDelete)(tls, vfs, name, syncDir)
	})
	open := openFunc(func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
		rc := call[openFunc](was.FxOpen)(tls, vfs, name, file, flags, out)
		if rc != lib.SQLITE_OK || name == 0 || filepath.Dir(libc.GoString(name)) != dir {
			return rc
		}
		d.mu.Lock()
		d.open[file] = filepath.Base(libc.GoString(name))
		d.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		f := (*lib.Tsqlite3_file)(addr(file))
		if noting[f.FpMethods] == 0 {
			own := *(*lib.Tsqlite3_io_methods)(addr(f.FpMethods))
			changed := own
			changed.FxWrite, changed.FxTruncate, changed.FxSync = pointer(write), pointer(truncate), pointer(synced)
			place := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(changed)))
			*(*lib.Tsqlite3_io_methods)(addr(place)) = changed
			noting[f.FpMethods], inner[place] = place, own
		}
		f.FpMethods = noting[f.FpMethods]
		return rc
	})
	kept = append(kept, open, remove, write, truncate, synced)
	vfs.FxOpen, vfs.FxDelete = pointer(open), pointer(remove)
	return d
}

// kept are functions that SQLite knows by their address alone.
var kept []any

// addr is what SQLite has at an address, in memory that is not Go's.
func addr(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
