//go:build linux

package treecopy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Receive makes the folder at path like that of the Send at the other end of conn, which is closed at the end. What it has besides is removed. It ends
// when all is on the disk, unless the limits say otherwise. After an error the folder is something between what it was and what it should be, and the next Receive goes on from there.
func Receive(ctx context.Context, conn io.ReadWriteCloser, path string, limits Limits) (Stats, error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := &receiver{stream: newStream(conn), limits: limits, used: map[uint64]bool{}, pending: map[uint32]*wanted{}, buffer: make([]byte, blockSize), names: make([]byte, xattrMost)}
	root, err := openFolder(unix.AT_FDCWD, path)
	if err == nil {
		r.root = root
		err = r.all()
		r.close()
	}
	r.tell(err)
	r.end()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Stats{}, fmt.Errorf("receive into %s: %w", path, err)
	}
	return r.stats, nil
}

type receiver struct {
	*stream
	limits Limits
	root   *os.File
	still  bool
	fresh  bool

	folders []*folder
	held    int     // names in them
	file    *target // whose blocks come now
	number  uint32  // of the next list of sums
	pending map[uint32]*wanted
	used    map[uint64]bool // inodes here that have several names, and a place in this copy
	buffer  []byte
	names   []byte
	dirty   int // bytes written of which the disk was not told
	stats   Stats
}

// folder is one on the way from the root to where things are made.
type folder struct {
	*os.File
	entry *entry
	other map[string]bool // names that were there and did not come yet
	held  int             // how many there were
	last  string          // the name that came last: they come in order, and so once
}

// target is a regular file that is being made.
type target struct {
	*os.File
	entry *entry
	size  int64 // it had
	lists int   // of sums for which data is to come
	whole bool  // all its lists came
	next  int64 // block
}

// wanted are the blocks of a list that are to come.
type wanted struct {
	file *target
	left int
	sums map[int64]sum
}

func (r *receiver) close() {
	for _, f := range r.folders {
		f.Close()
	}
	for _, w := range r.pending {
		w.file.Close()
	}
	if r.file != nil {
		r.file.Close()
	}
	r.root.Close()
}

func (r *receiver) all() error {
	k, hello, err := r.next()
	switch {
	case err != nil:
		return err
	case k != kindHello || len(hello) < 2 || hello[0] != version:
		return malformed("the other end speaks another version")
	}
	r.still = hello[1]&1 == 1
	var held int
	there, err := list(r.root, &held)
	if err != nil {
		return err
	}
	r.fresh = len(there) == 0 && !r.still
	answer := []byte{version, 0}
	if len(there) == 0 {
		answer[1] = 1
	}
	if err := r.put(kindHello, answer); err != nil {
		return err
	}
	for {
		k, payload, err := r.next()
		if err != nil {
			return err
		}
		if k == kindEnd {
			return r.finish(payload)
		}
		if err := r.take(k, payload); err != nil {
			return err
		}
	}
}

func (r *receiver) take(k kind, payload []byte) error {
	switch k {
	case kindEntry:
		e, err := readEntry(payload)
		if err != nil {
			return err
		}
		return r.entry(e)
	case kindUp:
		if len(r.folders) == 0 {
			return malformed("up from nowhere")
		}
		return r.up()
	case kindSums:
		return r.sums(payload)
	case kindData:
		return r.data(payload)
	}
	return malformed("out of turn")
}

func (r *receiver) finish(payload []byte) error {
	f := fields{rest: payload}
	theirs := f.stats()
	if err := r.ended(); err != nil {
		return err
	}
	if f.bad || len(r.folders) > 0 || r.stats.Entries == 0 || len(r.pending) > 0 || theirs.Entries != r.stats.Entries || theirs.Bytes != r.stats.Bytes {
		return malformed("it ended too early")
	}
	if !r.limits.Unsynced {
		if err := unix.Syncfs(int(r.root.Fd())); err != nil {
			return fmt.Errorf("write to the disk: %w", err)
		}
	}
	return r.put(kindResult, r.stats.append(nil))
}

// entry makes a name, or sees that it is there.
func (r *receiver) entry(e *entry) error {
	if err := r.ended(); err != nil {
		return err
	}
	if r.stats.Entries++; r.stats.Entries > r.limits.Entries {
		return fmt.Errorf("more than %d files and folders", r.limits.Entries)
	}
	if len(r.folders) == 0 {
		if e.Name != "" || r.stats.Entries != 1 {
			return malformed("an entry outside of the folder")
		}
		again, err := openFolder(int(r.root.Fd()), ".")
		if err != nil {
			return err
		}
		return r.enter(again, e)
	}
	in := r.folders[len(r.folders)-1]
	if e.Name <= in.last {
		return malformed("names out of order")
	}
	in.last = e.Name
	delete(in.other, e.Name)
	if err := r.make(in, e); err != nil {
		return fmt.Errorf("%s: %w", r.path(e.Name), err)
	}
	return nil
}

