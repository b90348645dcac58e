package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
)

// A snapshot of a guest's volume is a file system in a file, as that volume is: however it is filled, it takes no more of the disk than its size says, and
// nothing that a guest wrote is in a file system of the laptop's. It is the file inSnapshotImage in the folder of the snapshot.
const inSnapshotImage = "image"

// counted reports whether a snapshot is one that Kith makes for a guest, under a contract that counts it.
func counted(labels map[string]string) bool {
	return labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && labels[v1alpha1.LabelConsumer] != "" && labels[v1alpha1.LabelHomeSnapshot] != ""
}

// copyImage makes a copy of a guest's volume, as it is at one moment, of at most so many bytes. Its file system is made to rest meanwhile: what is in the
// file then needs no repair.
func (f *folders) copyImage(ctx context.Context, path, into string, most int64) (moment time.Time, err error) {
	half := into + halfSuffix
	return f.copy(ctx, path+imageSuffix, into, func(ctx context.Context) ([]types.UID, error) { return f.usersOf(ctx, filepath.Join(path, inImage)) }, copying{
		room: func(context.Context) error { return roomForImage(path+imageSuffix, filepath.Dir(into)) },
		make: func() error { return newFile(half) },
		pass: func(ctx context.Context, still bool) error {
			if !still {
				return sameFile(ctx, path+imageSuffix, half, most)
			}
			thaw, err := f.rest(ctx, path)
			if err != nil {
				return err
			}
			return errors.Join(sameFile(ctx, path+imageSuffix, half, most), thaw())
		},
	})
}

// filledImage makes the file of a guest's volume, of so many bytes, of one of a snapshot; one that is there is right.
func (f *folders) filledImage(ctx context.Context, path string, b *begin, size int64) error {
	if _, err := os.Lstat(path + imageSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if least := b.least.Value(); size < least {
		return refuse("dataSource: the claim asks for %d bytes, and what it is to begin with needs %d", size, least)
	}
	release, ok := f.take(b.from)
	if !ok || !f.copies.TryLock() {
		if ok {
			release()
		}
		return errBusy
	}
	defer release()
	defer f.copies.Unlock()
	if err := roomForImage(b.image, f.root); err != nil {
		return err
	}
	half := path + halfSuffix
	err := errors.Join(gone(os.Remove(half)), newFile(half))
	if err == nil {
		err = sameFile(ctx, b.image, half, max(size, leastImage))
	}
	if err == nil {
		err = os.Truncate(half, max(size, leastImage))
	}
	for _, step := range [][]string{{"e2fsck", "-f", "-p", half}, {"resize2fs", half}} {
		if err == nil {
			err = run(ctx, step)
		}
	}
	if err == nil {
		err = syncFile(half)
	}
	if err == nil {
		err = os.Rename(half, path+imageSuffix)
	}
	if err != nil {
		return errors.Join(err, gone(os.Remove(half)))
	}
	return nil
}

func newFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// roomForImage says why a file is not copied to the disk of a folder.
func roomForImage(path, folder string) error {
	var file unix.Stat_t
	if err := unix.Lstat(path, &file); err != nil {
		return err
	}
	if err := roomFor(uint64(file.Blocks)*512, folder); err != nil {
		return &refusedError{err.Error()}
	}
	return nil
}

// copiedAtOnce is how much of two files is compared before it is looked whether that is to end.
const copiedAtOnce = 1 << 20

// sameFile makes a file the same as another of at most so many bytes. What is a hole there is one here.
func sameFile(ctx context.Context, path, into string, most int64) error {
	from, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(into, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	is, err := from.Stat()
	if err != nil {
		return err
	}
	size := is.Size()
	if size > most {
		return fmt.Errorf("%s has become larger meanwhile; it is copied again", filepath.Base(path))
	}
	if err := to.Truncate(size); err != nil {
		return err
	}
	ours, theirs := make([]byte, copiedAtOnce), make([]byte, copiedAtOnce)
	for at := int64(0); at < size; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = size, nil
		}
		if err != nil {
			return err
		}
		if data = min(data, size); data > at {
			if err := unix.Fallocate(int(to.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, data-at); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(into), err)
			}
		}
		hole := size
		if data < size {
			if hole, err = from.Seek(data, unix.SEEK_HOLE); err != nil {
				return err
			}
		}
		for at = data; at < min(hole, size); {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(copiedAtOnce, min(hole, size)-at)
			if err := errors.Join(readAt(from, theirs[:n], at), readAt(to, ours[:n], at)); err != nil {
				return err
			}
			if !bytes.Equal(ours[:n], theirs[:n]) {
				if _, err := to.WriteAt(theirs[:n], at); err != nil {
					return err
				}
			}
			at += n
		}
	}
	return nil
}

