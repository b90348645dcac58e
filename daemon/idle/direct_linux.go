package idle

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// established is TCP_ESTABLISHED of the kernel's net/tcp_states.h, which sock_diag(7) gives.
const established = 1

// Direct names somebody who has a connection to a port of this machine, past the front door: a program here that is none of own, which are paths of
// executables, or an address of elsewhere. "": nobody.
func Direct(port uint16, own ...string) (string, error) {
	sockets, err := tcpSockets()
	if err != nil {
		return "", fmt.Errorf("who is connected to port %d: %w", port, err)
	}
	here := map[netip.AddrPort]uint32{} // the inode of each local end of a connection to the port
	for _, s := range sockets {
		if s.ID.DestinationPort == port {
			here[end(s.ID.Source, s.ID.SourcePort)] = s.INode
		}
	}
	clients := map[uint32]bool{} // those ends at which somebody may be
	for _, s := range sockets {
		if s.ID.SourcePort != port {
			continue
		}
		from := end(s.ID.Destination, s.ID.DestinationPort)
		inode, local := here[from]
		if !local {
			return from.Addr().String(), nil
		}
		clients[inode] = true
	}
	if len(clients) == 0 {
		return "", nil
	}
	return holder(clients, own)
}

func tcpSockets() (list []*netlink.Socket, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		some, wrong := netlink.SocketDiagTCP(family)
		err = errors.Join(err, wrong)
		for _, s := range some {
			if s.State == established {
				list = append(list, s)
			}
		}
	}
	return list, err
}

func end(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// hidden is said of a program that /proc does not show, as one in a container.
const hidden = "a program that cannot be seen"

// holder is a program that has one of these sockets open, and is none of own. A socket that nobody is seen to have is somebody's, too.
func holder(inodes map[uint32]bool, own []string) (string, error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return "", err
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", p.Name(), "exe"))
		if err != nil { // a thread of the kernel, or it has ended
			continue
		}
		exe = strings.TrimSuffix(exe, " (deleted)") // an update put another in its place
		open, _ := os.ReadDir(filepath.Join("/proc", p.Name(), "fd"))
		for _, f := range open {
			to, _ := os.Readlink(filepath.Join("/proc", p.Name(), "fd", f.Name()))
			var inode uint32
			if n, _ := fmt.Sscanf(to, "socket:[%d]", &inode); n != 1 || !inodes[inode] {
				continue
			}
			if !slices.Contains(own, exe) {
				return fmt.Sprintf("%s (process %d)", filepath.Base(exe), pid), nil
			}
			delete(inodes, inode)
		}
	}
	if len(inodes) == 0 {
		return "", nil
	}
	still, err := tcpSockets() // one that ended meanwhile is nobody's
	if slices.ContainsFunc(still, func(s *netlink.Socket) bool { return inodes[s.INode] }) {
		return hidden, err
	}
	return "", err
}
