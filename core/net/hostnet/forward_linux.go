package hostnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Forward6 has this host forward IPv6. A kernel that forwards gives up the default routes that routers told it of, and heeds no more of them, on
// links where accept_ra is 1 (ip-sysctl); so those that have such a route get 2 before. Links without one do not: a router's word from
// a pod's would be heeded.
func Forward6() error {
	const forwarding = "/proc/sys/net/ipv6/conf/all/forwarding"
	now, err := os.ReadFile(forwarding)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("have this host forward IPv6: its kernel has none, or it was turned off at boot")
	}
	if err == nil && strings.TrimSpace(string(now)) == "1" {
		return nil
	}
	main, err := Routes6Of(unix.RT_TABLE_MAIN)
	if err != nil {
		return err
	}
	for _, r := range main {
		link, err := net.InterfaceByIndex(r.LinkIndex)
		if err != nil || r.Protocol != unix.RTPROT_RA {
			continue
		}
		path := "/proc/sys/net/ipv6/conf/" + link.Name + "/accept_ra"
		if is, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(is)) == "1" {
			if err := os.WriteFile(path, []byte("2"), 0); err != nil {
				return fmt.Errorf("keep the router of %s while this host forwards IPv6: %w", link.Name, err)
			}
		}
	}
	if err := os.WriteFile(forwarding, []byte("1"), 0); err != nil {
		return fmt.Errorf("have this host forward IPv6: %w", err)
	}
	return nil
}
