package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) requestsCommand() *cobra.Command {
	return p.lists(&cobra.Command{
		Use:     "requests [ID|PEER...]",
		Short:   "List the requests that wait for an answer",
		Long:    "List the requests that wait for an answer: incoming ones for yours, outgoing ones for the peer's owner.",
		Example: "  kith requests\n  kith accept $(kith requests -o json | jq -r '.[0].id')",
		Args:    between(0, -1), ValidArgsFunction: p.completeRequests(-1),
		RunE: func(c *cobra.Command, args []string) error {
			requests, err := call(p, c, func(ctx context.Context, kithd *client.Client) ([]api.Request, error) { return kithd.Requests(ctx) })
			if err != nil {
				return err
			}
			match := func(r api.Request, name string) bool {
				return strings.HasPrefix(r.ID, name) || r.Peer == name || sameID(r.PeerID, name)
			}
			requests, err = pick(requests, args, match, func(name string) error { return api.NotFound("request", name, "kith requests") })
			if err != nil {
				return err
			}
			return printList(p, requests, []column[api.Request]{
				{title: "ID", cell: func(r api.Request) string { return r.ID }},
				{title: "PEER", cell: func(r api.Request) string { return r.Peer }},
				{title: "DIRECTION", cell: func(r api.Request) string { return string(r.Direction) }},
				{title: "CODE", cell: func(r api.Request) string { return spaced(r.Code) }},
				{title: "ASKED", cell: func(r api.Request) string { return r.Asked.String() }},
				{title: "STATE", cell: func(r api.Request) string { return string(r.State) }},
				{title: "EXPIRES", cell: func(r api.Request) string { return p.until(r.Expires) }},
				{title: "PEER ID", cell: func(r api.Request) string { return r.PeerID }, wide: true},
				{title: "ADDRESS", cell: func(r api.Request) string { return r.Address }, wide: true},
				{title: "CREATED", cell: func(r api.Request) string { return p.ago(r.Created) }, wide: true},
			}, "no requests are waiting")
		},
	})
}

// answerCommand is accept or decline.
func (p *program) answerCommand(accept bool) *cobra.Command {
	c := &cobra.Command{
		Use:     "decline ID|PEER",
		Short:   "Decline a peer's request",
		Example: "  kith decline 7f3a\n  kith decline carol",
	}
	if accept {
		c = &cobra.Command{
			Use:     "accept ID|PEER",
			Short:   "Accept a peer's request for resources",
			Long:    "Accept a peer's request for resources. Compare the code first: the other owner must see the same one.",
			Example: "  kith requests\n  kith accept 7f3a",
		}
	}
	c.Args, c.ValidArgsFunction = between(1, 1), p.completeRequests(1)
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := call(p, c, func(ctx context.Context, kithd *client.Client) (api.Request, error) {
			return kithd.Answer(ctx, args[0], accept)
		})
		if err != nil {
			return err
		}
		if done, err := p.machine(r); done {
			return err
		}
		word := "declined"
		if accept {
			word = "accepted"
		}
		fmt.Fprintf(p.Out, "%s %s", word, clean(r.Peer))
		if asked := r.Asked.String(); accept && asked != "" {
			fmt.Fprintf(p.Out, ": %s", clean(asked))
		}
		fmt.Fprintln(p.Out)
		if accept && r.Code != "" {
			fmt.Fprintf(p.Out, "code %s: the owner of %s compares it now, before anything is signed\n", spaced(clean(r.Code)), clean(r.Peer))
		}
		return nil
	}
	return p.things(c)
}
