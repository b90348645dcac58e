package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/base/browser"
)

func (p commands) webCommand() *cobra.Command {
	var noOpen, readOnly bool
	c := p.Things(&cobra.Command{
		Use:   "web",
		Short: "Show this laptop and its peers as a page in your browser",
		Long: `Show this laptop and its peers as a page in your browser: a map, who waits for your answer, what runs where and why something does
not, what is shared, what was used, and what the doctor finds. It changes as they do.

kithd serves it at a port of 127.0.0.1, from the first call on until nobody has looked at it for ten minutes. The address is
good once, for a minute, and for you: other users of this machine are not answered. Who opens it may do there what you may
with kith, as far as the page goes: answer requests, change what is shared. With --read-only it changes nothing.

Where this session has no screen, and with --no-open and -o, the address is printed. Root's is good for whoever has it, for
root has no browser. From another machine: ssh -L PORT:127.0.0.1:PORT, with the port of the address.`,
		Example: "  kith web\n  kith web --read-only\n  kith web --no-open\n  kith web -o json | jq -r .url",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			opened, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (api.Web, error) {
				return kithd.Web(ctx, api.WebOptions{ReadOnly: readOnly})
			})
			return program.Answer(p.Program, opened, err, func(w api.Web) {
				if noOpen {
					fmt.Fprintln(p.Out, w.URL)
				} else if err := show(w.URL); err != nil {
					fmt.Fprintf(p.Err, "no browser was started: %v; open this within a minute:\n", err)
					fmt.Fprintln(p.Out, w.URL)
				} else {
					fmt.Fprintln(p.Err, "the page is in your browser")
				}
			})
		},
	})
	c.Flags().BoolVar(&noOpen, "no-open", false, "print the address and start no browser")
	c.Flags().BoolVar(&readOnly, "read-only", false, "a page that shows all and changes nothing")
	return c
}

// show has the user's browser show a page. A browser does not run as root, mostly, and should not.
func show(url string) error {
	if os.Geteuid() == 0 {
		return errors.New("root has none")
	}
	return browser.Open(url)
}
