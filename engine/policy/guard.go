package policy

import (
	"bytes"
	"context"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// guard notices when somebody takes the tables away, as `nft flush ruleset` does, until ctx ends. Without the kernel's word
// for it they stay away until the next change of policies or pods.
func (c *Controller) guard(ctx context.Context) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
		}
	}
	if err != nil {
		c.log.Warn("cannot see whether somebody takes the rules of NetworkPolicies away", "err", err)
		return
	}
	socket := os.NewFile(uintptr(fd), "netlink")
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, err := socket.Read(buf)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			n = 0 // some were lost: as good as news
		}
		if err != nil || tableDeleted(buf[:n]) {
			select {
			case c.anew <- struct{}{}:
			default:
			}
		}
	}
}

// tableDeleted reports whether messages of the kernel say that a table of our name is gone.
func tableDeleted(b []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return true
	}
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE || len(m.Data) < nl.SizeofNfgenmsg {
			continue
		}
		if bytes.Contains(m.Data[nl.SizeofNfgenmsg:], []byte(Table+"\x00")) {
			return true
		}
	}
	return false
}
