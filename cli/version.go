package cli

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// versions is what kith version says.
type versions struct {
	Kith  api.Version  `json:"kith"`
	Kithd *api.Version `json:"kithd,omitempty"` // left out when it is not asked, or does not answer
}

func (p *program) versionCommand() *cobra.Command {
	var own bool
	c := p.things(&cobra.Command{
		Use:     "version",
		Short:   "Show the versions of kith and of kithd",
		Example: "  kith version\n  kith version --client",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			v := versions{Kith: api.Version{Version: p.Version, Commit: p.Commit, Go: runtime.Version()}}
			var failed error
			absent := false
			if !own {
				var kithd api.Version
				kithd, failed = call(p, c, (*client.Client).Version)
				if failed == nil {
					v.Kithd = &kithd
				} else if absent = errors.Is(failed, &api.Error{Code: api.CodeUnavailable}); absent {
					failed = nil // what is asked is which versions are there
				}
			}
			if done, err := p.machine(v); done && err != nil {
				return err
			} else if !done {
				p.showVersion("kith", v.Kith)
				if v.Kithd != nil {
					p.showVersion("kithd", *v.Kithd)
				} else if absent {
					fmt.Fprintln(p.Out, "kithd  is not running")
				}
			}
			return failed
		},
	})
	c.Flags().BoolVar(&own, "client", false, "do not ask kithd")
	return c
}

func (p *program) showVersion(program string, v api.Version) {
	text := screen.Clean(v.Version)
	if v.Commit != "" {
		text += ", commit " + screen.Clean(v.Commit)
	}
	if v.Kubernetes != "" {
		text += ", Kubernetes " + screen.Clean(v.Kubernetes)
	}
	fmt.Fprintf(p.Out, "%-5s  %s\n", program, text)
}
