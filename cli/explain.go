package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) shareExplainCommand() *cobra.Command {
	c := p.Things(&cobra.Command{
		Use:   "explain PEER",
		Short: "Say what a peer would be offered now, and why no more",
		Long: `Say what a peer would be offered now, and why no more.

First come all policies, in the order in which they count: the first that selects the peer applies, the others do not. Then each resource: what
is offered of it, what keeps that from being more, and the numbers that it follows from. It is computed as the offer itself is. Who has not
been met yet is meant by a whole ID.

With -o json what decides are words that scripts can go by: reason, bound, selected, not.`,
		Example: "  kith share explain bob\n  kith share explain bob -o json | jq -r '.reason, .resources[].bound'",
		Args:    program.Between(1, 1), ValidArgsFunction: p.completePeers(1),
		RunE: func(c *cobra.Command, args []string) error {
			offered, err := program.CallAbout(p.Program, c, (*client.Client).Offered, args[0])
			return program.Answer(p.Program, offered, err, p.showOffered)
		},
	})
	return c
}

func (p commands) showOffered(o api.Offered) {
	style := p.Style(p.OutTerminal)
	peer := screen.Clean(o.Peer)
	if o.Reason != "" {
		fmt.Fprintf(p.Out, "%s would be offered %s: %s\n", style.Bold(peer), style.Yellow("nothing"), screen.CleanLines(o.Why))
	} else {
		all := api.Resources{}
		for _, r := range o.Resources {
			if r.Offered != "0" {
				all[r.Name] = r.Offered
			}
		}
		fmt.Fprintf(p.Out, "%s would be offered %s\n", style.Bold(peer), screen.Clean(all.String()))
	}
	if o.Reason == "" && !o.Closes.IsZero() {
		fmt.Fprintf(p.Out, "until the policy's hours end: %s\n", o.Closes.Format("Mon 2 Jan 15:04 MST"))
	}
	if len(o.Prices) > 0 {
		fmt.Fprintf(p.Out, "at %s\n", screen.Clean(api.PricesInWords(o.Prices)))
	}
	for _, from := range o.From {
		fmt.Fprintln(p.Out, screen.CleanLines(fromWords(from, o.Margin)))
	}
	if len(o.Has) > 0 {
		fmt.Fprintf(p.Out, "it has %s, which stays\n", screen.Clean(o.Has.String()))
	}
	if o.MaxPeers > 0 {
		fmt.Fprintf(p.Out, "%d of the %d peers that the policy is for at once hold contracts under it, beside this one\n", o.Peers, o.MaxPeers)
	}
	if len(o.Policies) > 0 {
		fmt.Fprintln(p.Out)
		screen.Table(p.Out, style, p.Format == program.Wide, lookColumns, o.Policies)
	}
	if len(o.Resources) > 0 {
		fmt.Fprintln(p.Out)
		screen.Table(p.Out, style, p.Format == program.Wide, offeredColumns, o.Resources)
	}
}

// fromWords says what a provider asks, and what becomes of it.
func fromWords(from api.OfferedFrom, margin string) string {
	asks := cmp.Or(api.PricesInWords(from.Prices), "nothing")
	switch {
	case from.LeftOut:
		return fmt.Sprintf("nothing of %s is offered on: its prices (%s) are in another currency, or too high to have a margin", from.Peer, asks)
	case margin != "":
		return fmt.Sprintf("with what %s grants, which asks %s: the highest price counts, with a margin of %s", from.Peer, asks, margin)
	}
	return fmt.Sprintf("with what %s grants, which asks %s", from.Peer, asks)
}

var lookColumns = []screen.Column[api.PolicyLook]{
	{Title: "POLICY", Cell: func(l api.PolicyLook) string { return l.Name }},
	{Title: "PRIORITY", Cell: func(l api.PolicyLook) string { return fmt.Sprint(l.Priority) }},
	{Title: "SELECTS IT", Cell: func(l api.PolicyLook) string {
		if l.Selected != "" {
			return "yes, " + selectedWords[l.Selected]
		}
		return "no: " + notWords[l.Not]
	}},
	{Title: "APPLIES", Cell: func(l api.PolicyLook) string {
		switch {
		case l.Applies:
			return "yes"
		case l.Selected != "":
			return "no: one before it does"
		}
		return ""
	}},
	{Title: "OFFERS NOTHING FOR", Need: true, Cell: func(l api.PolicyLook) string { return l.Why }},
}

var selectedWords = map[api.SelectedBy]string{
	api.SelectedEverybody: "it is for everybody", api.SelectedByID: "by its ID", api.SelectedByName: "by its name", api.SelectedByLabels: "by its labels",
}

var notWords = map[api.NotFor]string{
	api.NotForNotNamed: "it names others", api.NotForNotAccepted: "it has the name, and the key was not accepted here", api.NotForStranger: "it goes by labels, and a stranger has none",
	api.NotForLabels: "its labels are others", api.NotForMalformed: "its selector cannot be meant", api.NotForDeleted: "it is being deleted",
}

var offeredColumns = []screen.Column[api.OfferedResource]{
	{Title: "RESOURCE", Cell: func(r api.OfferedResource) string { return api.Called(r.Name) }},
	{Title: "OFFERED", Cell: func(r api.OfferedResource) string { return r.Offered }},
	{Title: "BOUND BY", Cell: func(r api.OfferedResource) string { return boundWords[r.Bound] }},
	{Title: "SHARED", Cell: func(r api.OfferedResource) string {
		if r.Policy == r.Amount {
			return r.Amount
		}
		return fmt.Sprintf("%s (%s)", r.Amount, r.Policy)
	}},
	{Title: "OTHERS", Cell: func(r api.OfferedResource) string { return r.Others }},
	{Title: "HERE", Cell: func(r api.OfferedResource) string { return r.Allocatable }},
	{Title: "OWN PODS", Cell: func(r api.OfferedResource) string { return r.OwnPods }},
	{Title: "GRANTED", Cell: func(r api.OfferedResource) string { return r.Granted }},
	{Title: "PER PEER", Need: true, Cell: func(r api.OfferedResource) string { return r.PerPeer }},
	{Title: "RESERVE", Need: true, Cell: func(r api.OfferedResource) string { return r.Reserve }},
	{Title: "DISK", Need: true, Cell: func(r api.OfferedResource) string { return r.Disk }},
	{Title: "HAS", Need: true, Cell: func(r api.OfferedResource) string { return r.Has }},
}

var boundWords = map[api.BoundBy]string{
	api.BoundByAmount: "the policy", api.BoundByOthers: "what others have of it", api.BoundByAllocatable: "what there is", api.BoundByOwnPods: "your own pods",
	api.BoundByGranted: "contracts with others", api.BoundByReserve: "your reserve", api.BoundByPerPeer: "the most per peer", api.BoundByDisk: "room on the disk", api.BoundByNotAsked: "not asked for", api.BoundByAsked: "what is asked for",
	api.BoundByAccepted: "what was accepted",
}
