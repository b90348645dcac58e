package treecopy

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A frame is a kind, the length of what follows as four bytes, and that. The sender begins with hello, which the receiver answers. Then the sender
// goes through its folder: entry for each name in the order of bytes, and up when a folder is left. A regular file's entry is followed by its
// blocks: with a receiver that has nothing, data at once; else lists of sums, each of which the receiver answers with wants, and data for these. At
// the end stands end, which the receiver answers with result when all is on its disk.
type kind byte

const (
	kindHello kind = 1 + iota
	kindEntry
	kindUp
	kindSums
	kindWants
	kindData
	kindEnd
	kindResult
	kindFailed
	kindAlive // says nothing but that somebody computes
)

const (
	// version is that of the frames.
	version = 1

	blockSize = 128 << 10
	sumsMost  = 1024 // blocks of one list
	// window is how many lists of sums wait for an answer at most.
	window = 64

	frameMost = 8 + blockSize + 64<<10 // data, or an entry with all that belongs to it
	headSize  = 5
	nameMost  = 255  // bytes, as of Linux's file systems
	pathMost  = 4096 // of a link's target
	xattrMost = 64 << 10
	xattrsAll = 256
	wordsMost = 1 << 10
)

// depthMost is how deep folders may lie in each other: each costs a file descriptor at both ends.
const depthMost = 256

// silence is how long nothing may come, aliveEvery how often a side says that it is there.
const (
	silence    = time.Minute
	aliveEvery = 15 * time.Second
)

// fileType is what a name stands for.
type fileType byte

const (
	typeFolder fileType = 1 + iota
	typeFile
	typeSymlink
	typeHardlink // to a file that was sent already
	typeFifo
	typeSocket
	typeLast = typeSocket
)

// entry is one name in a folder.
type entry struct {
	Name     string // "" for the folder that is copied
	Type     fileType
	Mode     uint32 // permissions, with set-user-ID, set-group-ID and sticky
	UID, GID uint32
	Mtime    int64  // seconds
	Nsec     uint32 // and nanoseconds
	Size     int64  // of a regular file
	Linked   bool   // a regular file that has more names
	Target   string // of a symbolic link; of a hard link the path from the folder that is copied
	Xattrs   []xattr
}

type xattr struct {
	Name  string
	Value []byte
}

type sum [sha256.Size]byte

// zeros is the sum that stands for a block of nothing but zeros; no block has it.
var zeros sum

// errFrame: the other end does not speak this protocol.
var errFrame = errors.New("a frame is not as it should be")

func malformed(what string) error { return fmt.Errorf("%w: %s", errFrame, what) }

// fields reads what a frame is made of. After the first mistake it gives zeros.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) take(n int) []byte {
	if n < 0 || n > len(f.rest) {
		f.bad, f.rest = true, nil
		return nil
	}
	took := f.rest[:n]
	f.rest = f.rest[n:]
	return took
}

func (f *fields) byte() byte {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) u16() uint16 {
	if b := f.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (f *fields) u32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text reads what begins with its length, of at most so many bytes.
func (f *fields) text(most int) string {
	n := int(f.u16())
	if n > most {
		f.bad = true
		return ""
	}
	return string(f.take(n))
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func (e *entry) append(b []byte) []byte {
	b = append(b, byte(e.Type), 0)
	if e.Linked {
		b[len(b)-1] = 1
	}
	b = appendText(b, e.Name)
	b = binary.BigEndian.AppendUint32(b, e.Mode)
	b = binary.BigEndian.AppendUint32(b, e.UID)
	b = binary.BigEndian.AppendUint32(b, e.GID)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Mtime))
	b = binary.BigEndian.AppendUint32(b, e.Nsec)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Size))
	b = appendText(b, e.Target)
	b = binary.BigEndian.AppendUint16(b, uint16(len(e.Xattrs)))
	for _, x := range e.Xattrs {
		b = appendText(b, x.Name)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(x.Value))), x.Value...)
	}
	return b
}

