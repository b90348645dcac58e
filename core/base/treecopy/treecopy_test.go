//go:build linux

package treecopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"kith.dev/test/treetest"
)

// copies carries the folder from to the folder to, by a Relay.
func copies(t *testing.T, from, to string, o Options) (Stats, error) {
	t.Helper()
	return copiesBy(t, from, to, o, LimitsOf(1<<30), func(c io.ReadWriteCloser) io.ReadWriteCloser { return c })
}

func copiesBy(t *testing.T, from, to string, o Options, limits Limits, way func(io.ReadWriteCloser) io.ReadWriteCloser) (Stats, error) {
	t.Helper()
	a, b := net.Pipe()
	c, d := net.Pipe()
	sent, received := make(chan error, 1), make(chan error, 1)
	var atSender, atReceiver Stats
	go func() {
		var err error
		atSender, err = Send(t.Context(), a, from, o)
		sent <- err
	}()
	go func() {
		var err error
		atReceiver, err = Receive(t.Context(), d, to, limits)
		received <- err
	}()
	relayed, err := Relay(t.Context(), way(b), c, nil, func(Progress) {})
	err = errors.Join(err, <-sent, <-received)
	if err == nil && (relayed != atReceiver || atSender != relayed) {
		t.Errorf("%+v at the sender, %+v at the receiver, %+v in between", atSender, atReceiver, relayed)
	}
	return relayed, err
}

func same(t *testing.T, from, to string) {
	t.Helper()
	if differs := treetest.Differ(tree(t, from), tree(t, to)); differs != "" {
		t.Fatal(differs)
	}
}

func tree(t *testing.T, root string) []string {
	t.Helper()
	all, err := treetest.List(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

type filler struct {
	*testing.T
	root string
	*rand.Rand
}

func (f filler) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.Uint32())
	}
	return b
}

func (f filler) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f filler) write(name string, b []byte) string {
	f.Helper()
	path := filepath.Join(f.root, name)
	f.check(os.MkdirAll(filepath.Dir(path), 0o755))
	f.check(os.WriteFile(path, b, 0o640))
	return path
}

// fill makes one of everything.
func fill(t *testing.T, root string) filler {
	t.Helper()
	f := filler{t, root, rand.New(rand.NewPCG(1, 2))}
	f.write("empty", nil)
	f.write("small", f.bytes(10))
	f.write("even", f.bytes(4*blockSize))
	f.write("odd", f.bytes(3*blockSize+17))
	f.write("a/b/c/deep", f.bytes(1000))
	f.write("a.b", f.bytes(5)) // before a/ in the order of paths, behind it in that of names
	for i := range 300 {
		f.write(fmt.Sprintf("many/%d", i), f.bytes(f.IntN(3000)))
	}
	f.check(os.Mkdir(filepath.Join(root, "nothing"), 0o700))
	first := f.write("links/first", f.bytes(blockSize+1))
	f.check(os.Link(first, filepath.Join(root, "a/second")))
	f.check(os.Link(first, filepath.Join(root, "zz")))
	f.check(os.Symlink("../nowhere", filepath.Join(root, "a/symlink")))
	f.check(os.Symlink("/etc/passwd", filepath.Join(root, "absolute")))
	f.check(unix.Mkfifo(filepath.Join(root, "fifo"), 0o622))
	f.check(unix.Mknod(filepath.Join(root, "socket"), unix.S_IFSOCK|0o600, 0))

	sparse, err := os.Create(filepath.Join(root, "sparse"))
	f.check(err)
	_, err = sparse.WriteAt(f.bytes(5000), 40<<20)
	f.check(err)
	_, err = sparse.WriteAt(f.bytes(100), 140<<20+13)
	f.check(err)
	f.check(sparse.Truncate(150<<20 + 7))
	f.check(sparse.Close())

	for _, name := range []string{"small", "a"} {
		f.check(unix.Setxattr(filepath.Join(root, name), "user.colour", []byte("blue\x00green"), 0))
	}
	// user::rw- user:1234:r-- group::r-- mask::r-- other::---
	acl := []byte{2, 0, 0, 0}
	for _, e := range [][3]uint32{{1, 6, 1<<32 - 1}, {2, 4, 1234}, {4, 4, 1<<32 - 1}, {16, 4, 1<<32 - 1}, {32, 0, 1<<32 - 1}} {
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
		acl = binary.LittleEndian.AppendUint32(acl, e[2])
	}
	f.check(unix.Setxattr(filepath.Join(root, "odd"), "system.posix_acl_access", acl, 0))
	f.check(unix.Setxattr(filepath.Join(root, "a/b"), "system.posix_acl_default", acl, 0))
	f.check(unix.Chmod(filepath.Join(root, "a/b/c/deep"), 0o4711))
	f.check(unix.Chmod(filepath.Join(root, "many"), 0o3777))
	if os.Getuid() == 0 {
		f.check(os.Chown(filepath.Join(root, "small"), 1001, 65534))
		f.check(os.Lchown(filepath.Join(root, "absolute"), 7, 8))
		f.check(unix.Setxattr(filepath.Join(root, "even"), "security.capability", []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0))
		f.check(os.Chown(filepath.Join(root, "nothing"), 12, 13))
	}
	for i, name := range []string{"odd", "a", "fifo"} {
		at := time.Unix(int64(1e9+i), 123456789)
		f.check(os.Chtimes(filepath.Join(root, name), at, at))
	}
	return f
}

