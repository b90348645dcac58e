//go:build linux

package treecopy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Send gives the folder at path to a Receive at the other end of conn, which is closed at the end, and tells what that has then.
func Send(ctx context.Context, conn io.ReadWriteCloser, path string, o Options) (Stats, error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	root, err := openFolder(unix.AT_FDCWD, path)
	s := &sender{
		stream: newStream(conn), still: o.Still, free: make(chan struct{}, window), waits: make(chan *listed, window), linked: map[inode]string{},
		buffer: make([]byte, blockSize), names: make([]byte, xattrMost),
	}
	if err == nil {
		err = s.all(ctx, root)
	}
	s.tell(err)
	s.end()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Stats{}, fmt.Errorf("send %s: %w", path, err)
	}
	return s.result, nil
}

// inode names a file that may have several names.
type inode struct{ dev, ino uint64 }

type sender struct {
	*stream
	still bool
	fresh bool // the receiver has nothing: no sums are needed

	free   chan struct{} // one for each list of sums without an answer
	waits  chan *listed  // in the order in which they were sent
	linked map[inode]string
	paths  int // bytes of those
	held   int // names of the folders on the way
	path   []string
	buffer []byte // a block
	names  []byte // of extended attributes, and their values

	entries, bytes int64
	result         Stats
}

// listed is a list of sums that was sent.
type listed struct {
	file   *shared
	first  int64 // block
	blocks int
}

// shared is an open file that goes when nobody needs it.
type shared struct {
	*os.File
	users atomic.Int32
}

func (f *shared) drop() {
	if f.users.Add(-1) == 0 {
		f.Close()
	}
}

func (s *sender) all(ctx context.Context, root *os.File) error {
	defer root.Close()
	total, err := count(ctx, root)
	if err != nil {
		return err
	}
	flags := byte(0)
	if s.still {
		flags = 1
	}
	if err := s.put(kindHello, []byte{version, flags}, total.append(nil)); err != nil {
		return err
	}
	k, answer, err := s.next()
	switch {
	case err != nil:
		return err
	case k != kindHello || len(answer) != 2 || answer[0] != version:
		return malformed("the other end speaks another version")
	}
	s.fresh = answer[1] == 1 && !s.still
	// The answers are read beside the walk, and what they ask for is sent meanwhile.
	var answered error
	var both sync.WaitGroup
	gone := make(chan struct{})
	both.Go(func() {
		defer close(gone)
		if answered = s.answers(); answered != nil {
			s.fail(answered)
		}
	})
	walked := s.walk(root, gone)
	if walked != nil {
		s.tell(walked) // which ends the answers, too
	}
	close(s.waits)
	both.Wait()
	for left := range s.waits {
		left.file.drop()
	}
	if walked != nil && !errors.Is(walked, errGone) {
		return walked
	}
	return answered
}

// errGone: the other goroutine ended, and knows why.
var errGone = errors.New("the receiver is gone")

func (s *sender) walk(root *os.File, gone <-chan struct{}) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return err
	}
	if err := s.folder(root, "", &st, gone); err != nil {
		return err
	}
	for range window { // until each list has its answer, and the receiver its data
		select {
		case s.free <- struct{}{}:
		case <-gone:
			return errGone
		}
	}
	return s.put(kindEnd, Stats{Entries: s.entries, Bytes: s.bytes}.append(nil))
}

func (s *sender) folder(dir *os.File, name string, st *unix.Stat_t, gone <-chan struct{}) error {
	if len(s.path) > depthMost {
		return fmt.Errorf("folders lie in each other more than %d deep: %s", depthMost, join(s.path))
	}
	if err := s.entry(name, typeFolder, st, "", fdPath(dir)); err != nil {
		return err
	}
	names, err := list(dir, &s.held)
	if err != nil {
		return fmt.Errorf("folder %s: %w", join(s.path), err)
	}
	defer func() { s.held -= len(names) }()
	for _, n := range names {
		s.path = append(s.path, n)
		err := s.name(dir, n, gone)
		if vanished(err) && !s.still {
			err = nil
		}
		if err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
	return s.put(kindUp)
}

// vanished reports whether something was removed, or became something else, after its name was read.
func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) || errors.Is(err, errOther)
}

