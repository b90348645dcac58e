package guestnet

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
)

// Config is fixed for the life of a Kernel.
type Config struct {
	Group    uint32       // of guests' links
	Tunnel   string       // device of the gateway, such as kith0
	Pods     netip.Prefix // of this cluster, with the node's address
	Services netip.Prefix // of this cluster
	DNS      netip.Addr   // service address of the cluster's DNS
	Log      *slog.Logger
}

// Tenant is a home whose guests are here, with the services that they reach by the addresses these have at home.
type Tenant struct {
	Guests   netip.Prefix // a /24, no other tenant's
	Services Services
}

// Services lead from the address of a service at home to that of its twin here.
type Services map[netip.Addr]netip.Addr

// MaxServices is how many services of one home are mapped: what its tenants may have of them, several times. Each is an
// element of two maps in the kernel, some 100 bytes.
const MaxServices = 4096

func (c Config) check() error {
	for _, p := range []netip.Prefix{c.Pods, c.Services} {
		if !p.IsValid() || !p.Addr().Is4() {
			return fmt.Errorf("network of guests: range %s is not IPv4", p)
		}
	}
	switch {
	case !c.DNS.Is4():
		return fmt.Errorf("network of guests: DNS address %s is not IPv4", c.DNS)
	case c.Group == 0:
		return errors.New("network of guests: their links have no group")
	case c.Tunnel == "" || len(c.Tunnel) > 15:
		return fmt.Errorf("network of guests: device name %q must have 1 to 15 characters", c.Tunnel)
	case c.Log == nil:
		return errors.New("network of guests: no logger")
	}
	return nil
}

// pair is two addresses behind each other; of a range, the first address stands for it.
type pair [8]byte

func of(guests netip.Prefix, a netip.Addr) (p pair) {
	g, b := guests.Addr().As4(), a.As4()
	copy(p[:4], g[:])
	copy(p[4:], b[:])
	return p
}

// plan is what the maps hold: what a guest's packet is for, or from, by its range.
type plan struct{ there, back map[pair]netip.Addr }

// planOf says what is wrong with tenants that would take something from each other.
func planOf(tenants []Tenant) (plan, error) {
	p := plan{map[pair]netip.Addr{}, map[pair]netip.Addr{}}
	seen := map[netip.Prefix]bool{}
	for _, t := range tenants {
		switch err := checkRange(t.Guests); {
		case err != nil:
			return plan{}, err
		case seen[t.Guests]:
			return plan{}, fmt.Errorf("two homes have the range %s for their guests", t.Guests)
		case len(t.Services) > MaxServices:
			return plan{}, fmt.Errorf("guests of %s have %d services, at most %d are taken", t.Guests, len(t.Services), MaxServices)
		}
		seen[t.Guests] = true
		for home, here := range t.Services {
			if !home.Is4() || !here.Is4() {
				return plan{}, fmt.Errorf("guests of %s: service %s, here %s: want IPv4 addresses", t.Guests, home, here)
			}
			back := of(t.Guests, here)
			if other, taken := p.back[back]; taken {
				return plan{}, fmt.Errorf("guests of %s: %s is the service %s and %s", t.Guests, here, other, home)
			}
			p.there[of(t.Guests, home)], p.back[back] = here, home
		}
	}
	return p, nil
}
