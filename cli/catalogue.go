package cli

import (
	"context"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) catalogueCommand() *cobra.Command {
	return p.Lists(&cobra.Command{
		Use:   "catalogue [PEER]",
		Short: "Show who else has something to offer, as peers list it",
		Long: `Show who else has something to offer, as peers list it: of all peers that keep a catalogue, or of one.

Each line was signed by the one that it is about, a quarter of an hour ago at most, and says what somebody new would be offered there. It promises
nothing. "kith peer add NAME --from PEER" makes him known here, and then you peer with him as with anybody: directly, with keys compared.

A machine is listed where its owner wants it to be ("kith share --list-at"), and keeps a catalogue with catalogue: true in its config.yaml.`,
		Example: "  kith catalogue\n  kith catalogue bob\n  kith peer add carol --from bob",
		Args:    program.Between(0, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			var options api.CatalogueOptions
			if len(args) > 0 {
				options.Peer = args[0]
			}
			return program.List(p.Program, c, nil, program.Listing[api.Listed]{
				Get: func(kithd *client.Client, ctx context.Context) ([]api.Listed, error) {
					return kithd.Catalogue(ctx, options)
				},
				Columns: []screen.Column[api.Listed]{
					{Title: "NAME", Cell: func(x api.Listed) string { return x.Name }},
					{Title: "ID", Cell: func(x api.Listed) string { return x.ShortID }},
					{Title: "AT", Cell: func(x api.Listed) string { return x.At }},
					{Title: "OFFERS", Cell: func(x api.Listed) string { return x.Resources.String() }},
					{Title: "PRICES", Cell: func(x api.Listed) string { return api.PricesInWords(x.Prices) }},
					{Title: "SIGNED", Cell: func(x api.Listed) string { return screen.Age(p.Now().Sub(x.Created)) + " ago" }},
					{Title: "HERE", Cell: func(x api.Listed) string { return x.Peer }},
				},
				None: "nobody is listed at a peer of this machine that can be reached",
			})
		},
	})
}
