package tray

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// seeTop shows what pods use, this cluster's at a peer and the peer's here, as kith top --pods does.
func (t *Tray) seeTop(ctx context.Context, peer string) error {
	all, err := t.Daemon.Top(ctx)
	if err != nil {
		return err
	}
	return t.view("top", "top.txt", "What pods use is in a file", topText(peer, all, time.Now()))
}

// topText writes what is used under the contracts with one peer.
func topText(peer string, all []api.Top, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "What pods use, %s\n", now.Format(time.RFC1123))
	seen := false
	for _, x := range all {
		if x.Peer != peer {
			continue
		}
		seen = true
		whose := "Yours at " + words.Name(peer)
		if x.Direction == api.Incoming {
			whose = "Of " + words.Name(peer) + " here"
		}
		fmt.Fprintf(&b, "\n%s: %s\n", whose, words.Uses(x.Used, x.Granted))
		if why := words.Text(x.Unknown); why != "" {
			fmt.Fprintf(&b, "%s\n", why)
		}
		if len(x.Pods) == 0 {
			continue
		}
		w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "\nPOD\tCPU USED\tREQUESTED\tMEMORY USED\tREQUESTED")
		for _, pod := range x.Pods {
			amount := func(r api.Resources, name, none string) string {
				return words.Text(cmp.Or(api.Rounded(name, r[name]), none))
			}
			fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", words.Text(pod.Namespace), words.Text(pod.Name), amount(pod.Used, api.CPU, "-"),
				amount(pod.Requested, api.CPU, "0"), amount(pod.Used, api.Memory, "-"), amount(pod.Requested, api.Memory, "0"))
		}
		w.Flush()
	}
	if !seen {
		fmt.Fprintf(&b, "\nThere is no contract with %s any more.\n", words.Name(peer))
	}
	return b.String()
}
