package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) peersCommand() *cobra.Command {
	return p.lists(&cobra.Command{
		Use:   "peers [NAME|ID...]",
		Short: "List the clusters that are known here",
		Long: `List the clusters that are known here.

OUTGOING is what this cluster gets from the peer, INCOMING what the peer gets from here: none, requested, declined,
expired, contracted (signed, not yet usable), connected, unreachable or ending. REACHABLE says since when a peer under contract
is down. LEFT counts namespaces that the peer still keeps although they are gone, or stay at home, here; it is asked again until
they are gone there too. With -o wide, USED says how much of what the peer grants is in use.`,
		Example: "  kith peers\n  kith peers bob -o wide\n  kith peers -o json | jq -r '.[] | select(.outgoing==\"connected\") | .name'",
		Args:    between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			peers, err := call(p, c, func(ctx context.Context, kithd *client.Client) ([]api.Peer, error) { return kithd.Peers(ctx) })
			if err != nil {
				return err
			}
			peers, err = pick(peers, args, isPeer, func(name string) error { return api.NotFound("peer", name, "kith peers") })
			if err != nil {
				return err
			}
			err = printList(p, peers, p.peerColumns(), "no peers yet; `kith peer add HOST:PORT` adds one that is not on this network")
			for _, x := range peers {
				p.printNotes(note{x.Name, x.Why}, note{x.Name, x.Less})
			}
			return err
		},
	})
}

// reachable says since when a peer under contract cannot be reached.
func (p *program) reachable(x api.Peer) string {
	if x.DownSince.IsZero() {
		return yes(x.Reachable)
	}
	return "down " + age(p.Now().Sub(x.DownSince))
}

func isPeer(peer api.Peer, name string) bool {
	return peer.Name == name || sameID(peer.ID, name) || slices.Contains(peer.Addresses, name)
}

func (p *program) peerColumns() []column[api.Peer] {
	return []column[api.Peer]{
		{title: "NAME", cell: func(x api.Peer) string { return x.Name }},
		{title: "ID", cell: func(x api.Peer) string { return x.ShortID }},
		{title: "REACHABLE", cell: p.reachable},
		{title: "OUTGOING", cell: func(x api.Peer) string { return string(x.Outgoing) }},
		{title: "INCOMING", cell: func(x api.Peer) string { return string(x.Incoming) }},
		{title: "TUNNEL", cell: tunnel, need: true},
		{title: "LEFT", cell: func(x api.Peer) string {
			if x.Left == 0 {
				return ""
			}
			return count(x.Left, "namespace")
		}, need: true},
		{title: "CODE", cell: func(x api.Peer) string { return spaced(x.Code) }, need: true},
		{title: "USED", cell: func(x api.Peer) string { return used(x.Used, x.Offered) }, wide: true},
		{title: "SOURCE", cell: func(x api.Peer) string { return string(x.Source) }, wide: true},
		{title: "SEEN", cell: func(x api.Peer) string { return p.ago(x.LastSeen) }, wide: true},
		{title: "ADDRESSES", cell: func(x api.Peer) string { return strings.Join(x.Addresses, ",") }, wide: true},
		{title: "NODE", cell: func(x api.Peer) string { return x.Node }, wide: true},
		{title: "HANDSHAKE", cell: func(x api.Peer) string { return p.ago(x.Tunnel.LastHandshake) }, wide: true},
		{title: "RTT", cell: func(x api.Peer) string { return rtt(x.Tunnel.RTT) }, wide: true},
		{title: "RECEIVED", cell: func(x api.Peer) string { return bytesOf(x.Tunnel.RX) }, wide: true},
		{title: "SENT", cell: func(x api.Peer) string { return bytesOf(x.Tunnel.TX) }, wide: true},
	}
}

// tunnel is a word where a tunnel should be, nothing elsewhere.
func tunnel(x api.Peer) string {
	if x.Tunnel.Up {
		return "up"
	}
	for _, s := range []api.State{x.Outgoing, x.Incoming} {
		if s == api.StateConnected || s == api.StateUnreachable {
			return "down"
		}
	}
	return ""
}

func rtt(d api.Duration) string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).Round(10 * time.Microsecond).String()
}
