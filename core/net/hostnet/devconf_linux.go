package hostnet

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Settings of a device for IPv4 (linux/ip.h, IPV4_DEVCONF_*), named as the files of /proc/sys/net/ipv4/conf.
const (
	Forwarding      = 1
	AcceptRedirects = 4
	SendRedirects   = 6
	RPFilter        = 8
	ARPIgnore       = 19
	AcceptLocal     = 23
)

// Configure changes settings of a device by netlink: a container's /proc/sys is read-only, and what it says there needs no other right than
// that to make the device.
func Configure(index int, settings map[uint16]uint32) error {
	const inetConf = 1 // IFLA_INET_CONF
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	family := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := family.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
	for setting, value := range settings {
		conf.AddRtAttr(int(setting), nl.Uint32Attr(value))
	}
	req.AddData(family)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("settings of link %d: %w", index, err)
	}
	return nil
}
