package netplan

import (
	"fmt"
	"net/netip"
)

// MaxDirect bounds the other providers that a home introduces one to: they are looked through for each packet between guests.
const MaxDirect = 64

// MaxEndpoints bounds the endpoints of each, which are tried by turns.
const MaxEndpoints = 4

// CheckEndpoint reports why the word of one cluster on where another's WireGuard is leads nowhere.
func CheckEndpoint(e netip.AddrPort) error {
	switch a := e.Addr(); {
	case !e.IsValid() || e.Port() == 0 || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6():
		return fmt.Errorf("%s is no endpoint", e)
	case a.IsLinkLocalUnicast() || a.Zone() != "":
		return fmt.Errorf("endpoint %s means something on one link alone", e)
	}
	return nil
}