var errOther = errors.New("it is something else by now")

// name sends what a name in a folder stands for.
func (s *sender) name(dir *os.File, name string, gone <-chan struct{}) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("%s: %w", join(s.path), err)
	}
	at := fdPath(dir) + "/" + name
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		below, err := openFolder(int(dir.Fd()), name)
		if err != nil {
			return fmt.Errorf("%s: %w", join(s.path), err)
		}
		defer below.Close()
		if err := unix.Fstat(int(below.Fd()), &st); err != nil {
			return err
		}
		return s.folder(below, name, &st, gone)
	case unix.S_IFREG:
		return s.file(dir, name, gone)
	case unix.S_IFLNK:
		target, err := os.Readlink(at)
		if err != nil {
			return fmt.Errorf("%s: %w", join(s.path), err)
		}
		return s.entry(name, typeSymlink, &st, target, at)
	case unix.S_IFIFO:
		return s.entry(name, typeFifo, &st, "", at)
	case unix.S_IFSOCK:
		return s.entry(name, typeSocket, &st, "", at)
	}
	return fmt.Errorf("%s is a device, and devices are not copied", join(s.path))
}

func (s *sender) file(dir *os.File, name string, gone <-chan struct{}) error {
	file, err := openFile(int(dir.Fd()), name, unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("%s: %w", join(s.path), err)
	}
	f := &shared{File: file}
	f.users.Add(1)
	defer f.drop()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s: %w", join(s.path), errOther)
	}
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, ok := s.linked[id]; ok {
			return s.entry(name, typeHardlink, &st, first, "")
		}
		path := join(s.path)
		if len(path) > pathMost {
			return fmt.Errorf("%s: a file with several names whose path is longer than %d bytes", path, pathMost)
		}
		if s.paths += len(path); s.paths > linkedMost {
			return fmt.Errorf("%s: too many files have several names", path)
		}
		s.linked[id] = path
	}
	if err := s.entry(name, typeFile, &st, "", fdPath(f.File)); err != nil {
		return err
	}
	s.bytes += st.Size
	return s.blocks(f, st.Size, gone)
}

func (s *sender) entry(name string, t fileType, st *unix.Stat_t, target, at string) error {
	e := &entry{
		Name: name, Type: t, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec),
		Target: target, Linked: t == typeFile && st.Nlink > 1,
	}
	if t == typeFile {
		e.Size = st.Size
	}
	if len(target) > pathMost {
		return fmt.Errorf("%s: its target is longer than %d bytes", join(s.path), pathMost)
	}
	if t != typeHardlink {
		var err error
		if e.Xattrs, err = xattrs(at, s.names); err != nil {
			return fmt.Errorf("%s: extended attributes: %w", join(s.path), err)
		}
	}
	s.entries++
	return s.put(kindEntry, e.append(nil))
}

// blocks sends the blocks of a file, or asks which are wanted. Holes are not read.
func (s *sender) blocks(f *shared, size int64, gone <-chan struct{}) error {
	var next, hole int64 // data begins at next, a hole after it at hole
	for first := int64(0); first*blockSize < size; {
		if next, hole = data(f.File, first*blockSize, size); next >= size {
			return nil // nothing but a hole
		}
		first = next / blockSize
		var sums []byte
		blocks := 0
		for ; blocks < sumsMost && (first+int64(blocks))*blockSize < size; blocks++ {
			from := (first + int64(blocks)) * blockSize
			to := min(from+blockSize, size)
			if from >= hole {
				next, hole = data(f.File, from, size)
			}
			if next >= to { // all of it is a hole
				sums = append(sums, zeros[:]...)
				continue
			}
			block := s.buffer[:to-from]
			if _, err := io.ReadFull(io.NewSectionReader(f, from, to-from), block); err != nil {
				if s.still {
					return fmt.Errorf("%s: %w", join(s.path), err)
				}
				clear(block) // it is shorter by now; the next pass sees that
			}
			if isZero(block) {
				sums = append(sums, zeros[:]...)
				continue
			}
			if s.fresh {
				if err := s.data(0, first+int64(blocks), block); err != nil {
					return err
				}
				continue
			}
			sum := sha256.Sum256(block)
			sums = append(sums, sum[:]...)
		}
		if !s.fresh {
			select {
			case s.free <- struct{}{}:
			case <-gone:
				return errGone
			}
			f.users.Add(1)
			s.waits <- &listed{file: f, first: first, blocks: blocks} // has room: each in it has a place in free
			if err := s.put(kindSums, binary.BigEndian.AppendUint64(nil, uint64(first)), sums); err != nil {
				return err
			}
		}
		first += int64(blocks)
	}
	return nil
}

