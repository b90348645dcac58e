package pid1

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kith.dev/test/lab/cgroups"
)

// Overlaid are the directories a laptop shares with the machine to read; what it writes there goes to its own disk.
var overlaid = []string{"/etc", "/usr", "/opt", "/root"}

// kernelTunables are sysctls of the whole kernel that a kubelet wants to set. A laptop gets files that already read
// right, so that no laptop changes the machine.
var kernelTunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

const wholeProc = "/run/whole-proc"

func mountAll(spec Spec) error {
	// Nothing from here on may reach the machine's own mounts.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := letGo(); err != nil {
		return err
	}
	links := symlinks("/sys/fs/cgroup")
	// Programs that look for cgroups in the list of mounts must find the laptop's only.
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		return fmt.Errorf("unmount the machine's /sys: %w", err)
	}
	for _, m := range []func() error{
		mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		func() error { return mountCgroups(spec.Cgroup.Hierarchies, links) },
	} {
		if err := m(); err != nil {
			return err
		}
	}
	if spec.Disk == "" {
		return nil
	}
	if err := mountDisk(spec); err != nil {
		return err
	}
	// The kernel lets a user namespace have a /proc only where the mounts it comes from show a whole one, and the tunables
	// below cover parts of this laptop's (mount_too_revealing in fs/namespace.c).
	if err := os.Mkdir(wholeProc, 0o700); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := mount("proc", wholeProc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")(); err != nil {
		return err
	}
	if err := fakeTunables(); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("allow forwarding: %w", err)
	}
	// The kubelet and containerd expect what systemd makes: mounts that propagate to their children.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

func mount(source, target, fstype string, flags uintptr, data string) func() error {
	return func() error {
		if err := unix.Mount(source, target, fstype, flags, data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
		}
		return nil
	}
}

// letGo drops our copies of the machine's mounts of namespaces: as long as a copy exists somewhere the kernel keeps
// the namespace, with all devices in it, after its owner unmounted it.
func letGo() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		before, after, _ := strings.Cut(sc.Text(), " - ")
		if l := strings.Fields(before); len(l) > 4 && strings.HasPrefix(after, "nsfs ") {
			_ = unix.Unmount(l[4], unix.MNT_DETACH)
		}
	}
	return sc.Err()
}

// symlinks are those of a v1 /sys/fs/cgroup: cpu -> cpu,cpuacct.
func symlinks(dir string) map[string]string {
	links := map[string]string{}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			links[e.Name()] = to
		}
	}
	return links
}

// mountCgroups mounts the hierarchies where the machine has them. In the cgroup namespace each shows the laptop's own
// cgroup as its root.
func mountCgroups(hs []cgroups.Hierarchy, links map[string]string) error {
	const root = "/sys/fs/cgroup"
	if len(hs) != 1 || hs[0].Mount != root {
		if err := mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755")(); err != nil {
			return err
		}
	}
	for _, h := range hs {
		if h.Mount != root {
			if err := os.Mkdir(h.Mount, 0o755); err != nil {
				return fmt.Errorf("mount cgroups: %w", err)
			}
		}
		fstype := "cgroup"
		if h.V2 {
			fstype = "cgroup2"
		}
		if err := mount("cgroup", h.Mount, fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.Options)(); err != nil {
			return err
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			return fmt.Errorf("mount cgroups: %w", err)
		}
	}
	return nil
}

// mountDisk puts the laptop's own directories over the machine's. Sources are held open from before, as the disk is
// usually below /var/lib and the state below /run.
func mountDisk(spec Spec) error {
	hold := map[string]string{}
	for name, dir := range map[string]string{"disk": spec.Disk, "state": spec.State, "bin": spec.Bin} {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", dir, err)
		}
		defer unix.Close(fd)
		hold[name] = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	for _, dir := range overlaid {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		o := hold["disk"] + "/over" + dir
		data := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", dir, o, o)
		if err := mount("overlay", dir, "overlay", 0, data)(); err != nil {
			return fmt.Errorf("%w (the disks of a lab cannot lie on an overlay file system; choose another place by KITH_LAB_DIR)", err)
		}
	}
	for _, b := range [][2]string{{"tmp", "/tmp"}, {"tmp", "/var/tmp"}, {"log", "/var/log"}, {"lib", "/var/lib"}} {
		if err := mount(hold["disk"]+"/"+b[0], b[1], "", unix.MS_BIND, "")(); err != nil {
			return err
		}
	}
	for _, m := range []func() error{
		mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"),
		mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		bind(hold["state"], Inside),
		bind(hold["bin"], spec.Bin), // it may be below a directory that was just covered
	} {
		if err := m(); err != nil {
			return err
		}
	}
	return os.Mkdir("/run/lock", 0o1777)
}

func bind(source, target string) func() error {
	return func() error {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
		return mount(source, target, "", unix.MS_BIND, "")()
	}
}

func fakeTunables() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return fmt.Errorf("number this boot: %w", err)
	}
	all := maps.Clone(kernelTunables)
	all["kernel/random/boot_id"] = strings.TrimSpace(string(boot)) // of the laptop, not of the machine
	for name, value := range all {
		target := "/proc/sys/" + name
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue
		}
		file := "/run/sysctl-" + strings.ReplaceAll(name, "/", "-")
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("prepare sysctl %s: %w", name, err)
		}
		if err := mount(file, target, "", unix.MS_BIND, "")(); err != nil {
			return err
		}
	}
	return nil
}
