package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) eventsCommand() *cobra.Command {
	var follow bool
	c := p.things(&cobra.Command{
		Use:     "events",
		Short:   "Show what happened lately",
		Long:    "Show what happened lately, as far as kithd remembers. With -f -o json every event is a line of its own, as it comes.",
		Example: "  kith events\n  kith events -f -o json | jq -r 'select(.severity==\"error\").message'",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			kithd := p.kithd()
			defer kithd.Close()
			var all []api.Event
			for e, err := range kithd.Events(c.Context(), client.EventsFrom{Follow: follow}) {
				switch {
				case err != nil:
					return err
				case p.format != "" && !follow:
					all = append(all, e)
				case p.format == formatJSON:
					err = p.writeJSON(e, "")
				case p.format == formatYAML:
					fmt.Fprintln(p.Out, "---")
					_, err = p.machine(e)
				default:
					p.showEvent(e)
				}
				if err != nil {
					return err
				}
			}
			if follow {
				return nil
			}
			_, err := p.machine(api.List[api.Event](all))
			return err
		},
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	return c
}

func (p *program) showEvent(e api.Event) {
	style := p.style(p.OutTerminal)
	text := screen.CleanLines(e.Message)
	if e.Object != "" {
		text += " (" + screen.Clean(e.Object) + ")"
	}
	fmt.Fprintf(p.Out, "%s  %s  %-16s  %s\n", e.Time.Local().Format(time.DateTime), style.Padded(string(e.Severity), len(api.SeverityWarning)), screen.Clean(string(e.Type)), text)
}
