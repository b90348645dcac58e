package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) imageCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Load, list and remove images of this laptop's Kubernetes, or give them to peers",
		Long: `Load, list and remove images of this laptop's Kubernetes, or give them to peers.

What is loaded here runs here, without a registry, under the name that it has. It runs at peers too: a peer that needs an
image for one of your pods asks this laptop for it first, over the connection of the two, and gets the images of your pods
there and no others. So an image that was built on this laptop needs no registry at all.`,
		Example: "  kith image load shop/web:dev\n  kith image push shop/web:dev --to bob\n  kith image ls\n  kith image rm shop/web:dev",
	}
	c.AddCommand(p.imageLoadCommand(), p.imagePushCommand(), p.imageListCommand(), p.imageRemoveCommand())
	return c
}

func (p *program) imageLoadCommand() *cobra.Command {
	var name, from string
	c := p.lists(&cobra.Command{
		Use:   "load [IMAGE|FILE|-]",
		Short: "Load an image that docker or podman has, or those of an archive",
		Long: `Load an image, by its name, from docker, podman or nerdctl, or those of an archive: a tar, compressed or not, in Docker's
form, as docker save writes it, or in the OCI's, as podman save --format oci-archive does. Without an argument, or with -,
the archive is read from the standard input.

Images keep the names that the archive gives them; docker.io/library/ is put before a short one, as pods mean it. Some
archives have a tag alone, or nothing: --name says what the image is to be called, beside the name that it has.

A pod whose image has the tag latest, or none, asks a registry each time it starts unless it has
imagePullPolicy: IfNotPresent.`,
		Example: "  kith image load shop/web:dev\n  docker save shop/web:dev | kith image load\n  podman save --format oci-archive shop/web:dev | kith image load\n  kith image load web.tar --name shop/web:dev",
		Args:    between(0, 1),
	})
	c.Flags().StringVar(&name, "name", "", "call the image so; for an archive of one")
	c.Flags().StringVar(&from, "from", "", "whose image it is: "+strings.Join(stores, ", ")+"; else all are asked")
	_ = c.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(stores, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, args []string) error {
		archive, end, called, err := p.archive(c.Context(), args, from)
		if err != nil {
			return err
		}
		defer end()
		if name == "" {
			name = called
		}
		loaded, err := long(p, c, 0, func(ctx context.Context, kithd *client.Client, g *progress) ([]api.Image, error) {
			return kithd.LoadImages(ctx, &counted{Reader: archive, report: g.report}, name)
		})
		if err != nil {
			return err
		}
		return printList(p, loaded, imageListing)
	}
	return c
}

// archive opens what is to be loaded: a file, or what a store has by that name, which is then what the image is called.
func (p *program) archive(ctx context.Context, args []string, from string) (archive io.Reader, end func(), called string, err error) {
	if len(args) == 1 && args[0] != "-" {
		f, err := os.Open(args[0])
		if from != "" || errors.Is(err, fs.ErrNotExist) {
			archive, end, err := saved(ctx, args[0], from)
			return archive, end, args[0], err
		}
		if err != nil {
			return nil, nil, "", &api.Error{Code: api.CodeInvalid, Message: "the archive cannot be read", Reason: err.Error(), Field: "file"}
		}
		return f, func() { f.Close() }, "", nil
	}
	if p.InTerminal {
		return nil, nil, "", &api.Error{Code: api.CodeInvalid, Message: "no archive", Reason: "the standard input is a terminal", Do: "name an image that docker or podman has, or a file"}
	}
	return p.In, func() {}, "", nil
}

// counted reports how much was read, at each step of 16 MiB.
type counted struct {
	io.Reader
	report func(api.Progress)
	read   int64
}

func (r *counted) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	before := r.read >> 24
	if r.read += int64(n); r.read>>24 != before {
		r.report(api.Progress{Message: fmt.Sprintf("%s sent", bytesOf(r.read))})
	}
	if err == io.EOF && r.read > 0 {
		r.report(api.Progress{Message: fmt.Sprintf("%s sent; it is unpacked", bytesOf(r.read))})
	}
	return n, err
}

func (p *program) imageListCommand() *cobra.Command {
	c := p.lists(&cobra.Command{
		Use: "ls [NAME]...", Aliases: []string{"list"},
		Short:   "List the images of this laptop's Kubernetes",
		Example: "  kith image ls\n  kith image ls -o wide",
		Args:    between(0, -1),
	})
	c.RunE = func(c *cobra.Command, args []string) error { return list(p, c, args, imageListing) }
	return c
}

var imageListing = listing[api.Image]{
	get: (*client.Client).Images, match: func(x api.Image, name string) bool { return x.Name == name || screen.ShortImage(x.Name) == name },
	noun: "image", others: "kith image ls", none: "there are no images; `docker save IMAGE | kith image load` brings one",
	notes: func(x api.Image) []note {
		if x.Size > 0 {
			return nil
		}
		return []note{{screen.ShortImage(x.Name), "a part of it is missing: it runs on no other laptop"}}
	},
	columns: []screen.Column[api.Image]{
		{Title: "IMAGE", Cell: func(x api.Image) string { return screen.ShortImage(x.Name) }},
		{Title: "SIZE", Cell: func(x api.Image) string {
			if x.Size == 0 {
				return "not whole"
			}
			return bytesOf(x.Size)
		}},
		{Title: "LOADED", Cell: func(x api.Image) string { return x.Created.Local().Format("2006-01-02 15:04") }},
		{Title: "DIGEST", Wide: true, Cell: func(x api.Image) string { return x.Digest }},
	},
}

func (p *program) imageRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"},
		Short: "Remove images of this laptop's Kubernetes",
		Long: `Remove images of this laptop's Kubernetes. Containers that run go on; a pod that is made anew has to get the image from a
registry again. What no other name has of an image is deleted.`,
		Example: "  kith image rm shop/web:dev",
		Args:    between(1, -1), ValidArgsFunction: p.completeImages(),
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range args {
				if _, err := call(p, c, func(kithd *client.Client, ctx context.Context) (struct{}, error) {
					return struct{}{}, kithd.RemoveImage(ctx, name)
				}); err != nil {
					return err
				}
				fmt.Fprintf(p.Out, "removed %s\n", name)
			}
			return nil
		},
	}
}
