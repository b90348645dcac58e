package lab

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const defaultMTU = 1500

// Link is the quality of a laptop's connection to the LAN. The zero value is a perfect one.
type Link struct {
	// Rate in bit/s, in each direction; 0 is unlimited.
	Rate uint64 `json:"rate,omitempty"`
	// Delay is added in each direction, so a ping takes twice that. It needs netem in the kernel.
	Delay time.Duration `json:"delay,omitempty"`
	// Loss is the part of frames dropped at random in each direction, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// MTU in bytes; 0 is 1500.
	MTU int `json:"mtu,omitempty"`
}

func (k Link) mtu() int {
	if k.MTU == 0 {
		return defaultMTU
	}
	return k.MTU
}

func (k Link) check() error {
	switch {
	case k.Rate != 0 && k.Rate < 8000:
		return fmt.Errorf("rate %d bit/s: the least is 8kbit", k.Rate)
	case k.Loss < 0 || k.Loss > 1:
		return fmt.Errorf("loss %v: use a part between 0 and 1", k.Loss)
	case k.Delay < 0 || k.Delay > time.Minute:
		return fmt.Errorf("delay %v: use 0 to 1m", k.Delay)
	case k.MTU != 0 && (k.MTU < 576 || k.MTU > 9000):
		return fmt.Errorf("MTU %d: use 576 to 9000", k.MTU)
	}
	return nil
}

// shape sets rate and delay at both ends of the cable: port sends to the laptop, eth0 from it. Loss is a matter of
// the bridge's filter, see filter.go.
func shape(port, in *netlink.Handle, name string, k Link) error {
	for _, end := range []struct {
		h   *netlink.Handle
		dev string
	}{{port, name}, {in, device}} {
		link, err := end.h.LinkByName(end.dev)
		if err != nil {
			return fmt.Errorf("shape link: %w", err)
		}
		if err := end.h.LinkSetMTU(link, k.mtu()); err != nil {
			return fmt.Errorf("set MTU: %w", err)
		}
		if err := setQdisc(end.h, link, k); err != nil {
			return err
		}
	}
	return nil
}

func setQdisc(h *netlink.Handle, link netlink.Link, k Link) error {
	root := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	qdiscs, err := h.QdiscList(link)
	if err != nil {
		return fmt.Errorf("shape link: %w", err)
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Attrs().Handle != 0 {
			if err := h.QdiscDel(q); err != nil {
				return fmt.Errorf("shape link: %w", err)
			}
		}
	}
	switch {
	case k.Delay > 0:
		err = h.QdiscAdd(netlink.NewNetem(root, netlink.NetemQdiscAttrs{
			Latency: uint32(k.Delay.Microseconds()), Rate64: k.Rate / 8, Limit: 20000,
		}))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel cannot delay packets: it lacks netem (CONFIG_NET_SCH_NETEM, module sch_netem)")
		}
	case k.Rate > 0:
		err = h.QdiscAdd(tokenBucket(root, k.Rate))
	}
	if err != nil {
		return fmt.Errorf("shape link: %w", err)
	}
	return nil
}

// tokenBucket lets a burst of 4 ms pass at once and queues 50 ms more, about what a good access point does.
func tokenBucket(attrs netlink.QdiscAttrs, bits uint64) *netlink.Tbf {
	rate := float64(bits) / 8
	burst := uint32(math.Max(rate/250, 10*defaultMTU))
	return &netlink.Tbf{
		QdiscAttrs: attrs, Rate: bits / 8, Buffer: netlink.Xmittime(bits/8, burst),
		Limit: uint32(math.Min(rate/20, math.MaxUint32/2)) + burst,
	}
}