// A folder is copied with all that belongs to it, and once it is there nothing of it is sent again.
func TestOneFolderBecomesLikeAnother(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	fill(t, from)
	is, err := copies(t, from, to, Options{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, from, to)
	if is.Entries < 300 || is.Bytes < 150<<20 || is.Sent > 4<<20 {
		t.Errorf("%+v", is)
	}
	var a, b unix.Stat_t
	if err := errors.Join(unix.Stat(filepath.Join(from, "sparse"), &a), unix.Stat(filepath.Join(to, "sparse"), &b)); err != nil || b.Blocks > a.Blocks {
		t.Errorf("%d and %d blocks, %v", a.Blocks, b.Blocks, err)
	}
	for _, o := range []Options{{}, {Still: true}} {
		if is, err := copies(t, from, to, o); err != nil || is.Sent != 0 {
			t.Fatalf("%+v, %v", is, err)
		}
		same(t, from, to)
	}
	// Into an empty folder at once, too.
	third := t.TempDir()
	if _, err := copies(t, from, third, Options{Still: true}); err != nil {
		t.Fatal(err)
	}
	same(t, from, third)
}

// A second copy takes what changed, whatever that was.
func TestASecondCopyTakesWhatChanged(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	f := fill(t, from)
	if _, err := copies(t, from, to, Options{}); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(from, name) }
	change := func(name string, offset int64, b []byte) {
		file, err := os.OpenFile(at(name), os.O_RDWR, 0)
		f.check(err)
		_, err = file.WriteAt(b, offset)
		f.check(errors.Join(err, file.Close()))
	}
	change("even", 2*blockSize+5, []byte("x"))
	change("sparse", 40<<20, make([]byte, 5000)) // which was data
	change("sparse", 100<<20, []byte("here"))
	change("zz", 0, []byte("all names"))
	f.check(os.Truncate(at("odd"), blockSize+3))
	f.check(os.Truncate(at("small"), blockSize+3))
	f.check(os.Remove(at("many/7")))
	f.check(os.RemoveAll(at("a/b")))
	f.write("a/b", []byte("a file that was a folder"))
	f.check(os.Remove(at("empty")))
	f.write("empty/any", []byte("a folder that was a file"))
	f.check(os.Remove(at("absolute")))
	f.check(os.Symlink("elsewhere", at("absolute")))
	f.check(os.Remove(at("a/second"))) // the link is a file of its own, and another became one
	f.write("a/second", []byte("alone"))
	f.check(os.Link(at("small"), at("small too")))
	f.check(os.Remove(at("fifo")))
	f.check(os.Symlink("socket", at("fifo")))
	f.check(unix.Removexattr(at("small"), "user.colour"))
	f.check(unix.Removexattr(at("odd"), "system.posix_acl_access"))
	f.check(os.Chmod(at("nothing"), 0o711))
	// What only the copy has goes, and no link of it leads anything astray.
	outside := t.TempDir()
	f.check(os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o600))
	f.check(os.Symlink(outside, filepath.Join(to, "extra")))
	f.check(os.RemoveAll(filepath.Join(to, "many")))
	f.check(os.Symlink(outside, filepath.Join(to, "many")))
	f.check(os.Remove(filepath.Join(to, "small")))
	f.check(os.Link(filepath.Join(to, "even"), filepath.Join(to, "small"))) // two files that are one here

	is, err := copies(t, from, to, Options{Still: true})
	if err != nil {
		t.Fatal(err)
	}
	same(t, from, to)
	if is.Sent > 2<<20 {
		t.Errorf("%d bytes were sent", is.Sent)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// cutAfter breaks a stream after so many bytes read.
type cutAfter struct {
	io.ReadWriteCloser
	left int
}

func (c *cutAfter) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadWriteCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// A copy that is cut, wherever that is, goes on from there.
func TestACopyThatIsCutGoesOn(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	fill(t, from)
	var sent int64
	for at := 1; ; at = at*3/2 + 1000 {
		is, err := copiesBy(t, from, to, Options{}, LimitsOf(1<<30), func(c io.ReadWriteCloser) io.ReadWriteCloser { return &cutAfter{c, at} })
		sent += is.Sent
		if err == nil {
			break
		}
		if at > 64<<20 {
			t.Fatal(err)
		}
	}
	same(t, from, to)
	if sent > 2<<20 { // the last, which was not cut, had hardly anything to send
		t.Errorf("%d bytes", sent)
	}
}

// While somebody writes, a copy ends; then nothing changes any more, and the last one makes both the same.
func TestACopyOfWhatIsBeingWritten(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	f := fill(t, from)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan bool)
	go func() {
		defer close(over)
		for i := 0; ctx.Err() == nil; i++ {
			name := filepath.Join(from, "many", fmt.Sprint(f.IntN(400)))
			switch i % 4 {
			case 0:
				os.RemoveAll(name)
			case 1:
				os.WriteFile(name, f.bytes(f.IntN(300000)), 0o600)
			case 2:
				os.Mkdir(name, 0o700)
				os.WriteFile(name+"/x", nil, 0o600)
			case 3:
				os.Truncate(filepath.Join(from, "odd"), int64(f.IntN(4*blockSize)))
			}
		}
	}()
	for range 5 {
		if _, err := copies(t, from, to, Options{}); err != nil {
			t.Error(err)
		}
	}
	stop()
	<-over
	if _, err := copies(t, from, to, Options{Still: true}); err != nil {
		t.Fatal(err)
	}
	same(t, from, to)
}

