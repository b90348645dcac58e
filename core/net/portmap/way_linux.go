package portmap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// anywhere is an address of documentation (RFC 5737), to which the default route leads.
var anywhere = netip.MustParseAddr("192.0.2.1")

// defaultWay is that to the router of the default route. Nothing is sent.
func defaultWay() (way, error) {
	routes, err := netlink.RouteGet(anywhere.AsSlice())
	if err != nil || len(routes) == 0 {
		return way{}, errors.New("there is no default route")
	}
	router, _ := netip.AddrFromSlice(routes[0].Gw)
	own, _ := netip.AddrFromSlice(routes[0].Src)
	if router, own = router.Unmap(), own.Unmap(); !router.Is4() || !own.Is4() {
		return way{}, errors.New("the default route leads to no router")
	}
	if !own.IsPrivate() && !shared.Contains(own) {
		return way{}, fmt.Errorf("this laptop's address, %s, needs no router that maps ports", own)
	}
	return way{router, own}, nil
}