func (s *sender) data(number uint32, block int64, bytes []byte) error {
	head := binary.BigEndian.AppendUint32(nil, number)
	return s.put(kindData, binary.BigEndian.AppendUint32(head, uint32(block)), bytes)
}

// answers reads what the receiver says until its result, and sends what it wants.
func (s *sender) answers() error {
	buffer := make([]byte, blockSize)
	for number := uint32(0); ; {
		k, payload, err := s.next()
		if err != nil {
			return err
		}
		switch k {
		case kindResult:
			f := fields{rest: payload}
			if s.result = f.stats(); f.bad || len(f.rest) > 0 {
				return malformed("a result")
			}
			return nil
		case kindWants:
			var l *listed
			select {
			case l = <-s.waits:
			default:
			}
			if l == nil || len(payload) != (l.blocks+7)/8 {
				return malformed("an answer that nobody waits for")
			}
			err := s.wanted(l, number, payload, buffer)
			l.file.drop()
			if err != nil {
				return err
			}
			<-s.free
			number++
		default:
			return malformed("out of turn")
		}
	}
}

func (s *sender) wanted(l *listed, number uint32, wants, buffer []byte) error {
	for i := range l.blocks {
		if wants[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		n, err := l.file.ReadAt(buffer, (l.first+int64(i))*blockSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := s.data(number, l.first+int64(i), buffer[:n]); err != nil {
			return err
		}
	}
	return nil
}

// count tells how many entries a folder has, and how many bytes their files.
func count(ctx context.Context, root *os.File) (total Stats, err error) {
	err = walk(ctx, root, func(st *unix.Stat_t) {
		total.Entries++
		if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 0 {
			total.Bytes += st.Size / int64(st.Nlink) // of one file as often as it has names
		}
	})
	return total, err
}

// Takes tells how many bytes of the disk a folder takes, with all in it. Whoever may write in it leads this nowhere else.
func Takes(ctx context.Context, path string) (bytes int64, err error) {
	root, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	err = walk(ctx, root, func(st *unix.Stat_t) {
		takes := st.Blocks * 512
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 0 {
			takes /= int64(st.Nlink)
		}
		bytes += takes
	})
	return bytes, err
}

// walk tells of a folder and of each name below it. What goes meanwhile is left out.
func walk(ctx context.Context, root *os.File, tell func(*unix.Stat_t)) error {
	var held int
	var into func(dir *os.File, depth int) error
	into = func(dir *os.File, depth int) error {
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
			return err
		}
		tell(&st)
		if depth > depthMost {
			return fmt.Errorf("folders lie in each other more than %d deep", depthMost)
		}
		names, err := list(dir, &held)
		if err != nil {
			return err
		}
		defer func() { held -= len(names) }()
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				tell(&st)
				continue
			}
			below, err := openFolder(int(dir.Fd()), name)
			if err != nil {
				continue
			}
			err = into(below, depth+1)
			below.Close()
			if err != nil {
				return err
			}
		}
		return nil
	}
	return into(root, 0)
}

// namesMost bounds the names that are held in memory at once: those of a folder, which are sorted, and of the folders that it is in. linkedMost bounds
// the bytes of the paths of files that have several names.
const (
	namesMost  = 1 << 20
	linkedMost = 64 << 20
)

// list gives the names in a folder, in the order of their bytes, and adds their number to those that are held.
func list(dir *os.File, held *int) (names []string, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	for {
		more, err := dir.Readdirnames(4096)
		names = append(names, more...)
		if *held+len(names) > namesMost {
			return nil, fmt.Errorf("more than %d names in one folder", namesMost)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			*held += len(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
