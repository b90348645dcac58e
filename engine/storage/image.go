package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A volume whose size is a limit is a file system in a file: PATH.img, mounted at PATH. What pods see is the folder "data" in it, which is there
// only while it is mounted, so that no pod writes beside it.
const (
	imageSuffix = ".img"
	inImage     = "data"
)

// leastImage is what a file system needs for itself.
const leastImage = 8 << 20

// errNoMkfs: the program that makes file systems is not installed.
var errNoMkfs = errors.New("mkfs.ext4 is not installed (e2fsprogs), and volumes of guests are file systems of their own")

// mkfsAt is where the program may be, which many keep out of their PATH.
var mkfsAt = []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"}

func mkfs() (string, error) {
	for _, path := range mkfsAt {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", errNoMkfs
}

// installed finds a program, in the PATH or where those of root are.
func installed(program string) (string, error) {
	for _, path := range []string{program, "/usr/sbin/" + program, "/sbin/" + program} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", program)
}

// How file systems of guests are mounted.
const (
	mountFlags   = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	mountOptions = "discard"
)

// makeImage makes a volume of so many bytes at path, and mounts it; one that is there is right. The file takes no more of the disk than is in it.
func makeImage(ctx context.Context, path string, size int64) error {
	program, err := mkfs()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path + imageSuffix); errors.Is(err, fs.ErrNotExist) {
		if err := formatted(ctx, program, path, max(size, leastImage)); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return mountImage(path)
}

// formatted makes the file, which has its name once it is whole.
func formatted(ctx context.Context, program, path string, size int64) error {
	half := path + halfSuffix
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	file, err := os.OpenFile(half, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	// Nothing is kept back for root: a guest's root is nobody here.
	out, err := output(exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", half))
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(half, path+imageSuffix)
}

// mountImage mounts the volume at path, unless it is.
func mountImage(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mounted, err := isMount(path)
	if err != nil {
		return err
	}
	if !mounted {
		device, err := attach(path + imageSuffix)
		if err != nil {
			return fmt.Errorf("volume %s: %w", filepath.Base(path), err)
		}
		defer device.Close() // the mount keeps it, and its end lets it go
		if err := unix.Mount(device.Name(), path, "ext4", mountFlags, mountOptions); err != nil {
			return fmt.Errorf("volume %s: mount %s: %w", filepath.Base(path), device.Name(), err)
		}
	}
	// Databases want an empty folder; a check of the file system makes it again should it need one.
	if err := os.Remove(filepath.Join(path, "lost+found")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return makeFolder(path, inImage)
}

// isMount reports whether something is mounted at path.
func isMount(path string) (bool, error) {
	var is, above unix.Stat_t
	if err := errors.Join(unix.Lstat(path, &is), unix.Lstat(filepath.Dir(path), &above)); err != nil {
		return false, err
	}
	return is.Dev != above.Dev, nil
}

// attach gives the loop device for a file, which is free again when nobody has it open or mounted.
func attach(file string) (*os.File, error) {
	back, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer back.Close()
	if has, err := loopOf(back); has != nil || err != nil {
		return has, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 16 { // somebody else may be faster
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("a loop device: %w", err)
		}
		device, err := openLoop(n, os.O_RDWR)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(back.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if errors.Is(err, unix.EINVAL) { // a file system without direct I/O
			config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
			err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		}
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%s: %w", device.Name(), err)
		}
	}
	return nil, errors.New("no loop device is free")
}

// loopOf gives the loop device that has a file already, as while a pod has it mounted: a second one would be a second file system on the same blocks.
// It gives nil where none has it.
func loopOf(file *os.File) (*os.File, error) {
	var is unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &is); err != nil {
		return nil, err
	}
	all, err := os.ReadDir("/sys/block")
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "loop"))
		if err != nil {
			continue
		}
		device, err := openLoop(n, os.O_RDONLY) // others' may be read-only
		if errors.Is(err, unix.ENXIO) {         // it is gone meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		of, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && of.Device == is.Dev && of.Inode == is.Ino {
			return device, nil
		}
		device.Close()
		if err != nil && !errors.Is(err, unix.ENXIO) { // that one has no file
			return nil, fmt.Errorf("%s: %w", device.Name(), err)
		}
	}
	return nil, nil
}

// loopMajor is the kernel's number of loop devices (devices.txt).
const loopMajor = 7

// openLoop opens a loop device; where nobody makes the files of devices, it does.
func openLoop(n, flag int) (*os.File, error) {
	path := fmt.Sprintf("/dev/loop%d", n)
	device, err := os.OpenFile(path, flag, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return device, err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return os.OpenFile(path, flag, 0)
}

// Mount mounts the volumes below root that are file systems of their own. Call it before pods are started: after a restart of the machine nothing
// is mounted. One that cannot be mounted keeps the pods waiting that have it, and no others.
func Mount(root string, log *slog.Logger) {
	if err := mountImages(root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("a volume of a guest cannot be mounted; its pods wait", "err", err)
	}
}

func mountImages(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), imageSuffix); is && e.Type().IsRegular() {
			errs = append(errs, mountImage(filepath.Join(root, name)))
		}
	}
	return errors.Join(errs...)
}

// removeImage deletes a volume with all that is in it. While a pod has it, that fails.
func removeImage(path string) error {
	mounted, err := isMount(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case mounted:
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("volume %s: unmount: %w", filepath.Base(path), err)
		}
	}
	return errors.Join(gone(os.Remove(path)), gone(os.Remove(path+imageSuffix)), gone(os.Remove(path+halfSuffix)))
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