// Whatever cannot be copied is named, and said on both sides.
func TestWhatIsNotCopiedIsSaid(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	deep := from
	for range depthMost + 1 {
		deep += "/d"
		if err := os.Mkdir(deep, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := copies(t, from, to, Options{}); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Error(err)
	}
	from = t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "big"), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	way := func(c io.ReadWriteCloser) io.ReadWriteCloser { return c }
	if _, err := copiesBy(t, from, to, Options{}, Limits{Bytes: 1 << 19, Entries: 100}, way); err == nil || !strings.Contains(err.Error(), "a file of 1048576 bytes") && !strings.Contains(err.Error(), "524288 bytes") {
		t.Error(err)
	}
	if _, err := copiesBy(t, from, to, Options{}, Limits{Bytes: 1 << 30, Entries: 1}, way); err == nil || !strings.Contains(err.Error(), "more than 1 files") {
		t.Error(err)
	}
	dir, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	held := namesMost
	if names, err := list(dir, &held); err == nil || !strings.Contains(err.Error(), "names in one folder") || held != namesMost {
		t.Errorf("%v, %v, %d names are held", names, err, held)
	}
	if _, err := copies(t, filepath.Join(from, "missing"), to, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := unix.Mknod(filepath.Join(from, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip(err)
	}
	if _, err := copies(t, from, to, Options{}); err == nil || !strings.Contains(err.Error(), "null is a device") {
		t.Error(err)
	}
}

func TestACopyIsNoFasterThanAllowed(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	f := filler{t, from, rand.New(rand.NewPCG(1, 2))}
	f.write("x", f.bytes(2<<20))
	a, b := net.Pipe()
	c, d := net.Pipe()
	go Send(t.Context(), a, from, Options{})
	go Receive(t.Context(), d, to, LimitsOf(1<<30))
	limit := rate.NewLimiter(4<<20, 256<<10)
	began := time.Now()
	if _, err := Relay(t.Context(), b, c, limit, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("2 MiB at 4 MiB/s took %s", took)
	}
}

// frames are what a sender says that is not ours.
type frames struct{ bytes.Buffer }

func (f *frames) put(k kind, parts ...[]byte) *frames {
	b := bytes.Join(parts, nil)
	f.Write(binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(len(b))))
	f.Write(b)
	return f
}

func (f *frames) entry(e entry) *frames { return f.put(kindEntry, e.append(nil)) }

// scripted is a stream of what was written before; what comes back is thrown away.
type scripted struct{ io.Reader }

func (scripted) Write(p []byte) (int, error) { return len(p), nil }
func (scripted) Close() error                { return nil }

func hello(still byte) *frames {
	return new(frames).put(kindHello, []byte{version, still}, Stats{}.append(nil)).entry(entry{Type: typeFolder, Mode: 0o700})
}

// A sender that lies gets nowhere: neither out of the folder, nor to more than its share.
func TestASenderThatLies(t *testing.T) {
	root := entry{Type: typeFolder, Mode: 0o755}
	dir := func(name string) entry { return entry{Name: name, Type: typeFolder, Mode: 0o755} }
	file := func(name string, size int64) entry { return entry{Name: name, Type: typeFile, Mode: 0o644, Size: size} }
	symlink := func(name, to string) entry { return entry{Name: name, Type: typeSymlink, Target: to} }
	hard := func(name, to string) entry { return entry{Name: name, Type: typeHardlink, Target: to} }
	block := func(n, b uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, n), b)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	sums := func(first uint64, n int) []byte {
		return append(binary.BigEndian.AppendUint64(nil, first), bytes.Repeat([]byte{7}, n*sha256.Size)...)
	}
	for what, script := range map[string]*frames{
		"a name up":                 hello(0).entry(file("..", 0)),
		"a name with a slash":       hello(0).entry(file("a/b", 0)),
		"a name with nothing":       hello(0).entry(file("", 0)),
		"the folder twice":          hello(0).entry(root),
		"names out of order":        hello(0).entry(file("b", 0)).entry(file("a", 0)),
		"a name twice":              hello(0).entry(symlink("a", outside)).entry(dir("a")),
		"a link to elsewhere":       hello(0).entry(symlink("a", outside)).entry(hard("b", "a/secret")),
		"a link up":                 hello(0).entry(hard("b", "../secret")),
		"a link to the root":        hello(0).entry(hard("b", filepath.Join(outside, "secret"))),
		"a link to what was there":  hello(0).entry(hard("b", "there")),
		"a link to a symbolic link": hello(0).entry(symlink("a", outside+"/secret")).entry(hard("b", "a")),
		"up too often":              hello(0).put(kindUp).put(kindUp),
		"an entry after the folder": hello(0).put(kindUp).entry(file("a", 0)),
		"data without a file":       hello(0).put(kindData, block(0, 0), []byte("x")),
		"data that nobody wanted":   hello(1).entry(file("a", 1)).put(kindData, block(0, 0), []byte("x")),
		"data behind the end":       hello(1).entry(file("a", 1)).put(kindSums, sums(0, 1)).put(kindData, block(0, 1), []byte("x")),
		"other data":                hello(1).entry(file("a", 1)).put(kindSums, sums(0, 1)).put(kindData, block(0, 0), []byte("x")),
		"sums of too much":          hello(1).entry(file("a", 1)).put(kindSums, sums(0, 2)),
		"sums twice":                hello(1).entry(file("a", 3*blockSize)).put(kindSums, sums(1, 1)).put(kindSums, sums(0, 1)),
		"a file without data":       hello(1).entry(file("a", 1)).put(kindSums, sums(0, 1)).put(kindUp).put(kindEnd, Stats{Entries: 2, Bytes: 1}.append(nil)),
		"an end before the end":     hello(0).put(kindEnd, Stats{Entries: 1}.append(nil)),
		"an end with less":          hello(0).put(kindUp).put(kindEnd, Stats{Entries: 2}.append(nil)),
		"another version":           new(frames).put(kindHello, []byte{version + 1, 0}, Stats{}.append(nil)),
		"a long frame":              hello(0).put(kindEntry, make([]byte, frameMost+1)),
		"a foreign attribute":       hello(0).entry(entry{Name: "a", Type: typeFile, Xattrs: []xattr{{"trusted.overlay.opaque", []byte("y")}}}),
		"a device":                  hello(0).entry(entry{Name: "a", Type: typeLast + 1}),
		"a cut":                     hello(0).entry(dir("a")),
	} {
		to := t.TempDir()
		if err := os.WriteFile(filepath.Join(to, "there"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(what, "data without") {
			os.Remove(filepath.Join(to, "there"))
		}
		_, err := Receive(t.Context(), scripted{script}, to, LimitsOf(1<<20))
		if err == nil {
			t.Errorf("%s: taken", what)
		}
		if script.Len() > 0 && what != "a long frame" {
			t.Errorf("%s: refused before the last frame: %v", what, err)
		}
	}
	if left := tree(t, outside); len(left) != 2 || !strings.Contains(left[1], "of 1, 6 bytes") {
		t.Error(left)
	}
	// The one before was not refused for its beginning.
	if _, err := Receive(t.Context(), scripted{hello(0).put(kindUp).put(kindEnd, Stats{Entries: 1}.append(nil))}, t.TempDir(), LimitsOf(1<<20)); err != nil {
		t.Error(err)
	}
}

// A receiver that lies gets nothing that it did not have to be given.
func TestAReceiverThatLies(t *testing.T) {
	from := t.TempDir()
	filler{t, from, rand.New(rand.NewPCG(1, 2))}.write("x", []byte("x"))
	hello := func() *frames { return new(frames).put(kindHello, []byte{version, 0}) }
	for what, script := range map[string]*frames{
		"an answer to nothing": hello().put(kindWants, []byte{1}).put(kindWants, []byte{1}),
		"a long answer":        hello().put(kindWants, []byte{1, 2}),
		"a result too early":   new(frames).put(kindResult, Stats{}.append(nil)),
		"half a result":        hello().put(kindResult, []byte{1}),
		"a question":           hello().put(kindSums),
		"words":                hello().put(kindFailed, []byte("the disk is full")),
	} {
		a, b := net.Pipe()
		go func() {
			defer b.Close()
			// Its hello is answered by the first frame of the script; the rest comes when there is something that it could be about.
			said, first := script.Bytes(), headSize+int(binary.BigEndian.Uint32(script.Bytes()[1:]))
			await := func(want kind) {
				var buffer []byte
				for {
					if k, _, err := readFrame(b, &buffer); err != nil || k == want {
						return
					}
				}
			}
			await(kindHello)
			_, _ = b.Write(said[:first])
			if first < len(said) {
				await(kindSums)
				go io.Copy(io.Discard, b)
				_, _ = b.Write(said[first:])
			}
		}()
		_, err := Send(t.Context(), a, from, Options{})
		if err == nil || what == "words" && !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestACopyEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	a, b := net.Pipe()
	defer b.Close()
	why := errors.New("somebody changed their mind")
	time.AfterFunc(10*time.Millisecond, func() { stop(why) })
	if _, err := Send(ctx, a, t.TempDir(), Options{}); !errors.Is(err, why) {
		t.Error(err)
	}
}

func FuzzEntry(f *testing.F) {
	e := entry{Name: "a", Type: typeFile, Mode: 0o644, Size: 3, Xattrs: []xattr{{"user.a", []byte("b")}}}
	f.Add(e.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := readEntry(b)
		if err != nil {
			return
		}
		again, err := readEntry(e.append(nil))
		if err != nil || again.Name != e.Name || len(again.Xattrs) != len(e.Xattrs) || strings.Contains(e.Name, "/") {
			t.Errorf("%+v, %+v, %v", e, again, err)
		}
	})
}

// Whatever a sender says, nothing outside of the folder changes.
func FuzzReceive(f *testing.F) {
	f.Add(hello(0).entry(entry{Name: "a", Type: typeSymlink, Target: ".."}).put(kindUp).put(kindEnd, Stats{Entries: 2}.append(nil)).Bytes())
	f.Add(hello(1).entry(entry{Name: "a", Type: typeFile, Size: 5, Linked: true}).put(kindSums, make([]byte, 8+sha256.Size)).entry(entry{Name: "b", Type: typeHardlink, Target: "a"}).put(kindUp).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		above := t.TempDir()
		to := filepath.Join(above, "to")
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		_, _ = Receive(t.Context(), scripted{bytes.NewReader(b)}, to, Limits{Bytes: 1 << 20, Entries: 100})
		if left, err := os.ReadDir(above); err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
	})
}

// Into an empty folder, and while all is there already; over a pipe, so what the two ends cost.
func BenchmarkCopy(b *testing.B) {
	for name, fresh := range map[string]bool{"fresh": true, "compared": false} {
		b.Run(name, func(b *testing.B) {
			from, to := b.TempDir(), b.TempDir()
			block := make([]byte, 64<<20)
			rand.NewChaCha8([32]byte{}).Read(block)
			if err := os.WriteFile(filepath.Join(from, "large"), block, 0o600); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(block)))
			for b.Loop() {
				if fresh {
					b.StopTimer()
					os.Remove(filepath.Join(to, "large"))
					b.StartTimer()
				}
				x, y := net.Pipe()
				go Send(b.Context(), x, from, Options{})
				if _, err := Receive(b.Context(), y, to, LimitsOf(1<<30)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a folder takes of the disk is counted once, however many names it has, and nowhere else.
func TestWhatAFolderTakes(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "large")
	one := filepath.Join(dir, "one")
	err := errors.Join(os.WriteFile(one, make([]byte, 1<<20), 0o600), os.WriteFile(outside, make([]byte, 8<<20), 0o600))
	for _, name := range []string{"two", "three"} {
		err = errors.Join(err, os.Link(one, filepath.Join(dir, name)))
	}
	if err = errors.Join(err, os.Symlink(outside, filepath.Join(dir, "file")), os.Symlink(filepath.Dir(outside), filepath.Join(dir, "folder"))); err != nil {
		t.Fatal(err)
	}
	if takes, err := Takes(t.Context(), dir); err != nil || takes < 1<<20-3*512 || takes > 2<<20 {
		t.Error(takes, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Takes(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
