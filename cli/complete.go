package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// completion is what a shell asks for: words that continue what was typed, each with a description.
type completion = func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective)

// complete offers what words gives, for up to most arguments (-1: any number). A shell must not hang on a daemon, and
// has no use for an error: without an answer in time there is nothing to offer.
func (p *program) complete(most int, words func(context.Context, *client.Client) ([]string, error)) completion {
	return func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		kithd := p.kithd()
		defer kithd.Close()
		all, err := words(ctx, kithd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		// In a list with commas the last word is completed.
		done := begin[:strings.LastIndexByte(begin, ',')+1]
		var out []string
		for _, w := range all {
			word, _, _ := strings.Cut(w, "\t")
			if strings.HasPrefix(done+word, begin) && !slices.Contains(args, word) {
				out = append(out, done+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// word is one completion. A peer's name that a shell could trip over is replaced by what is harmless.
func word(name, otherwise, description string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(harmless, r) }) {
		name = otherwise
	}
	return name + "\t" + screen.Clean(description)
}

const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"

// completeWith offers a word for each of what kithd lists; "" for none.
func completeWith[T any](p *program, most int, list func(*client.Client, context.Context) ([]T, error), word func(T) string) completion {
	return p.complete(most, func(ctx context.Context, kithd *client.Client) (out []string, err error) {
		all, err := list(kithd, ctx)
		for _, x := range all {
			out = append(out, nonEmpty(word(x))...)
		}
		return out, err
	})
}

func (p *program) completePeers(most int) completion {
	return completeWith(p, most, (*client.Client).Peers, func(x api.Peer) string {
		return word(x.Name, x.ShortID, strings.Join(nonEmpty("out "+string(x.Outgoing), "in "+string(x.Incoming), tethered(x)), ", "))
	})
}

func (p *program) completeRequests(most int) completion {
	return completeWith(p, most, (*client.Client).Requests, func(r api.Request) string {
		if r.Direction == api.Outgoing {
			return ""
		}
		if r.Tether {
			return word(r.ID, r.ID, r.Peer+" asks this cluster to run it")
		}
		return word(r.ID, r.ID, r.Peer+" would get "+r.Grants())
	})
}

func (p *program) completeContracts(most int) completion {
	return completeWith(p, most, (*client.Client).Contracts, func(x api.Contract) string {
		return word(x.Name, x.ID, string(x.Role)+", "+string(x.State))
	})
}

func (p *program) completeOffloads() completion {
	return completeWith(p, 1, (*client.Client).Offloads, func(o api.Offload) string {
		return word(o.Namespace, o.Namespace, screen.Count(o.Pods.Abroad, "pod")+" abroad")
	})
}

func (p *program) completeImages() completion {
	return completeWith(p, -1, (*client.Client).Images, func(x api.Image) string { return word(screen.ShortImage(x.Name), x.Name, bytesOf(x.Size)) })
}

func (p *program) completePolicies() completion {
	return completeWith(p, -1, (*client.Client).Policies, func(x api.Policy) string { return word(x.Name, x.Name, x.Amounts.String()) })
}
