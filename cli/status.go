package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) statusCommand() *cobra.Command {
	return p.things(&cobra.Command{
		Use:   "status",
		Short: "Show how this machine's part of Kith is",
		Long: `Show how this machine's part of Kith is. What is wrong comes last, the worst first, each with its reason and what to do:
the local Kubernetes that is not well, a disk nearly full, a peer that cannot be reached, a tunnel without a handshake,
another key where a peer was, clocks that differ; and requests that wait for your answer. "kith doctor" looks closer.`,
		Example: "  kith status\n  kith status -o json | jq .problems",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := call(p, c, func(ctx context.Context, kithd *client.Client) (api.Status, error) { return kithd.Status(ctx) })
			if err != nil {
				return err
			}
			if done, err := p.machine(s); done {
				return err
			}
			p.showStatus(p.Out, s)
			return nil
		},
	})
}

func (p *program) showStatus(w io.Writer, s api.Status) {
	style := p.style(p.OutTerminal)
	line := func(name string, words ...string) {
		words = slicesWithout(words, "")
		fmt.Fprintf(w, "%-10s %s\n", name, strings.Join(words, ", "))
	}
	fmt.Fprintf(w, "%s (%s), %s, kithd %s", style.bold(clean(s.Name)), clean(s.ID), s.Mode, clean(s.Version))
	if !s.Started.IsZero() {
		fmt.Fprintf(w, ", up %s", age(p.Now().Sub(s.Started)))
	}
	fmt.Fprintln(w)

	node := s.Engine.Node
	if node != "" && s.Engine.NodeIP != "" {
		node += " at " + s.Engine.NodeIP
	}
	line("Engine", string(s.Engine.Kind), style.word(string(s.Engine.State)), clean(s.Engine.Version), named("node", clean(node)), clean(s.Engine.Why))
	line("Sharing", p.sharing(style, s.Sharing)...)
	requests := ""
	if n := s.Counts.Requests; n > 0 {
		requests = style.yellow(count(n, "request") + " to answer (kith requests)")
	}
	line("Peers", fmt.Sprintf("%d known", s.Counts.Peers), fmt.Sprintf("%d connected", s.Counts.Connected), requests)
	line("Pods", fmt.Sprintf("%d abroad", s.Counts.PodsAbroad), count(s.Counts.Guests, "guest"))
	var doors []string
	for _, l := range s.Listen {
		doors = append(doors, clean(fmt.Sprintf("%s %s/%s", l.Name, l.Address, l.Network)))
	}
	if len(doors) > 0 {
		line("Listening", doors...)
	}
	if e := s.Exposed; e != nil {
		at := "this machine is on no LAN"
		if len(e.Addresses) > 0 {
			at = "at " + clean(strings.Join(e.Addresses, " and "))
		}
		line("Exposed", style.yellow("NodePort and LoadBalancer services to the "+strings.ToUpper(clean(e.To))), at)
	}
	for _, problem := range s.Problems {
		fmt.Fprintf(w, "\n%s %s\n", style.word(string(problem.Severity))+":", cleanLines(problem.What))
		for _, detail := range []string{problem.Why, problem.Do} {
			if detail != "" {
				fmt.Fprintln(w, "  "+strings.ReplaceAll(cleanLines(detail), "\n", "\n  "))
			}
		}
	}
}

func (p *program) sharing(style style, s api.Sharing) []string {
	if len(s.Amounts) == 0 && !s.Paused {
		return []string{"nothing (kith share 50% offers half)", clean(s.Why)}
	}
	words := []string{clean(s.Share)}
	if s.Paused {
		words = append(words, style.word("paused"))
	}
	words = append(words, clean(used(s.Used, s.Amounts)))
	if s.AutoAccept {
		words = append(words, "requests are accepted without asking")
	}
	return append(words, clean(s.Why))
}

func named(what, name string) string {
	if name == "" {
		return ""
	}
	return what + " " + name
}

func slicesWithout(words []string, not string) []string {
	var out []string
	for _, w := range words {
		if w != not {
			out = append(out, w)
		}
	}
	return out
}
