package cli

import (
	"context"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
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
			err = printList(p, guests, []screen.Column[api.Guest]{
				{Title: "NAME", Cell: func(g api.Guest) string { return g.Name }},
				{Title: "NAMESPACE", Cell: func(g api.Guest) string { return g.Namespace }},
				{Title: "OF", Cell: func(g api.Guest) string { return g.Consumer }},
				{Title: "PHASE", Cell: func(g api.Guest) string { return g.Phase }},
				{Title: "AGE", Cell: func(g api.Guest) string {
					if g.Created.IsZero() {
						return ""
					}
					return screen.Age(p.Now().Sub(g.Created))
				}},
				{Title: "REQUESTS", Cell: func(g api.Guest) string { return g.Resources.String() }, Wide: true},
				{Title: "NODE", Cell: func(g api.Guest) string { return g.Node }, Wide: true},
				{Title: "PEER ID", Cell: func(g api.Guest) string { return g.ConsumerID }, Wide: true},
			}, "no guests")
			for _, g := range guests {
				p.printNotes(note{g.Name, g.Why})
			}
			return err
		},
	})
}
