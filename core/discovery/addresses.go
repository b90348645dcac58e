package discovery

import (
	"net/netip"
	"slices"
)

// LANAddresses are this machine's addresses on real LANs, the likeliest to be reached first; patterns as in
// LANConfig.Interfaces. Link-local ones are left out: they mean nothing to others.
func LANAddresses(patterns []string) ([]netip.Addr, error) {
	interfaces, err := listInterfaces()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, i := range interfaces {
		if !i.isLAN(patterns) {
			continue
		}
		for _, a := range i.addresses() {
			if !a.IsLinkLocalUnicast() && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list, nil
}
