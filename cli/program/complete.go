package program

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api/client"
)

// Completion is what a shell asks for: words that continue what was typed, each with a description.
type Completion = func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective)

// Complete offers a word for each of what kithd lists, "" for none, for up to most arguments (-1: any number). A shell must not
// hang on a daemon, and has no use for an error: without an answer in time there is nothing to offer.
func Complete[T any](p *Program, most int, list func(*client.Client, context.Context) ([]T, error), word func(T) string) Completion {
	return func(c *cobra.Command, args []string, begin string) (out []string, _ cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		kithd := p.Client()
		defer kithd.Close()
		all, err := list(kithd, ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		// In a list with commas the last word is completed.
		done := begin[:strings.LastIndexByte(begin, ',')+1]
		for _, x := range all {
			w := word(x)
			name, _, _ := strings.Cut(w, "\t")
			if w != "" && strings.HasPrefix(done+name, begin) && !slices.Contains(args, name) {
				out = append(out, done+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// Word is one completion. A peer's name that a shell could trip over is replaced by what is harmless.
func Word(name, otherwise, description string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(harmless, r) }) {
		name = otherwise
	}
	return name + "\t" + screen.Clean(description)
}

const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/"
