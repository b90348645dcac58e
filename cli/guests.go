package cli

import (
	"context"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) guestsCommand() *cobra.Command {
	return p.lists(&cobra.Command{
		Use:     "guests [NAME|NAMESPACE/NAME|PEER...]",
		Short:   "List the pods of peers that run here",
		Example: "  kith guests\n  kith guests bob",
		Args:    between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			guests, err := call(p, c, func(ctx context.Context, kithd *client.Client) ([]api.Guest, error) { return kithd.Guests(ctx) })
			if err != nil {
				return err
			}
			match := func(g api.Guest, name string) bool {
				return g.Name == name || g.Namespace+"/"+g.Name == name || g.Consumer == name || sameID(g.ConsumerID, name)
			}
			guests, err = pick(guests, args, match, func(name string) error { return api.NotFound("guest", name, "kith guests") })
			if err != nil {
				return err
			}
			err = printList(p, guests, []column[api.Guest]{
				{title: "NAME", cell: func(g api.Guest) string { return g.Name }},
				{title: "NAMESPACE", cell: func(g api.Guest) string { return g.Namespace }},
				{title: "OF", cell: func(g api.Guest) string { return g.Consumer }},
				{title: "PHASE", cell: func(g api.Guest) string { return g.Phase }},
				{title: "AGE", cell: func(g api.Guest) string {
					if g.Created.IsZero() {
						return ""
					}
					return age(p.Now().Sub(g.Created))
				}},
				{title: "REQUESTS", cell: func(g api.Guest) string { return g.Resources.String() }, wide: true},
				{title: "NODE", cell: func(g api.Guest) string { return g.Node }, wide: true},
				{title: "PEER ID", cell: func(g api.Guest) string { return g.ConsumerID }, wide: true},
			}, "no guests")
			for _, g := range guests {
				p.printNotes(note{g.Name, g.Why})
			}
			return err
		},
	})
}