// readEntry reads an entry that nobody need be afraid of: its name is one, its sizes are possible.
func readEntry(b []byte) (*entry, error) {
	f := fields{rest: b}
	e := &entry{Type: fileType(f.byte()), Linked: f.byte() == 1}
	e.Name = f.text(nameMost)
	e.Mode, e.UID, e.GID = f.u32(), f.u32(), f.u32()
	e.Mtime, e.Nsec, e.Size = int64(f.u64()), f.u32(), int64(f.u64())
	e.Target = f.text(pathMost)
	xattrs, bytes := int(f.u16()), 0
	if xattrs > xattrsAll {
		return nil, malformed("too many extended attributes")
	}
	for range xattrs {
		x := xattr{Name: f.text(nameMost)}
		n := f.u32()
		if bytes += int(n); n > xattrMost || bytes > xattrMost {
			return nil, malformed("extended attributes are too long")
		}
		x.Value = append([]byte(nil), f.take(int(n))...)
		if !travels(x.Name) || strings.ContainsRune(x.Name, 0) {
			return nil, malformed("an extended attribute that is not copied")
		}
		e.Xattrs = append(e.Xattrs, x)
	}
	switch {
	case f.bad || len(f.rest) > 0:
		return nil, malformed("an entry is cut off")
	case e.Type == 0 || e.Type > typeLast || e.Mode&^0o7777 != 0 || e.Nsec >= 1e9 || e.Size < 0 || e.Size > 0 && e.Type != typeFile || e.Linked && e.Type != typeFile:
		return nil, malformed("an entry is no file")
	case e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") || e.Name == "" && e.Type != typeFolder:
		return nil, malformed("a name leads elsewhere")
	case (e.Type == typeSymlink || e.Type == typeHardlink) != (e.Target != "") || strings.ContainsRune(e.Target, 0):
		return nil, malformed("a link leads nowhere")
	}
	return e, nil
}

// travels reports whether an extended attribute is copied. Others are the kernel's and of the machine, such as security.selinux.
func travels(name string) bool {
	switch name {
	case "system.posix_acl_access", "system.posix_acl_default", "security.capability":
		return true
	}
	return strings.HasPrefix(name, "user.") && len(name) > len("user.")
}

// Stats are what went over, or had to.
type Stats struct {
	Entries int64 // files, folders and links
	Bytes   int64 // of regular files, holes among them
	Sent    int64 // bytes of blocks that were sent
}

