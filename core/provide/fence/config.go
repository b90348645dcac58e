package fence

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// Config is fixed for the life of a Fence.
type Config struct {
	Tunnel   string       // device of the gateway, such as kith0
	Group    uint32       // of guests' links: guestnet.Group, or 0 with an engine that does not mark them
	Pods     netip.Prefix // this cluster's pods, its node included
	Services netip.Prefix
	Node     netip.Addr       // address of the node, never taken for a guest's
	NodeName string           // of this node, by which the fence knows which pods are to run here
	Self     string           // the same, where each node of the cluster has a fence of its own: guests on others are left to theirs; "" where this is the only one
	DNS      netip.Addr       // service address of the cluster's DNS
	IPv6     netplan.Cluster6 // the same of IPv6; none: guests have none of it
	Kernel   *hostnet.Changes
	Mark     string // a file that exists while guests run here: after a boot with it, the new table is closed until the cluster was read; "": none
	Changed  func() // called when the result of Kept has changed; it must not call Kept itself. nil: none
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
	case c.both() && c.IPv6.Validate() != nil:
		return fmt.Errorf("fence: %w", c.IPv6.Validate())
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
	Guests   []netip.Prefix // the ranges of its guests here, of both families; without marked links the address of each
	Apart    []netip.Prefix // of those, guests on other nodes, which have a fence of their own: here only what they send into the tunnel is judged
	Home     []netip.Prefix // its address space, of both, as its guests here know it
	Internet bool           // whether its guests may use this laptop's way to the internet
	Bounds   Bounds         // of what its guests get and send

	Aliases []netip.Prefix // its address space as the owner's pods know it, where some of those are shared with it
	Shared  []Shared       // what of them it reaches
}

// Bounds are of what guests, of all tenants with the same Of, get and send by the tunnel and the internet, in bits a second; 0 is none.
type Bounds struct {
	Of              string // name of a policy
	Ingress, Egress uint64
}

// Shared is a port of a pod of the owner's that a consumer reaches.
type Shared struct {
	Pod      netip.Addr
	Protocol byte // IP protocol number
	Port     uint16
}

// Provider is a cluster that this one consumes from.
type Provider struct {
	Peer    string       // compact cluster ID
	Guests  netip.Prefix // the range of our guests there
	Guests6 netip.Prefix // and of IPv6, if they have it
}

// Relations is what the fence follows of the cluster. A peer may be a tenant and a provider. Ranges of guests, of all tenants and
// providers, are apart; homes may have the same addresses, and those of this cluster.
type Relations struct {
	Tenants   []Tenant
	Providers []Provider
	Plugin    Plugin // with an engine that does not mark guests' links
}

// Plugin is what the fence follows of pods that a network plugin gave their addresses.
type Plugin struct {
	Closed  []netip.Prefix // addresses of guests which are of no range that could be a guest's: they have DNS and nothing else
	Apart   []netip.Prefix // of those, and as Tenant has them
	Here    []netip.Addr   // of guests on this node, whose links are looked for
	Ranges  []netip.Prefix // of which the cluster says that this node's pods have their addresses
	Awaited bool           // a guest is to run here whose address is not known yet
	Own     []netip.Addr   // where there are guests: of the owner's pods on this node
}

// guestsHere reports whether a guest is here or awaited, so that it matters whose an address is.
func (p Plugin) guestsHere() bool { return p.Awaited || len(p.Here) > 0 }

// both reports whether guests may have both families.
func (c Config) both() bool { return c.Group != 0 && c.IPv6 != netplan.Cluster6{} }
