package backend

import (
	"context"

	"kith.dev/daemon/metrics"
)

// Facts are what the metrics show.
func (b *Backend) Facts(ctx context.Context) metrics.Facts {
	status, err := b.Status(ctx)
	f := metrics.Facts{Status: status, Contacts: map[string]int{}}
	for _, c := range b.Contacts.Snapshot() {
		f.Contacts[string(c.State)]++
	}
	if b.Gateway != nil {
		f.Drops = b.Gateway.Drops()
	}
	c := b.Cluster()
	if err != nil || c == nil {
		return f
	}
	seen, err := b.gather(ctx)
	if err != nil {
		return f
	}
	f.Readable = true
	for _, ctr := range seen.agreed.Contracts {
		f.Contracts = append(f.Contracts, c.contract(ctr, seen))
	}
	tunnels := b.tunnels()
	for _, k := range b.Directory.All() {
		if k.Peer != nil { // what is merely nearby is only counted
			tunnel, has := tunnels[k.ID.String()]
			f.Peers = append(f.Peers, metrics.Peer{Peer: b.view(k, seen), RTT: k.Contact.RTT, Clock: k.Contact.Clock, HasTunnel: has, MTU: tunnel.MTU})
		}
	}
	f.Guests, _ = c.guests(ctx) // what cannot be read is left out
	return f
}