func (s Stats) append(b []byte) []byte {
	for _, n := range []int64{s.Entries, s.Bytes, s.Sent} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func (f *fields) stats() Stats {
	return Stats{Entries: int64(f.u64()), Bytes: int64(f.u64()), Sent: int64(f.u64())}
}

// Options of Send.
type Options struct {
	// Still says that nobody changes the folder meanwhile: whatever does is an error, and Receive makes sure that each block is the same.
	Still bool
}

// Limits bound what Receive takes.
type Limits struct {
	Bytes   int64 // of files, without their holes, and of what files need for themselves
	Entries int64
	// Unsynced says that Receive may end before all is on the disk: who called it sees to that.
	Unsynced bool
}

// LimitsOf are those of a volume of so many bytes.
func LimitsOf(size int64) Limits { return Limits{Bytes: size, Entries: size/4096 + 1000} }

// stream is one end. What is put goes out in order by a goroutine of its own, so that an end that writes goes on to read.
type stream struct {
	in     *bufio.Reader
	frame  []byte
	heard  func() // a frame came
	closed func()
	close  func() error // the connection

	mu     sync.Mutex
	change *sync.Cond
	out    []byte
	err    error // why nothing more goes out
	ended  bool
	done   chan struct{}
	told   bool // the other end knows that this one gave up
}

// buffered is what is read and written at once of what is small. It is less than a block, which so is copied past the buffer.
const buffered = 16 << 10

// outMost is how much waits to go out at most; more keeps whoever puts waiting.
const outMost = 1 << 20

func newStream(conn io.ReadWriteCloser) *stream {
	s := &stream{in: bufio.NewReaderSize(conn, buffered), done: make(chan struct{})}
	s.change = sync.NewCond(&s.mu)
	s.close = conn.Close
	quiet := time.AfterFunc(silence, func() { conn.Close() })
	s.heard = func() { quiet.Reset(silence) }
	s.mu.Lock() // the function below takes it first
	defer s.mu.Unlock()
	var alive *time.Timer
	alive = time.AfterFunc(aliveEvery, func() {
		if s.put(kindAlive) == nil {
			alive.Reset(aliveEvery)
		}
	})
	s.closed = func() { quiet.Stop(); alive.Stop() }
	go s.run(conn)
	return s
}

func (s *stream) run(conn io.WriteCloser) {
	defer close(s.done)
	var spare []byte
	for {
		s.mu.Lock()
		for len(s.out) == 0 && s.err == nil && !s.ended {
			s.change.Wait()
		}
		batch := s.out
		s.out = spare[:0]
		over := s.err != nil || s.ended && len(batch) == 0
		s.change.Broadcast()
		s.mu.Unlock()
		if over {
			return
		}
		if _, err := conn.Write(batch); err != nil {
			s.fail(err)
			return
		}
		spare = batch
	}
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.change.Broadcast()
	s.mu.Unlock()
}

// put sends a frame, whose payload is the parts one after the other.
func (s *stream) put(k kind, parts ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) > outMost && s.err == nil {
		s.change.Wait()
	}
	if s.err != nil {
		return s.err
	}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	s.out = binary.BigEndian.AppendUint32(append(s.out, byte(k)), uint32(size))
	for _, p := range parts {
		s.out = append(s.out, p...)
	}
	s.change.Broadcast()
	return nil
}

// end lets what was put go out, and no more, and closes the connection.
func (s *stream) end() {
	s.closed()
	s.mu.Lock()
	s.ended = true
	s.change.Broadcast()
	s.mu.Unlock()
	drained := make(chan struct{})
	go func() { // whoever writes to this end would not read what goes out
		defer close(drained)
		_, _ = io.Copy(io.Discard, s.in)
	}()
	select {
	case <-s.done:
	case <-time.After(10 * time.Second): // nobody reads
		s.fail(errors.New("ended"))
	}
	_ = s.close()
	<-drained
}

// next gives the next frame; its payload holds until the one after. The other end's failure is an error.
func (s *stream) next() (k kind, payload []byte, err error) {
	for {
		k, payload, err = readFrame(s.in, &s.frame)
		if err != nil {
			return 0, nil, err
		}
		s.heard()
		switch k {
		case kindAlive:
			continue
		case kindFailed:
			return 0, nil, &FailedError{string(payload[:min(len(payload), wordsMost)])}
		}
		return k, payload, nil
	}
}

func readFrame(r io.Reader, buffer *[]byte) (kind, []byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("the copy was cut: %w", err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > frameMost {
		return 0, nil, malformed("it is too long")
	}
	if cap(*buffer) < int(size) {
		*buffer = make([]byte, size)
	}
	payload := (*buffer)[:size]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("the copy was cut: %w", err)
	}
	return kind(head[0]), payload, nil
}

// FailedError is why the other end gave up, in its words.
type FailedError struct{ Why string }

func (e *FailedError) Error() string { return e.Why }

// tell says why this end gives up, unless the other did.
func (s *stream) tell(err error) {
	var theirs *FailedError
	if err != nil && !errors.As(err, &theirs) && !s.told {
		s.told = true
		words := err.Error()
		_ = s.put(kindFailed, []byte(words[:min(len(words), wordsMost)]))
	}
}
