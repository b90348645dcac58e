package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) imageCommand() *cobra.Command {
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

func (p commands) imageLoadCommand() *cobra.Command {
	var name, from string
	c := p.Lists(&cobra.Command{
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
		Args:    program.Between(0, 1),
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
		loaded, err := program.Long(p.Program, c, 0, func(ctx context.Context, kithd *client.Client, g *program.Progress) ([]api.Image, error) {
			return kithd.LoadImages(ctx, &counted{Reader: archive, report: g.Report}, name)
		})
		if err != nil {
			return err
		}
		return program.Print(p.Program, loaded, imageListing)
	}
	return c
}

// archive opens what is to be loaded: a file, or what a store has by that name, which is then what the image is called.
func (p commands) archive(ctx context.Context, args []string, from string) (archive io.Reader, end func(), called string, err error) {
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

// stores are the programs that build images and keep them in a store of their own, to which each finds the way by its settings.
var stores = []string{"docker", "podman", "nerdctl"}

// saved is the archive of an image in one of those stores. from is the one to look at; "": all of them.
func saved(ctx context.Context, name, from string) (io.Reader, func(), error) {
	var has, looked []string
	for _, store := range stores {
		if from != "" && store != from {
			continue
		}
		if _, err := exec.LookPath(store); err != nil {
			continue
		}
		looked = append(looked, store)
		if exec.CommandContext(ctx, store, "image", "inspect", "--", name).Run() == nil {
			has = append(has, store)
		}
	}
	switch {
	case from != "" && !slices.Contains(stores, from):
		return nil, nil, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("there is no store called %q", from), Do: "one of " + strings.Join(stores, ", "), Field: "from"}
	case len(has) > 1:
		return nil, nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%s have an image %q", strings.Join(has, " and "), name), Do: "say which one's with --from", Field: "from"}
	case len(has) == 0:
		e := &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no file and no image %q", name), Reason: "none of " + strings.Join(stores, ", ") + " is installed",
			Do: "name the archive of an image, or an image that one of them has", Field: "file"}
		if len(looked) > 0 {
			e.Reason = strings.Join(looked, " and ") + " has no such image that you may read"
		}
		return nil, nil, e
	}
	cmd := exec.CommandContext(ctx, has[0], "save", "--", name)
	s := &saving{cmd: cmd}
	cmd.Stderr = &s.said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, &api.Error{Code: api.CodeUnavailable, Message: has[0] + " cannot be run", Reason: err.Error()}
	}
	s.out = out
	return s, s.close, nil
}

// saving reads what a program writes; its end is an error when the program failed.
type saving struct {
	cmd   *exec.Cmd
	out   io.ReadCloser
	said  bytes.Buffer
	ended bool
}

func (s *saving) Read(b []byte) (int, error) {
	n, err := s.out.Read(b)
	if err == io.EOF && !s.ended {
		s.ended = true
		if failed := s.cmd.Wait(); failed != nil {
			why := strings.TrimSpace(s.said.String())
			return n, &api.Error{Code: api.CodeUnavailable, Message: s.cmd.Args[0] + " does not give the image", Reason: why[:min(len(why), 500)]}
		}
	}
	return n, err
}

func (s *saving) close() {
	if !s.ended {
		_ = s.out.Close()
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
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

func (p commands) imageListCommand() *cobra.Command {
	c := p.Lists(&cobra.Command{
		Use: "ls [NAME]...", Aliases: []string{"list"},
		Short:   "List the images of this laptop's Kubernetes",
		Example: "  kith image ls\n  kith image ls -o wide",
		Args:    program.Between(0, -1),
	})
	c.RunE = func(c *cobra.Command, args []string) error { return program.List(p.Program, c, args, imageListing) }
	return c
}

var imageListing = program.Listing[api.Image]{
	Get: (*client.Client).Images, Match: func(x api.Image, name string) bool { return x.Name == name || screen.ShortImage(x.Name) == name },
	Noun: "image", Others: "kith image ls", None: "there are no images; `docker save IMAGE | kith image load` brings one",
	Notes: func(x api.Image) []program.Note {
		if x.Size > 0 {
			return nil
		}
		return program.Notes(screen.ShortImage(x.Name), "a part of it is missing: it runs on no other laptop")
	},
	Columns: []screen.Column[api.Image]{
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

func (p commands) completeImages() program.Completion {
	return program.Complete(p.Program, -1, (*client.Client).Images, func(x api.Image) string { return program.Word(screen.ShortImage(x.Name), x.Name, bytesOf(x.Size)) })
}

func (p commands) imageRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"},
		Short: "Remove images of this laptop's Kubernetes",
		Long: `Remove images of this laptop's Kubernetes. Containers that run go on; a pod that is made anew has to get the image from a
registry again. What no other name has of an image is deleted.`,
		Example: "  kith image rm shop/web:dev",
		Args:    program.Between(1, -1), ValidArgsFunction: p.completeImages(),
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range args {
				if _, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (struct{}, error) {
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

// nothing is a program that no image has. A pod that is to run it has its node get the image, and ends there.
const nothing = "/.kith-image-push"

func (p commands) imagePushCommand() *cobra.Command {
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
		Args:    program.Between(1, 1), ValidArgsFunction: p.completeImages(),
		RunE: func(c *cobra.Command, args []string) error {
			r.image = args[0]
			if len(to) == 0 {
				peers, err := program.Call(p.Program, c, (*client.Client).Peers)
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
