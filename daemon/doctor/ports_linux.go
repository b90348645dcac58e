package doctor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kith.dev/core/api"
)

func (m Machine) ports(_ context.Context, report func(api.Finding)) {
	sockets := map[string]map[uint16][]uint64{}
	for _, network := range []string{"tcp", "udp"} {
		sockets[network] = map[uint16][]uint64{}
		for _, version := range []string{"", "6"} {
			if text, err := os.ReadFile("/proc/thread-self/net/" + network + version); err == nil {
				parseSockets(text, network == "tcp", sockets[network])
			}
		}
	}
	listeners := m.listeners()
	var inodes []uint64
	for _, l := range listeners {
		inodes = append(inodes, sockets[l.network][l.port]...)
	}
	owners := ownersOf(inodes)
	for _, l := range listeners {
		var holders []process
		for _, inode := range sockets[l.network][l.port] {
			if p := owners[inode]; !slices.Contains(holders, p) {
				holders = append(holders, p)
			}
		}
		report(m.judge(l, holders))
	}
}

// parseSockets reads /proc/net/{tcp,udp}{,6} (proc_net_tcp.txt): of each bound port, the inodes of the sockets that
// wait for whoever comes.
func parseSockets(text []byte, listening bool, into map[uint16][]uint64) {
	const tcpListen, fields = "0A", 10
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < fields || listening && f[3] != tcpListen || strings.Trim(f[2][:strings.LastIndexByte(f[2], ':')+1], "0:") != "" {
			continue
		}
		_, port, _ := strings.Cut(f[1], ":")
		b, err := hex.DecodeString(port)
		inode, err2 := strconv.ParseUint(f[9], 10, 64)
		if err == nil && err2 == nil && len(b) == 2 {
			n := uint16(b[0])<<8 | uint16(b[1])
			into[n] = append(into[n], inode)
		}
	}
}

// ownersOf finds the processes that have these sockets open; for those it may not see, the zero process.
func ownersOf(inodes []uint64) map[uint64]process {
	owners := make(map[uint64]process, len(inodes))
	wanted := map[string]uint64{}
	for _, n := range inodes {
		wanted[fmt.Sprintf("socket:[%d]", n)] = n
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || len(wanted) == 0 {
		return owners
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		inode, ok := wanted[to]
		if err != nil || !ok {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		// A child that inherited the socket has a greater number.
		if old, known := owners[inode]; !known || pid < old.pid {
			owners[inode] = process{pid, strings.TrimSpace(string(name))}
		}
	}
	return owners
}
