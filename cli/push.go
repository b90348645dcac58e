package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// nothing is a program that no image has. A pod that is to run it has its node get the image, and ends there.
const nothing = "/.kith-image-push"

func (p *program) imagePushCommand() *cobra.Command {
	r := running{command: []string{nothing}}
	var to []string
	c := &cobra.Command{
		Use:   "push IMAGE",
		Short: "Have peers get an image before pods need it",
		Long: `Have peers get an image before pods need it, so that an update or a pod that moves need not wait for it. Each gets what it lacks
of it, from this laptop if it is here, else from its registry. Nothing of the image is run: a pod is bound to the peer whose
command is in no image, and goes when the image is there.

How long a peer keeps it is its own matter: until it needs the room for others.`,
		Example: "  kith image push shop/web:dev\n  kith image push shop/web:dev --to bob,carol",
		Args:    between(1, 1), ValidArgsFunction: p.completeImages(),
		RunE: func(c *cobra.Command, args []string) error {
			r.image = args[0]
			if len(to) == 0 {
				peers, err := call(p, c, (*client.Client).Peers)
				if err != nil {
					return err
				}
				for _, peer := range peers {
					if peer.Node != "" {
						to = append(to, peer.Name)
					}
				}
			}
			if len(to) == 0 {
				return &api.Error{Code: api.CodeConflict, Message: "no peer runs anything for this laptop", Do: "`kith peer NAME` asks for resources; `kith peers` shows who is there"}
			}
			var lack, why []string
			for _, r.at = range to {
				err := p.run(c, r)
				if _, there := errors.AsType[*notStarted](err); there {
					fmt.Fprintf(p.Out, "%s has %s\n", screen.Clean(r.at), screen.Clean(r.image))
					continue
				}
				lack = append(lack, r.at)
				if err != nil {
					why = append(why, r.at+": "+err.Error())
				}
			}
			if len(lack) == 0 {
				return nil
			}
			return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("%s not got the image %s", strings.Join(lack, " and ")+map[bool]string{true: " has", false: " have"}[len(lack) == 1], r.image), Reason: strings.Join(why, "\n")}
		},
	}
	c.Flags().StringSliceVar(&to, "to", nil, "only these peers, with commas; without it, all that are connected")
	c.Flags().StringVarP(&r.namespace, "namespace", "n", runNamespace, "make the pod in this namespace, which must be offloaded")
	_ = c.RegisterFlagCompletionFunc("to", p.completePeers(-1))
	_ = c.RegisterFlagCompletionFunc("namespace", p.completeOffloads())
	return c
}
