package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errInUse: the file system grows when nobody has it.
var errInUse = errors.New("it is in use, and the kernel does not let its file system grow meanwhile")

// growImage makes a volume of at least so many bytes of one that is smaller, while pods go on. What it does is done already, or done once more: the
// file is larger on the disk before the file system in it is, so that there is no moment at which it could not be mounted.
//
// In a container the kernel may refuse to let a mounted file system grow. Then that is done while nobody has it; the error is errInUse until then.
func growImage(ctx context.Context, path string, size int64) error {
	if _, err := os.Lstat(path + imageSuffix); err != nil { // it was deleted a moment ago
		return fmt.Errorf("volume %s: make it larger: %w", filepath.Base(path), err)
	}
	if err := mountImage(path); err != nil {
		return err
	}
	device, err := lengthen(path, size)
	if err == nil {
		defer device.Close()
		err = resize(path, device)
		if errors.Is(err, unix.EPERM) {
			err = growUnused(ctx, path, device)
		}
	}
	if err != nil {
		return fmt.Errorf("volume %s: make it larger: %w", filepath.Base(path), err)
	}
	return nil
}

// lengthen makes the file of a mounted volume, and the device over it, at least so long.
func lengthen(path string, size int64) (*os.File, error) {
	file, err := os.OpenFile(path+imageSuffix, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if is.Size() < size {
		if err := errors.Join(file.Truncate(size), file.Sync()); err != nil {
			return nil, err
		}
	}
	var at unix.Stat_t
	if err := unix.Lstat(path, &at); err != nil {
		return nil, err
	}
	if unix.Major(at.Dev) != loopMajor {
		return nil, errors.New("what is mounted there is no file")
	}
	device, err := openLoop(int(unix.Minor(at.Dev)))
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		device.Close()
		return nil, fmt.Errorf("%s: %w", device.Name(), err)
	}
	return device, nil
}

// ext4Resize is EXT4_IOC_RESIZE_FS, by which a mounted file system gets a number of blocks (fs/ext4/ext4.h: _IOW('f', 16, __u64)).
const ext4Resize = 0x40086610

// resize has the file system that is mounted at path fill its device.
func resize(path string, device *os.File) error {
	bytes, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	mount, err := os.Open(path)
	if err != nil {
		return err
	}
	defer mount.Close()
	var made unix.Statfs_t
	if err := unix.Fstatfs(int(mount.Fd()), &made); err != nil {
		return err
	}
	blocks := uint64(bytes / made.Bsize)
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, mount.Fd(), ext4Resize, uintptr(unsafe.Pointer(&blocks))); no != 0 {
		return fmt.Errorf("ext4 on %s: %w", device.Name(), no)
	}
	return nil
}

// growUnused has the file system fill its file while nobody has it. A copy grows, and takes the place of the file when it is whole.
func growUnused(ctx context.Context, path string, device *os.File) error {
	used, err := inUse(path)
	switch {
	case err != nil:
		return err
	case used:
		return errInUse
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); errors.Is(err, unix.EBUSY) {
		return errInUse
	} else if err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	if err := alone(device); err != nil {
		back := unix.Mount(device.Name(), path, "ext4", mountFlags, mountOptions)
		if errors.Is(err, unix.EBUSY) && back == nil {
			return errInUse
		}
		return errors.Join(err, back)
	}
	device.Close() // the last: it lets go of the file
	file, half := path+imageSuffix, path+".half"
	for _, step := range [][]string{
		{"cp", "--sparse=always", "--reflink=auto", file, half},
		{"e2fsck", "-f", "-p", half},
		{"resize2fs", half},
	} {
		if err = run(ctx, step); err != nil {
			break
		}
	}
	if err == nil {
		err = errors.Join(syncFile(half), os.Rename(half, file))
	}
	return errors.Join(err, gone(os.Remove(half)), mountImage(path))
}

// Until when, and how often, a device is tried that a pod which ends just now still has: the kernel takes away the mounts of its containers after
// their last process. A pod that starts in its place finds nothing mounted meanwhile, and tries again by itself.
const (
	endsWithin = time.Second
	endsPause  = 20 * time.Millisecond
)

// alone waits until nobody has a device mounted, in whatever namespace.
func alone(device *os.File) error {
	for end := time.Now().Add(endsWithin); ; time.Sleep(endsPause) {
		file, err := os.OpenFile(device.Name(), os.O_RDWR|unix.O_EXCL, 0)
		if err == nil {
			return file.Close()
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// run calls a program of e2fsprogs, or of coreutils.
func run(ctx context.Context, command []string) error {
	program, err := installed(command[0])
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, command[1:]...).CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && command[0] == "e2fsck" && ended.ExitCode() == 1 { // it corrected something
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func syncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
