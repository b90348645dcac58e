package fence

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"kith.dev/core/hostnet"
)

// Config is fixed for the life of a Fence.
type Config struct {
	Tunnel   string       // device of the gateway, such as kith0
	Group    uint32       // of guests' links: guestnet.Group, or 0 with an engine that does not mark them
	Pods     netip.Prefix // this cluster's pods, guests and node included
	Services netip.Prefix
	Node     netip.Addr // address of the node, never taken for a guest's
	DNS      netip.Addr // service address of the cluster's DNS
	Kernel   *hostnet.Changes
	Log      *slog.Logger
}

func (c Config) check() error {
	for _, p := range []netip.Prefix{c.Pods, c.Services} {
		if !p.IsValid() || !p.Addr().Is4() {
			return fmt.Errorf("fence: range %s is not IPv4", p)
		}
	}
	switch {
	case !c.DNS.Is4():
		return fmt.Errorf("fence: DNS address %s is not IPv4", c.DNS)
	case c.Tunnel == "" || len(c.Tunnel) > 15:
		return fmt.Errorf("fence: device name %q must have 1 to 15 characters", c.Tunnel)
	case c.Log == nil:
		return errors.New("fence: no logger")
	}
	return nil
}

// Tenant is one consumer with its guests here.
type Tenant struct {
	Consumer string         // compact cluster ID
	Guests   []Guest        // its pods on this node
	Home     []netip.Prefix // its cluster's ranges as they are seen here
	Internet bool           // whether its guests may use this laptop's way to the internet
}

// Guest is a pod of a consumer.
type Guest struct {
	UID       string
	Addresses []netip.Addr // as its status says; not asked where the links tell
}

// Provider is a cluster that this one consumes from: own pods run there, beside its own and others'.
type Provider struct {
	Peer   string         // compact cluster ID
	Ranges []netip.Prefix // its cluster's ranges as they are seen here
	Pods   []netip.Addr   // of own pods there, as their status says
}

// Relations is what the fence follows of the cluster. A peer may be a tenant and a provider.
type Relations struct {
	Tenants   []Tenant
	Providers []Provider
}

// home is a peer's ranges as they are seen here, whatever its role.
type home struct {
	peer   string // compact cluster ID
	ranges []netip.Prefix
}

// homes has each peer once, by ID.
func (r Relations) homes() []home {
	all := map[string][]netip.Prefix{}
	for _, t := range r.Tenants {
		all[t.Consumer] = append(all[t.Consumer], t.Home...)
	}
	for _, p := range r.Providers {
		all[p.Peer] = append(all[p.Peer], p.Ranges...)
	}
	var list []home
	for _, peer := range slices.Sorted(maps.Keys(all)) {
		list = append(list, home{peer, all[peer]})
	}
	return list
}