func readAt(file *os.File, into []byte, at int64) error {
	_, err := io.ReadFull(io.NewSectionReader(file, at, int64(len(into))), into)
	return err
}

// FIFREEZE and FITHAW (linux/fs.h: _IOWR('X', 119, int) and 120), by which a file system has nothing left to write, and goes on.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// rest has the file system of a guest's volume write all that it has to its file, and nothing more until what it gives is called. Nobody makes the volume larger
// or removes it meanwhile, and others' volumes go on.
//
// It waits for whoever is writing there, and no longer than ctx lasts: a guest that never ends a write keeps nobody but itself from a snapshot.
func (f *folders) rest(ctx context.Context, path string) (func() error, error) {
	mount, err := f.apartMounted(path)
	if err != nil {
		return nil, err
	}
	free := func() {
		mount.Close()
		f.images.Lock()
		defer f.images.Unlock()
		delete(f.apart, path)
	}
	thaw := func() error {
		defer free()
		if err := unix.IoctlSetInt(int(mount.Fd()), fiThaw, 0); err != nil {
			return fmt.Errorf("volume %s: have its file system go on: %w", filepath.Base(path), err)
		}
		return nil
	}
	rests := make(chan error)
	go func() {
		err := unix.IoctlSetInt(int(mount.Fd()), fiFreeze, 0)
		select {
		case rests <- err:
		case <-ctx.Done(): // nobody waits for it any more
			if err != nil {
				free()
			} else {
				_ = thaw()
			}
		}
	}()
	select {
	case err = <-rests:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err != nil {
		free()
		return nil, fmt.Errorf("volume %s: have its file system rest: %w", filepath.Base(path), err)
	}
	return thaw, nil
}

// apartMounted opens what is mounted at the path of a guest's volume, and has nobody else make that larger or remove it.
func (f *folders) apartMounted(path string) (*os.File, error) {
	f.images.Lock()
	defer f.images.Unlock()
	if f.apart[path] {
		return nil, errBusy
	}
	mount, err := guestFiles(path)
	if err != nil {
		return nil, err
	}
	if f.apart == nil {
		f.apart = map[string]bool{}
	}
	f.apart[path] = true
	return mount, nil
}

// Awake has the file systems of guests' volumes go on that rested when this program was killed. Call it before LetGo: whoever writes there waits for it,
// this program, too.
func Awake(root string, log *slog.Logger) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), imageSuffix)
		if !is || !e.Type().IsRegular() {
			continue
		}
		if err := awake(filepath.Join(root, name)); err != nil && !errors.Is(err, errNotMounted) && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the file system of a guest's volume may rest since a snapshot of it broke off; what writes there waits", "volume", name, "err", err)
		}
	}
}

func awake(path string) error {
	mount, err := guestFiles(path)
	if err != nil {
		return err
	}
	defer mount.Close()
	err = unix.IoctlSetInt(int(mount.Fd()), fiThaw, 0)
	if errors.Is(err, unix.EINVAL) { // it did not rest
		return nil
	}
	return err
}

var errNotMounted = errors.New("it is not mounted")

// guestFiles opens what is mounted at the path of a guest's volume. That must be a loop device and none other: what is below, were there none, is the
// laptop's own file system.
func guestFiles(path string) (*os.File, error) {
	mount, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var is, above unix.Stat_t
	if err := errors.Join(unix.Fstat(int(mount.Fd()), &is), unix.Lstat(filepath.Dir(path), &above)); err != nil {
		mount.Close()
		return nil, err
	}
	if is.Dev == above.Dev || unix.Major(is.Dev) != loopMajor {
		mount.Close()
		return nil, fmt.Errorf("volume %s: %w", filepath.Base(path), errNotMounted)
	}
	return mount, nil
}
