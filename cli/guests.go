package cli

import (
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
			return list(p, c, args, listing[api.Guest]{
				get: (*client.Client).Guests, match: func(g api.Guest, name string) bool {
					return g.Name == name || g.Namespace+"/"+g.Name == name || g.Consumer == name || sameID(g.ConsumerID, name)
				}, noun: "guest", others: "kith guests",
				columns: []screen.Column[api.Guest]{
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
				}, none: "no guests",
				notes: func(g api.Guest) []note { return []note{{g.Name, g.Why}} },
			})
		},
	})
}
