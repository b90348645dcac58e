package daemon

import (
	"context"
	"net/netip"

	"kith.dev/core/agree/carry"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relay"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/net/portmap"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/config"
)

// makeRelay has peers reach each other that cannot be dialled, and tunnels packets where UDP does not pass; with relay: none there is nothing of it.
// Who is asked is answered from the cluster's memory: without a cluster nobody is a peer, and nothing is passed on.
func (d *Daemon) makeRelay() {
	if d.cfg.Relay == config.RelayNone {
		return
	}
	d.relay = relay.New(relay.Config{
		Me: d.me.ID(), Offers: d.cfg.Relay == config.RelayOffer, Limits: relay.Default,
		Contacts: d.contacts, Server: d.peerAPI, Log: d.log,
		Peer: func(id identity.ID) string { return d.directory.PeerName(id.String()) },
		Accepted: func(id identity.ID) bool {
			c := d.cluster.Load()
			return c != nil && c.Provider.Recognise(context.Background(), peering.Caller{ID: id})
		},
		Lists: func(at identity.ID) bool {
			c := d.cluster.Load()
			if c == nil {
				return false
			}
			now := c.Client.Now()
			peer := now.Peer(at.String())
			return peer != nil && sharing.ListedAt(now.Policies, peer) != nil
		},
	})
	if d.gateway != nil {
		d.carrier = carry.New(carry.Config{
			Me: d.me.ID(), Gateway: d.gateway, Contacts: d.contacts, Server: d.peerAPI, Log: d.log,
			Mapped: func() netip.AddrPort { return d.mapped(portmap.UDP) },
		})
	}
}
