package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errInUse: the file system grows when nobody has it.
var errInUse = errors.New("it is in use, and the kernel does not let its file system grow meanwhile")

// growImage makes a volume of at least so many bytes of one that is smaller, while pods go on. What it does is done already, or done once more: the
// file is larger on the disk before the file system in it is, so that there is no moment at which it could not be mounted.
//
// In a container the kernel may refuse to let a mounted file system grow. The error is errInUse then, and growUnused does it.
func growImage(path string, size int64) error {
	err := lengthen(path, size)
	if err == nil {
		err = growMounted(path)
	}
	if err != nil {
		return fmt.Errorf("volume %s: make it larger: %w", filepath.Base(path), err)
	}
	return nil
}

// lengthen makes the file of a volume at least so long.
func lengthen(path string, size int64) error {
	file, err := os.OpenFile(path+imageSuffix, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil { // it was deleted a moment ago
		return err
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil || is.Size() >= size {
		return err
	}
	return errors.Join(file.Truncate(size), file.Sync())
}

// growMounted has the file system fill its file while it is mounted.
func growMounted(path string) error {
	if err := mountImage(path); err != nil {
		return err
	}
	device, err := loopAt(path)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("%s: %w", device.Name(), err)
	}
	err = resize(path, device)
	if errors.Is(err, unix.EPERM) {
		return errInUse
	}
	return err
}

// loopAt opens the loop device that is mounted at path.
func loopAt(path string) (*os.File, error) {
	mounted, err := isMount(path)
	if err != nil {
		return nil, err
	}
	var at unix.Stat_t
	if err := unix.Lstat(path, &at); err != nil {
		return nil, err
	}
	if !mounted || unix.Major(at.Dev) != loopMajor {
		return nil, errors.New("what is mounted there is no file")
	}
	return openLoop(int(unix.Minor(at.Dev)), os.O_RDWR)
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

// growUnused has the file system fill its file while nobody has it, and says how large that is. A copy grows, and takes the place of the file when it
// is whole.
func growUnused(ctx context.Context, path string) (size int64, err error) {
	file, half := path+imageSuffix, path+halfSuffix
	if err := gone(os.Remove(half)); err != nil { // cp would write into that one, which a program of before may have open
		return 0, err
	}
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
		err = syncFile(half)
	}
	var is fs.FileInfo
	if err == nil {
		is, err = os.Lstat(half) // the file may be made longer again once it has its name
	}
	if err == nil {
		size, err = is.Size(), os.Rename(half, file)
	}
	return size, errors.Join(err, gone(os.Remove(half)))
}

// keptFree is how much of the disk a copy leaves free, in hundredths: with less the kubelet removes images, and what others' volumes are to hold would
// have no room.
const keptFree = 5

// roomForCopy says why a volume is not copied: what it takes is on the disk twice until the copy is in its place.
func roomForCopy(path string) error {
	var file unix.Stat_t
	if err := unix.Lstat(path+imageSuffix, &file); err != nil {
		return err
	}
	return roomFor(uint64(file.Blocks)*512, filepath.Dir(path))
}

// roomFor says why a copy that takes so many bytes is not made on the disk of a folder.
func roomFor(takes uint64, folder string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return err
	}
	free, kept := disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)/100*keptFree
	if free < takes+kept {
		return fmt.Errorf("a copy of it takes %d MB, and of the %d MB that are free on the disk %d stay free: make room there, and it goes on", takes/1e6, free/1e6, kept/1e6)
	}
	return nil
}

// run calls a program of e2fsprogs, or of coreutils.
func run(ctx context.Context, command []string) error {
	program, err := installed(command[0])
	if err != nil {
		return err
	}
	out, err := output(exec.CommandContext(ctx, program, command[1:]...))
	var ended *exec.ExitError
	if errors.As(err, &ended) && command[0] == "e2fsck" && ended.ExitCode() == 1 { // it corrected something
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// output runs a program, and gives what it said. It ends with this process, however that ends: the next one may work on the same volume.
func output(command *exec.Cmd) ([]byte, error) {
	runtime.LockOSThread() // it would end with the thread that started it
	defer runtime.UnlockOSThread()
	command.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return command.CombinedOutput()
}

func syncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
