package wol

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mdlayher/ethtool"
	"golang.org/x/sys/unix"
)

// sysClassNet is where the kernel shows network devices.
const sysClassNet = "/sys/class/net"

// arming asks the kernel (ethtool netlink, Linux 5.6) whether devices are armed, and marks those of Wi-Fi, whose arming is nl80211's.
func arming(list []Device) error {
	for i := range list {
		list[i].Arming = Unknown
		if _, err := os.Stat(filepath.Join(sysClassNet, list[i].Name, "phy80211")); err == nil {
			list[i].WiFi = true
		}
	}
	client, err := ethtool.New()
	if errors.Is(err, os.ErrNotExist) { // a kernel without it
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask the kernel for Wake on LAN: %w", err)
	}
	defer client.Close()
	for i := range list {
		d := &list[i]
		if d.WiFi {
			continue
		}
		is, err := client.WakeOnLAN(ethtool.Interface{Name: d.Name})
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, os.ErrNotExist):
			d.Arming = Cannot
		case err != nil: // no right to ask, or it is gone meanwhile
		case is.Modes&ethtool.Magic != 0:
			d.Arming = Armed
		default:
			d.Arming = NotArmed
		}
	}
	return nil
}

// Woke counts how often each device woke this machine since it started, by name, as its bus counts (wakeup_count of power management); what has no such
// count is left out.
func Woke(list []Device) map[string]int64 {
	counts := map[string]int64{}
	for _, d := range list {
		text, err := os.ReadFile(filepath.Join(sysClassNet, d.Name, "device/power/wakeup_count"))
		if n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && wrong == nil {
			counts[d.Name] = n
		}
	}
	return counts
}
