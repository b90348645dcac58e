package bugreport

import (
	"bytes"
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
	"time"

	"kith.dev/core/base/places"
	"kith.dev/daemon/config"
)

// sysctls are those that matter to pods and tunnels.
var sysctls = []string{
	"fs/file-nr", "fs/inotify/max_user_instances", "fs/inotify/max_user_watches", "kernel/osrelease", "kernel/pid_max", "kernel/threads-max",
	"net/bridge/bridge-nf-call-iptables", "net/core/rmem_max", "net/core/wmem_max", "net/ipv4/conf/all/forwarding", "net/ipv4/conf/all/rp_filter",
	"net/ipv4/conf/default/rp_filter", "net/ipv4/ip_forward", "net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/all/forwarding",
	"net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max", "user/max_user_namespaces", "vm/max_map_count", "vm/overcommit_memory",
}

// System are the parts of this machine. They need nobody; without root some say less.
func System() []Part {
	parts := []Part{
		{Name: "config.yaml", What: "the configuration of kithd", Make: func(context.Context) ([]byte, error) { return head(config.DefaultPath) }},
		{Name: "system/os.txt", What: "system, memory, load", Make: func(context.Context) ([]byte, error) {
			text := fmt.Appendf(nil, "%s/%s, %d processors\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
			for _, path := range []string{"/etc/os-release", "/proc/version", "/proc/uptime", "/proc/loadavg", "/proc/meminfo"} {
				b, _ := head(path) // not every system has each
				text = append(text, b...)
			}
			return text, nil
		}},
	}
	if runtime.GOOS != "linux" {
		return append(parts, command("network/addresses.txt", "the addresses of this machine", "ifconfig"), command("network/routes.txt", "its routes", "netstat", "-rn"))
	}
	return append(parts,
		Part{Name: "system/sysctls.txt", What: "settings of the kernel", Make: func(context.Context) ([]byte, error) {
			var b bytes.Buffer
			for _, key := range sysctls {
				value, err := os.ReadFile(filepath.Join("/proc/sys", key))
				if err != nil {
					value = []byte("?")
				}
				fmt.Fprintf(&b, "%s = %s\n", strings.ReplaceAll(key, "/", "."), strings.Join(strings.Fields(string(value)), " "))
			}
			return b.Bytes(), nil
		}},
		Part{Name: "system/mounts.txt", What: "what is mounted, without the volumes and containers of pods", Make: func(context.Context) ([]byte, error) {
			text, err := head("/proc/self/mountinfo")
			return withoutPods(text), err
		}},
		Part{Name: "system/modules.txt", What: "the modules of the kernel", Make: func(context.Context) ([]byte, error) { return head("/proc/modules") }},
		command("network/addresses.txt", "the devices and addresses of this machine", "ip", "addr"),
		command("network/routes.txt", "its routes, IPv4", "ip", "-4", "route", "show", "table", "all"),
		command("network/routes6.txt", "its routes, IPv6", "ip", "-6", "route", "show", "table", "all"),
		command("network/rules.txt", "which routes are for whom", "ip", "rule"),
		command("network/nft.txt", "the packet filter, without the elements of its sets", "nft", "--terse", "list", "ruleset"),
		Part{Name: "network/resolv.conf", What: "whom this machine asks for names", Make: func(context.Context) ([]byte, error) { return head("/etc/resolv.conf") }},
	)
}

// ServiceLog is the end of kithd's log where the service manager keeps it: systemd's journal, or the file that Kith writes on a Mac.
func ServiceLog() Part {
	const name, what = "logs/kithd.log", "the log of kithd"
	if file := places.Here().Log; file != "" {
		return Log(name, what, file)
	}
	return commandOf(name, what, true, []string{"journalctl", "--unit=kithd", "--no-pager", "--output=short-iso-precise", "--lines=20000"})
}

// OwnLog is the end of this process's log: the file that its standard error output is, else what the service manager keeps.
func OwnLog() Part {
	if path, err := os.Readlink("/proc/self/fd/2"); err == nil {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return Log("logs/kithd.log", "the log of kithd", path)
		}
	}
	return ServiceLog()
}

// Log is the end of a log file.
func Log(name, what, path string) Part {
	return Part{Name: name, What: what, End: true, Make: func(context.Context) ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is not a file")
		}
		if err == nil && info.Size() > maxPart {
			_, err = f.Seek(-maxPart, io.SeekEnd)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return io.ReadAll(io.LimitReader(f, maxPart+1)) // and does not end with a line when it goes on
	}}
}

// withoutPods leaves out of a mountinfo file (proc_pid_mountinfo(5)) what is mounted for pods, which names their volumes: Secrets, ConfigMaps and
// claims among them.
func withoutPods(mounts []byte) []byte {
	var out []byte
	left := 0
	for line := range bytes.Lines(mounts) {
		if f := bytes.Fields(line); len(f) > 4 && (bytes.Contains(f[4], []byte("/pods/")) || bytes.Contains(f[4], []byte("io.containerd."))) {
			left++
			continue
		}
		out = append(out, line...)
	}
	if left > 0 {
		out = fmt.Appendf(out, "and %d mounts of pods\n", left)
	}
	return out
}

// head is the beginning of a file; none is empty.
func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPart+1))
}

// command is what a program writes.
func command(name, what string, args ...string) Part {
	return commandOf(name, what, false, args)
}

func commandOf(name, what string, end bool, args []string) Part {
	return Part{Name: name, What: what + " (" + strings.Join(args, " ") + ")", End: end, Make: func(ctx context.Context) ([]byte, error) {
		path, err := exec.LookPath(args[0])
		if err != nil {
			if path, err = exec.LookPath("/usr/sbin/" + args[0]); err != nil {
				return nil, fmt.Errorf("%s is not installed", args[0])
			}
		}
		cmd := exec.CommandContext(ctx, path, args[1:]...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		cmd.WaitDelay = time.Second
		out, errs := limited{end: end}, limited{}
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return out.Bytes(), fmt.Errorf("%s: %w: %.300s", args[0], err, errs.String())
		}
		return out.Bytes(), nil
	}}
}

// limited keeps the beginning of what is written to it, or the end.
type limited struct {
	bytes.Buffer
	end bool
}

func (l *limited) Write(b []byte) (int, error) {
	n := len(b)
	if !l.end {
		b = b[:min(n, max(maxPart+1-l.Len(), 0))]
	}
	l.Buffer.Write(b)
	if over := l.Len() - 2*maxPart; over > 0 {
		l.Next(over + maxPart - 1)
	}
	return n, nil
}