func (r *receiver) path(name string) string {
	var all []string
	for _, f := range r.folders[1:] {
		all = append(all, f.entry.Name)
	}
	return join(append(all, name))
}

func (r *receiver) make(in *folder, e *entry) error {
	at := int(in.Fd())
	var st unix.Stat_t
	err := unix.Fstatat(at, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
	there := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if there && !r.fits(&st, e) {
		if err := removeAll(in.File, e.Name); err != nil {
			return err
		}
		there = false
	}
	switch e.Type {
	case typeFolder:
		if len(r.folders) > depthMost {
			return fmt.Errorf("folders lie in each other more than %d deep", depthMost)
		}
		if !there {
			if err := unix.Mkdirat(at, e.Name, 0o700); err != nil {
				return err
			}
		}
		below, err := openFolder(at, e.Name)
		if err != nil {
			return err
		}
		return r.enter(below, e)
	case typeFile:
		return r.open(at, e, there, &st)
	case typeHardlink:
		return r.link(at, e, there, &st)
	case typeSymlink:
		if there {
			if is, err := os.Readlink(fdPath(in.File) + "/" + e.Name); err == nil && is == e.Target {
				break
			}
			if err := unix.Unlinkat(at, e.Name, 0); err != nil {
				return err
			}
		}
		if err := unix.Symlinkat(e.Target, at, e.Name); err != nil {
			return err
		}
	default:
		if !there {
			kind := uint32(unix.S_IFIFO)
			if e.Type == typeSocket {
				kind = unix.S_IFSOCK
			}
			if err := unix.Mknodat(at, e.Name, kind|0o600, 0); err != nil {
				return err
			}
		}
		return r.dressOther(at, e)
	}
	return r.dress(at, e.Name, fdPath(in.File)+"/"+e.Name, e)
}

// dressOther dresses a fifo or a socket by a descriptor that stands for it alone: a mode is set by a path that would follow a symbolic link, should
// somebody have put one there since.
func (r *receiver) dressOther(at int, e *entry) error {
	fd, err := unix.Openat(at, e.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), e.Name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != formats[e.Type] {
		return errors.New("it is something else by now")
	}
	return r.dress(fd, "", fdPath(f), e)
}

// formats are what each type is to the kernel.
var formats = map[fileType]uint32{
	typeFolder: unix.S_IFDIR, typeFile: unix.S_IFREG, typeHardlink: unix.S_IFREG, typeSymlink: unix.S_IFLNK, typeFifo: unix.S_IFIFO, typeSocket: unix.S_IFSOCK,
}

// fits reports whether what is there can become what an entry says. A file that has more names here than it should would change under these, too.
func (r *receiver) fits(st *unix.Stat_t, e *entry) bool {
	if st.Mode&unix.S_IFMT != formats[e.Type] {
		return false
	}
	return e.Type != typeFile || st.Nlink == 1 || e.Linked && !r.used[st.Ino]
}

func (r *receiver) enter(dir *os.File, e *entry) error {
	f := &folder{File: dir, entry: e, other: map[string]bool{}}
	r.folders = append(r.folders, f)
	names, err := list(dir, &r.held)
	f.held = len(names)
	for _, n := range names {
		f.other[n] = true
	}
	return err
}

func (r *receiver) up() error {
	if err := r.ended(); err != nil {
		return err
	}
	f := r.folders[len(r.folders)-1]
	for name := range f.other {
		if err := removeAll(f.File, name); err != nil {
			return fmt.Errorf("remove %s: %w", r.path(name), err)
		}
	}
	err := r.dress(int(f.Fd()), "", fdPath(f.File), f.entry)
	r.folders = r.folders[:len(r.folders)-1]
	r.held -= f.held
	f.Close()
	return err
}

func (r *receiver) open(at int, e *entry, there bool, st *unix.Stat_t) error {
	if e.Size > r.limits.Bytes && e.Size > holesMost {
		return fmt.Errorf("a file of %d bytes", e.Size)
	}
	flags := unix.O_RDWR
	if !there {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	file, err := openFile(at, e.Name, flags)
	if err != nil {
		return err
	}
	r.file = &target{File: file, entry: e}
	if there {
		r.file.size = st.Size
	}
	if e.Linked {
		if err := unix.Fstat(int(file.Fd()), st); err != nil {
			return err
		}
		r.used[st.Ino] = true
	}
	r.stats.Bytes += e.Size
	return nil
}

// holesMost is how long a file may be that is mostly holes: what ext4 has at most.
const holesMost = 16 << 40

// link gives a file one more name. The path was sent before, so it leads to a file of this copy.
func (r *receiver) link(at int, e *entry, there bool, st *unix.Stat_t) error {
	parent, base := path.Split(e.Target)
	if e.Target != path.Clean(e.Target) || strings.HasPrefix(e.Target, "/") || strings.HasPrefix(e.Target, "..") || base == "" {
		return malformed("a link leads elsewhere")
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(r.root.Fd()), path.Join(".", parent), how)
	if err != nil {
		return fmt.Errorf("its other name %s: %w", e.Target, err)
	}
	defer unix.Close(fd)
	var first unix.Stat_t
	if err := unix.Fstatat(fd, base, &first, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("its other name %s: %w", e.Target, err)
	}
	if first.Mode&unix.S_IFMT != unix.S_IFREG || !r.used[first.Ino] {
		return malformed("a link to what is no file of this copy")
	}
	if there && st.Ino == first.Ino && st.Dev == first.Dev {
		return nil
	}
	if there {
		if err := unix.Unlinkat(at, e.Name, 0); err != nil {
			return err
		}
	}
	return unix.Linkat(fd, base, at, e.Name, 0)
}

// sums compares a list of blocks with what the file has, and says which it wants.
func (r *receiver) sums(payload []byte) error {
	f, t := fields{rest: payload}, r.file
	first := int64(f.u64())
	n := len(f.rest) / sha256.Size
	if t == nil || r.fresh || f.bad || len(f.rest)%sha256.Size != 0 || n == 0 || n > sumsMost || first < t.next || (first+int64(n)-1)*blockSize >= t.entry.Size {
		return malformed("sums of no blocks")
	}
	if len(r.pending) >= window {
		return malformed("too many lists of sums at once")
	}
	if err := t.zero(t.next*blockSize, first*blockSize); err != nil {
		return err
	}
	t.next = first + int64(n)
	wants := make([]byte, (n+7)/8)
	w := &wanted{file: t, sums: map[int64]sum{}}
	for i := range n {
		theirs := sum(f.take(sha256.Size))
		block := first + int64(i)
		same, err := r.same(t, block, theirs)
		if err != nil {
			return err
		}
		if !same {
			wants[i/8] |= 1 << (i % 8)
			w.left++
			w.sums[block] = theirs
		}
	}
	if w.left > 0 {
		t.lists++
		r.pending[r.number] = w
	}
	r.number++
	return r.put(kindWants, wants)
}

// same reports whether a block here is what it should be. A block of zeros becomes one at once.
func (r *receiver) same(t *target, block int64, theirs sum) (bool, error) {
	from := block * blockSize
	length := min(blockSize, t.entry.Size-from)
	have := min(length, max(0, t.size-from))
	if have > 0 {
		if next, _ := data(t.File, from, t.size); next >= from+have {
			have = 0 // a hole
			if theirs != zeros {
				return false, nil
			}
		}
	}
	if have == 0 {
		return theirs == zeros, nil
	}
	b := r.buffer[:length]
	clear(b[have:])
	if _, err := io.ReadFull(io.NewSectionReader(t, from, have), b[:have]); err != nil {
		return false, err
	}
	if theirs == zeros {
		return true, t.punch(from, have)
	}
	return have == length && sum(sha256.Sum256(b)) == theirs, nil
}

// zero makes a hole of what the sender passed over.
func (t *target) zero(from, to int64) error {
	to = min(to, t.size)
	if from >= to {
		return nil
	}
	if next, _ := data(t.File, from, t.size); next >= to {
		return nil
	}
	return t.punch(from, to-from)
}

// punch makes a hole; where the file system has none, zeros.
func (t *target) punch(from, length int64) error {
	err := unix.Fallocate(int(t.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, length)
	if errors.Is(err, unix.EOPNOTSUPP) {
		for end := from + length; from < end && (err == nil || errors.Is(err, unix.EOPNOTSUPP)); from += blockSize {
			_, err = t.WriteAt(nothing[:min(blockSize, end-from)], from)
		}
	}
	return err
}

func (r *receiver) data(payload []byte) error {
	f := fields{rest: payload}
	number, block := f.u32(), int64(f.u32())
	b := f.rest
	var t *target
	var w *wanted
	switch {
	case f.bad || len(b) > blockSize:
		return malformed("data")
	case r.fresh:
		if t = r.file; t == nil || block*blockSize >= t.entry.Size || block < t.next {
			return malformed("data of no file")
		}
		t.next = block + 1
	default:
		if w = r.pending[number]; w == nil {
			return malformed("data that nobody wanted")
		}
		t = w.file
		theirs, ok := w.sums[block]
		if !ok {
			return malformed("data that nobody wanted")
		}
		if r.still && sum(sha256.Sum256(b)) != theirs {
			return fmt.Errorf("%s changed while it was copied", t.entry.Name)
		}
		delete(w.sums, block)
		w.left--
	}
	b = b[:min(int64(len(b)), t.entry.Size-block*blockSize)]
	if r.stats.Sent += int64(len(b)); r.stats.Sent > r.limits.Bytes {
		return fmt.Errorf("there is more in it than the %d bytes that it may have", r.limits.Bytes)
	}
	if err := t.write(b, block*blockSize); err != nil {
		return fmt.Errorf("%s: %w", t.entry.Name, err)
	}
	if r.dirty += len(b); r.dirty >= dirtyMost {
		r.dirty = 0
		_ = unix.SyncFileRange(int(t.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // an error is told by the end's Syncfs, too
	}
	if w != nil && w.left == 0 {
		delete(r.pending, number)
		if t.lists--; t.lists == 0 && t.whole {
			return r.done(t)
		}
	}
	return nil
}

// dirtyMost is after how many bytes the disk begins to write: the kernel would wait for more, and the end for all of it.
const dirtyMost = 8 << 20

// write writes a block; in a file that had nothing there, what is zero stays a hole.
func (t *target) write(b []byte, at int64) error {
	const page = 4096
	if at < t.size {
		_, err := t.WriteAt(b, at)
		return err
	}
	for len(b) > 0 {
		n := min(page, len(b))
		zero := isZero(b[:n])
		for n < len(b) && isZero(b[n:min(n+page, len(b))]) == zero {
			n = min(n+page, len(b))
		}
		if !zero {
			if _, err := t.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// ended: no more lists of the file that came last will come.
func (r *receiver) ended() error {
	t := r.file
	if t == nil {
		return nil
	}
	r.file = nil
	if err := t.zero(t.next*blockSize, t.entry.Size); !r.fresh && err != nil {
		t.Close()
		return fmt.Errorf("%s: %w", t.entry.Name, err)
	}
	if t.whole = true; t.lists > 0 {
		return nil // its data is on the way
	}
	return r.done(t)
}

// done gives a file that is complete its size, and the rest.
func (r *receiver) done(t *target) error {
	defer t.Close()
	if err := t.Truncate(t.entry.Size); err != nil {
		return fmt.Errorf("%s: %w", t.entry.Name, err)
	}
	if err := r.dress(int(t.Fd()), "", fdPath(t.File), t.entry); err != nil {
		return fmt.Errorf("%s: %w", t.entry.Name, err)
	}
	return nil
}

// dress gives a file its owner, extended attributes, mode and time, in the order in which none takes back another. It is named by an open folder and
// a name in it, or is itself open and name is "".
func (r *receiver) dress(at int, name, proc string, e *entry) error {
	if err := unix.Fchownat(at, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if err := r.setXattrs(proc, name == "", e.Xattrs); err != nil {
		return fmt.Errorf("extended attributes: %w", err)
	}
	if e.Type != typeSymlink { // all others are open here, so the path leads to them and nowhere else
		if err := unix.Fchmodat(unix.AT_FDCWD, proc, e.Mode, 0); err != nil {
			return fmt.Errorf("mode: %w", err)
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: e.Mtime, Nsec: int64(e.Nsec)}}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags, at, name = 0, unix.AT_FDCWD, proc
	}
	if err := unix.UtimesNanoAt(at, name, times, flags); err != nil {
		return fmt.Errorf("time: %w", err)
	}
	return nil
}

func (r *receiver) setXattrs(proc string, open bool, want []xattr) error {
	have, err := xattrs(proc, r.names)
	if err != nil {
		return err
	}
	set, remove := unix.Lsetxattr, unix.Lremovexattr
	if open {
		set, remove = unix.Setxattr, unix.Removexattr
	}
	is := map[string]string{}
	for _, x := range have {
		is[x.Name] = string(x.Value)
	}
	for _, x := range want {
		was, there := is[x.Name]
		delete(is, x.Name)
		if there && was == string(x.Value) {
			continue
		}
		if err := set(proc, x.Name, x.Value, 0); err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	for name := range is {
		if err := remove(proc, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// removeAll removes a name with all below it, and follows nothing.
func removeAll(in *os.File, name string) error {
	root, err := os.OpenRoot(fdPath(in))
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}
