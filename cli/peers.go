package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/trust/identity"
)

func (p commands) peersCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:   "peers [NAME|ID...]",
		Short: "List the clusters that are known here",
		Long: `List the clusters that are known here.

OUTGOING is what this cluster gets from the peer, INCOMING what the peer gets from here: none, requested, declined,
expired, contracted (signed, not yet usable), connected, unreachable or ending. REACHABLE says since when a peer under contract
is down, and "asleep" of one whose Kubernetes starts when somebody needs it. LEFT counts namespaces that the peer still keeps although they are gone, or stay at home, here; it is asked again until
they are gone there too. Below the list stands what a peer without a contract would
give, should you ask. TETHER says which of the two runs the other: "runs this laptop" of a company to which this laptop is tethered,
"run from here" of a laptop that is tethered to this cluster, with the step while that is not done. With -o wide, USED says how much of what the peer grants is in use,
and PRICES what one unit of it costs for an hour (docs/prices.md); PODS THERE and PODS HERE are the ranges out of which this cluster's pods at the peer, and the peer's here, have their addresses.`,
		Example: "  kith peers\n  kith peers bob -o wide\n  kith peers -o json | jq -r '.[] | select(.outgoing==\"connected\") | .name'",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return program.List(p.Program, c, args, program.Listing[api.Peer]{
				Get: (*client.Client).Peers, Match: isPeer, Noun: "peer", Others: "kith peers",
				Columns: p.peerColumns(), None: "no peers yet; `kith peer add HOST:PORT` adds one that is not on this network",
				Notes: func(x api.Peer) []program.Note {
					return program.Notes(x.Name, x.Why, x.Less, gives(x), tetherWhy(x), relayed(x))
				},
			})
		},
	})
}

// gives says what a peer without a contract would give; "" where it does not say.
func gives(x api.Peer) string {
	switch {
	case x.Gives == nil:
		return ""
	case x.Gives.State == api.GivesSome:
		return "would give " + x.Gives.Resources.String()
	case x.Gives.State == api.GivesPaused:
		return "gives nothing now: " + x.Gives.Why
	}
	return "gives nothing: " + x.Gives.Why
}

// reachable says since when a peer under contract cannot be reached, and of whom that can that its Kubernetes sleeps.
func (p commands) reachable(x api.Peer) string {
	switch {
	case x.Asleep:
		return "asleep"
	case x.DownSince.IsZero():
		return screen.Yes(x.Reachable)
	}
	if x.Suspended {
		return "suspended " + screen.Age(p.Now().Sub(x.DownSince))
	}
	return "down " + screen.Age(p.Now().Sub(x.DownSince))
}

func isPeer(peer api.Peer, name string) bool {
	return peer.Name == name || sameID(peer.ID, name) || slices.Contains(peer.Addresses, name)
}

// sameID compares cluster IDs as people copy them: any case, with dashes or not; prefix is enough when asked of long ones.
func sameID(id, typed string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	return len(plain(typed)) >= 4 && strings.HasPrefix(plain(id), plain(typed))
}

func (p commands) completePeers(most int) program.Completion {
	return program.Complete(p.Program, most, (*client.Client).Peers, func(x api.Peer) string {
		return program.Word(x.Name, x.ShortID, strings.Join(screen.NonEmpty("out "+string(x.Outgoing), "in "+string(x.Incoming), tethered(x)), ", "))
	})
}

