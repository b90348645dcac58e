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

func (p commands) topCommand() *cobra.Command {
	pods := false
	c := p.Lists(&cobra.Command{
		Use:   "top [PEER...]",
		Short: "Show what is used of what was granted, at peers and here",
		Long: `Show what is used of what was granted: by your pods at each peer, and by the guests of each peer here. Used is what kubelets measured
some seconds ago, requested what the pods ask for, and granted what the contract allows.

--pods shows each pod. What all pods of this cluster use shows "kubectl top pods -A".`,
		Example: "  kith top\n  kith top bob\n  kith top --pods\n  watch kith top\n  kith top -o json | jq '.[] | {peer, direction, used}'",
		Args:    program.Between(0, -1), ValidArgsFunction: p.completePeers(-1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := program.Call(p.Program, c, (*client.Client).Top)
			if err == nil {
				all, err = topListing.Pick(all, args)
			}
			if err != nil {
				return err
			}
			if pods && p.Format != program.JSON && p.Format != program.YAML {
				return program.Print(p.Program, eachPod(all), topPodListing)
			}
			return program.Print(p.Program, all, topListing)
		},
	})
	c.Flags().BoolVar(&pods, "pods", false, "show each pod")
	return c
}

// of writes an amount for a column: "-" where it is not known.
func of(r api.Resources, name string) string { return cmp.Or(api.Rounded(name, r[name]), "-") }

var topListing = program.Listing[api.Top]{
	Match: func(x api.Top, name string) bool { return x.Peer == name }, Noun: "contract with a peer", Others: "kith top",
	Columns: []screen.Column[api.Top]{
		{Title: "PEER", Cell: func(x api.Top) string { return x.Peer }},
		{Title: "PODS", Cell: func(x api.Top) string {
			if x.Direction == api.Incoming {
				return "its, here"
			}
			return "yours, there"
		}},
		{Title: "COUNT", Cell: func(x api.Top) string { return of(x.Used, api.Pods) + " of " + of(x.Granted, api.Pods) }},
		{Title: "CPU USED", Cell: func(x api.Top) string { return of(x.Used, api.CPU) }},
		{Title: "REQUESTED", Cell: func(x api.Top) string { return cmp.Or(api.Rounded(api.CPU, x.Requested[api.CPU]), "0") }},
		{Title: "GRANTED", Cell: func(x api.Top) string { return of(x.Granted, api.CPU) }},
		{Title: "MEMORY USED", Cell: func(x api.Top) string { return of(x.Used, api.Memory) }},
		{Title: "REQUESTED", Cell: func(x api.Top) string { return cmp.Or(api.Rounded(api.Memory, x.Requested[api.Memory]), "0") }},
		{Title: "GRANTED", Cell: func(x api.Top) string { return of(x.Granted, api.Memory) }},
	},
	None:  "there is no contract with any peer: nothing of peers is used here, and nothing here by peers",
	Notes: func(x api.Top) []program.Note { return program.Notes(x.Peer, x.Unknown) },
}

// crossing is a pod with whose it is, or where.
type crossing struct {
	api.TopPod
	where string
}

func eachPod(all []api.Top) (pods []crossing) {
	for _, x := range all {
		where := "at " + x.Peer
		if x.Direction == api.Incoming {
			where = "here, of " + x.Peer
		}
		for _, pod := range x.Pods {
			pods = append(pods, crossing{pod, where})
		}
	}
	return pods
}

var topPodListing = program.Listing[crossing]{
	Columns: []screen.Column[crossing]{
		{Title: "POD", Cell: func(x crossing) string { return fmt.Sprintf("%s/%s", x.Namespace, x.Name) }},
		{Title: "WHERE", Cell: func(x crossing) string { return x.where }},
		{Title: "CPU USED", Cell: func(x crossing) string { return of(x.Used, api.CPU) }},
		{Title: "REQUESTED", Cell: func(x crossing) string { return cmp.Or(api.Rounded(api.CPU, x.Requested[api.CPU]), "0") }},
		{Title: "MEMORY USED", Cell: func(x crossing) string { return of(x.Used, api.Memory) }},
		{Title: "REQUESTED", Cell: func(x crossing) string { return cmp.Or(api.Rounded(api.Memory, x.Requested[api.Memory]), "0") }},
	},
	None: "no pod of this cluster runs at a peer, and none of a peer here",
}
