package cli

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/trust/identity"
)

func (p *program) requestsCommand() *cobra.Command {
	return p.lists(&cobra.Command{
		Use:   "requests [ID|PEER...]",
		Short: "List the requests that wait for an answer",
		Long: `List the requests that wait for an answer: incoming ones for yours, outgoing ones for the peer's owner.

WOULD GET says of an incoming one what the peer gets if you accept now, which is as much of what it asks for as is shared and
free; where it has a contract already, what changes (cpu 1 → 2). Of an outgoing one it says what was asked for. A laptop that asks
to be tethered wants this cluster to run it: what its users get here is in the TetherPolicy that selects it (see docs/modes.md).`,
		Example: "  kith requests\n  kith accept $(kith requests -o json | jq -r '.[0].id')",
		Args:    between(0, -1), ValidArgsFunction: p.completeRequests(-1),
		RunE: func(c *cobra.Command, args []string) error {
			return list(p, c, args, listing[api.Request]{
				get: (*client.Client).Requests, match: func(r api.Request, name string) bool {
					return strings.HasPrefix(r.ID, name) || r.Peer == name || sameID(r.PeerID, name)
				}, noun: "request", others: "kith requests",
				columns: []screen.Column[api.Request]{
					{Title: "ID", Cell: func(r api.Request) string { return r.ID }},
					{Title: "PEER", Cell: func(r api.Request) string { return r.Peer }},
					{Title: "CODE", Cell: func(r api.Request) string { return identity.Spaced(r.Code) }},
					{Title: "WOULD GET", Cell: amountsOf},
					{Title: "DIRECTION", Cell: func(r api.Request) string { return string(r.Direction) }, Wide: true},
					{Title: "ASKED", Cell: func(r api.Request) string { return r.Asked.String() }, Wide: true},
					{Title: "STATE", Cell: func(r api.Request) string { return string(r.State) }, Wide: true},
					{Title: "EXPIRES", Cell: func(r api.Request) string { return p.until(r.Expires) }},
					{Title: "PEER ID", Cell: func(r api.Request) string { return r.PeerID }, Wide: true},
					{Title: "ADDRESS", Cell: func(r api.Request) string { return r.Address }, Wide: true},
					{Title: "CREATED", Cell: func(r api.Request) string { return p.ago(r.Created) }, Wide: true},
				}, none: "no requests are waiting",
				notes: func(r api.Request) []note { return []note{{r.ID, r.Refusal}, {r.ID, r.Means}} },
			})
		},
	})
}

// amountsOf says what an incoming request would get, and what an outgoing one asks for. Scratch space that does not change is
// left out: it makes a line too long for a terminal.
func amountsOf(r api.Request) string {
	r.Granted, r.InForce, r.Asked = maps.Clone(r.Granted), maps.Clone(r.InForce), maps.Clone(r.Asked)
	if is := map[api.Direction]api.Resources{api.Incoming: r.Granted, api.Outgoing: r.Asked}[r.Direction]; len(is) > 1 &&
		(len(r.InForce) == 0 || r.InForce[api.EphemeralStorage] == is[api.EphemeralStorage]) {
		for _, list := range []api.Resources{r.Granted, r.InForce, r.Asked} {
			delete(list, api.EphemeralStorage)
		}
	}
	switch {
	case r.Refusal != "": // it stands under the table
		return "nothing"
	case r.Tether && r.Direction == api.Incoming:
		return "asks this cluster to run it"
	case r.Tether:
		return "asked to run this laptop"
	case r.Direction == api.Incoming:
		return r.Grants()
	case len(r.Asked) == 0:
		return "asked all that is shared"
	}
	return "asked " + api.Change(r.InForce, r.Asked, nil)
}

func (p *program) acceptCommand() *cobra.Command {
	var sure bool
	c := p.things(&cobra.Command{
		Use:   "accept ID|PEER",
		Short: "Accept a peer's request",
		Long: `Accept a peer's request for resources. A terminal shows what the peer gets, and asks whether to go on; no more than that is
granted, whatever becomes free meanwhile. Compare the code first: the other owner must see the same one. Elsewhere it wants --yes.

The request of a laptop to be run by this cluster is accepted in the same way. It becomes a node with all it has, and its users may do
here what the TetherPolicy that selects it says.`,
		Example: "  kith requests\n  kith accept alice\n  kith accept alice-7f3a --yes",
		Args:    between(1, 1), ValidArgsFunction: p.completeRequests(1),
		RunE: func(c *cobra.Command, args []string) error {
			id := args[0]
			var shown api.Resources
			switch {
			case sure:
			case !p.asks():
				return noTerminal()
			default:
				var err error
				if id, shown, err = p.show(c, id); err != nil {
					return err
				}
			}
			r, err := call(p, c, func(kithd *client.Client, ctx context.Context) (api.Request, error) {
				return kithd.Accept(ctx, id, shown)
			})
			return answer(p, r, err, func(r api.Request) {
				gets := "it gets " + r.Grants()
				if r.Tether {
					gets = r.Grants()
				}
				fmt.Fprintf(p.Out, "accepted %s: %s\n", screen.Clean(r.Peer), screen.CleanLines(gets))
				if r.Code != "" {
					fmt.Fprintf(p.Out, "code %s: the owner of %s compares it now, before anything is signed\n", identity.Spaced(screen.Clean(r.Code)), screen.Clean(r.Peer))
				}
			})
		},
	})
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	return c
}

// show shows what a yes gives, asks whether it is meant, and gives the request by its ID with what was shown of it.
func (p *program) show(c *cobra.Command, ref string) (id string, shown api.Resources, err error) {
	r, err := callAbout(p, c, (*client.Client).Request, ref)
	if err != nil || r.Refusal != "" { // kithd will say so
		return ref, nil, err
	}
	question := fmt.Sprintf("%s would get %s.\n", screen.Clean(r.Peer), screen.CleanLines(r.Grants()))
	if r.Tether {
		question = fmt.Sprintf("%s is a laptop that asks to be run by this cluster. With a yes %s.\n", screen.Clean(r.Peer), screen.CleanLines(r.Grants()))
	}
	if r.Code != "" {
		question += fmt.Sprintf("Its owner's screen must show the code %s too. ", p.style(true).Bold(identity.Spaced(screen.Clean(r.Code))))
	}
	return r.ID, r.Granted, p.sure(c.Context(), question+"Accept?")
}

func (p *program) declineCommand() *cobra.Command {
	return p.things(&cobra.Command{
		Use:     "decline ID|PEER",
		Short:   "Decline a peer's request",
		Example: "  kith decline alice\n  kith decline alice-7f3a",
		Args:    between(1, 1), ValidArgsFunction: p.completeRequests(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := callAbout(p, c, (*client.Client).Decline, args[0])
			return answer(p, r, err, func(r api.Request) { fmt.Fprintf(p.Out, "declined %s\n", screen.Clean(r.Peer)) })
		},
	})
}