func (p commands) peerColumns() []screen.Column[api.Peer] {
	return []screen.Column[api.Peer]{
		{Title: "NAME", Cell: func(x api.Peer) string { return x.Name }},
		{Title: "ID", Cell: func(x api.Peer) string { return x.ShortID }},
		{Title: "REACHABLE", Cell: p.reachable},
		{Title: "OUTGOING", Cell: func(x api.Peer) string { return string(x.Outgoing) }},
		{Title: "INCOMING", Cell: func(x api.Peer) string { return string(x.Incoming) }},
		{Title: "TETHER", Cell: tethered, Need: true},
		{Title: "TUNNEL", Cell: tunnel, Need: true},
		{Title: "LEFT", Cell: func(x api.Peer) string {
			if x.Left == 0 {
				return ""
			}
			return screen.Count(x.Left, "namespace")
		}, Need: true},
		{Title: "CODE", Cell: func(x api.Peer) string { return identity.Spaced(x.Code) }, Need: true},
		{Title: "USED", Cell: func(x api.Peer) string { return screen.Used(x.Used, x.Offered) }, Wide: true},
		{Title: "DEVICES", Cell: func(x api.Peer) string { return screen.Devices(x.Used, x.Offered) }, Wide: true},
		{Title: "PRICES", Cell: func(x api.Peer) string { return api.PricesInWords(x.Prices) }, Wide: true},
		{Title: "SOURCE", Cell: func(x api.Peer) string { return string(x.Source) }, Wide: true},
		{Title: "SEEN", Cell: func(x api.Peer) string { return p.Ago(x.LastSeen) }, Wide: true},
		{Title: "ADDRESSES", Cell: func(x api.Peer) string { return strings.Join(x.Addresses, ",") }, Wide: true},
		{Title: "WAY", Cell: way, Wide: true, Need: true},
		{Title: "NODE", Cell: func(x api.Peer) string { return x.Node }, Wide: true},
		{Title: "PODS THERE", Cell: func(x api.Peer) string { return x.Pods.AbroadRange }, Wide: true},
		{Title: "PODS HERE", Cell: func(x api.Peer) string { return x.Pods.GuestsRange }, Wide: true},
		{Title: "DIRECT", Cell: directWays, Wide: true},
		{Title: "HANDSHAKE", Cell: func(x api.Peer) string { return p.Ago(x.Tunnel.LastHandshake) }, Wide: true},
		{Title: "RTT", Cell: func(x api.Peer) string { return rtt(x.Tunnel.RTT) }, Wide: true},
		{Title: "RECEIVED", Cell: func(x api.Peer) string { return screen.Bytes(x.Tunnel.RX) }, Wide: true},
		{Title: "SENT", Cell: func(x api.Peer) string { return screen.Bytes(x.Tunnel.TX) }, Wide: true},
	}
}

// tunnel is a word where a tunnel should be, nothing elsewhere.
func tunnel(x api.Peer) string {
	switch {
	case x.Network == api.NetworkNone: // by the contract
		return "none"
	case x.Tunnel.Up:
		return "up"
	}
	for _, s := range []api.State{x.Outgoing, x.Incoming} {
		if s == api.StateConnected || s == api.StateUnreachable {
			return "down"
		}
	}
	return ""
}

// way is how a peer that answers is reached, and by which way its tunnel's packets go where that is another one.
func way(x api.Peer) string {
	said := "direct"
	switch x.By {
	case "":
	case x.Name:
		said = "it called back"
	default:
		said = "by " + x.By
	}
	switch {
	case !x.Reachable:
		return ""
	case x.Tunnel.Way == "", x.Tunnel.Way == api.TunnelDirect && x.By == "":
		return said
	}
	return said + ", tunnel " + x.Tunnel.Says()
}

// relayed is why the tunnel's packets do not go by UDP; "" when they do.
func relayed(x api.Peer) string {
	if x.Tunnel.Way != api.TunnelCarried {
		return ""
	}
	return "the tunnel is " + x.Tunnel.Says() + ": " + x.Tunnel.Reason.String()
}

// directWays are the other providers of a peer that its guests here reach without going by the peer, or would.
func directWays(x api.Peer) string {
	var list []string
	for _, way := range x.Tunnel.Direct {
		name := way.Peer
		if way.State != api.DirectWayUp {
			name += " (" + string(way.State) + ")"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

func rtt(d api.Duration) string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).Round(10 * time.Microsecond).String()
}

func (p commands) guestsCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:     "guests [NAME|NAMESPACE/NAME|PEER...]",
		Short:   "List the pods of peers that run here",
		Example: "  kith guests\n  kith guests bob",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return program.List(p.Program, c, args, program.Listing[api.Guest]{
				Get: (*client.Client).Guests, Match: func(g api.Guest, name string) bool {
					return g.Name == name || g.Namespace+"/"+g.Name == name || g.Consumer == name || sameID(g.ConsumerID, name)
				}, Noun: "guest", Others: "kith guests",
				Columns: []screen.Column[api.Guest]{
					{Title: "NAME", Cell: func(g api.Guest) string { return g.Name }},
					{Title: "NAMESPACE", Cell: func(g api.Guest) string { return g.Namespace }},
					{Title: "OF", Cell: func(g api.Guest) string { return g.Consumer }},
					{Title: "FOR", Need: true, Cell: func(g api.Guest) string { return cmp.Or(g.For, g.ForID) }},
					{Title: "PHASE", Cell: func(g api.Guest) string { return g.Phase }},
					{Title: "AGE", Cell: func(g api.Guest) string { return strings.TrimSuffix(p.Ago(g.Created), " ago") }},
					{Title: "REQUESTS", Cell: func(g api.Guest) string { return g.Resources.String() }, Wide: true},
					{Title: "NODE", Cell: func(g api.Guest) string { return g.Node }, Wide: true},
					{Title: "PEER ID", Cell: func(g api.Guest) string { return g.ConsumerID }, Wide: true},
				}, None: "no guests",
				Notes: func(g api.Guest) []program.Note { return program.Notes(g.Name, g.Why) },
			})
		},
	})
}
